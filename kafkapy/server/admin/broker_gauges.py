"""Gauges of a broker's replicas, logs and pending requests, under the names of Apache Kafka's gauges.

Nothing is counted while requests are served: values are read on request, one partition per step, so that the caller may
yield to other tasks in between.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkapy.gauge import Gauge, Row
from kafkapy.replication.partition import Role
from kafkapy.server.admin.names import RETENTION_SIZE

if TYPE_CHECKING:
    from kafkapy.metadata.image import TopicsImage
    from kafkapy.replication.fetch_session import FetchSessionCache
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.replication.replica_manager import ReplicaManager
    from kafkapy.storage.log.log import Log
    from kafkapy.storage.manager.log_manager import LogManager

PARTITION: Final = "kafka.cluster:type=Partition"
LOG: Final = "kafka.log:type=Log"
LOG_MANAGER: Final = "kafka.log:type=LogManager"
REPLICA_MANAGER: Final = "kafka.server:type=ReplicaManager"
PURGATORY: Final = "kafka.server:type=DelayedOperationPurgatory"
SESSIONS: Final = "kafka.server:type=FetchSessionCache"


def replica_gauges(replica_manager: "ReplicaManager") -> Iterator[Gauge | Row]:
    """Yield the gauges of each hosted partition, then their sums."""
    sums, topics = _Sums(), replica_manager.image.topics
    for partition in list(replica_manager.partitions):
        yield _of_partition(partition, topics, sums)
    yield from sums.gauges()
    for operation, count in replica_manager.waiting_counts.items():
        tags = (("delayedOperation", operation),)
        yield Gauge(PURGATORY, "PurgatorySize", count, tags)
        yield Gauge(PURGATORY, "NumDelayedOperations", count, tags)


class _Sums:
    """Sums over all partitions."""

    def __init__(self) -> None:
        self.partitions = self.leaders = self.offline = self.reassigning = self.producer_ids = 0
        self.under_replicated = self.under_min_isr = self.at_min_isr = 0

    def gauges(self) -> Iterator[Gauge]:
        for name, value in (
            ("PartitionCount", self.partitions),
            ("LeaderCount", self.leaders),
            ("OfflineReplicaCount", self.offline),
            ("UnderReplicatedPartitions", self.under_replicated),
            ("UnderMinIsrPartitionCount", self.under_min_isr),
            ("AtMinIsrPartitionCount", self.at_min_isr),
            ("ReassigningPartitions", self.reassigning),
            ("ProducerIdCount", self.producer_ids),
        ):
            yield Gauge(REPLICA_MANAGER, name, value)


COLUMNS: Final = (
    (PARTITION, "UnderReplicated"),
    (PARTITION, "InSyncReplicasCount"),
    (PARTITION, "UnderMinIsr"),
    (PARTITION, "AtMinIsr"),
    (PARTITION, "ReplicasCount"),
)
LOG_COLUMNS: Final = (
    (PARTITION, "LastStableOffsetLag"),
    (LOG, "Size"),
    (LOG, "LogStartOffset"),
    (LOG, "LogEndOffset"),
    (LOG, "NumLogSegments"),
    RETENTION_SIZE,
)
ALL_COLUMNS: Final = COLUMNS + LOG_COLUMNS


def _of_partition(partition: "HostedPartition", topics: "TopicsImage", sums: _Sums) -> Row:
    """Return a partition's gauges. Only a leader knows the state of the replicas: a follower reports 0, as in Kafka.

    Replicas that a reassignment adds are not missing: they do not count until it is complete.
    """
    sums.partitions += 1
    sums.offline += partition.role is Role.OFFLINE
    is_leader, log = partition.is_leader, partition.log
    in_sync = len(partition.isr) if is_leader else 0
    min_isr = partition.effective_min_isr if is_leader else 0
    replica_count = len(partition.replicas) if is_leader else 0
    registration = topics.partition(*partition.topic_partition) if is_leader else None
    if registration is not None and registration.is_being_reassigned:
        sums.reassigning += 1
        replica_count -= len(registration.adding_replicas)
    is_under_replicated = is_leader and in_sync < replica_count
    is_under_min, is_at_min = is_leader and in_sync < min_isr, is_leader and in_sync == min_isr
    sums.leaders += is_leader
    sums.under_replicated += is_under_replicated
    sums.under_min_isr += is_under_min
    sums.at_min_isr += is_at_min
    values = (int(is_under_replicated), in_sync, int(is_under_min), int(is_at_min), replica_count)
    tags = _tags(*partition.topic_partition)
    if log is None:
        return Row(COLUMNS, values, tags)
    sums.producer_ids += len(log.producer_state.producers)
    lag = log.high_watermark - log.last_stable_offset
    return Row(ALL_COLUMNS, (*values, lag, *_of_log(log)), tags)


def log_gauges(log: "Log") -> Iterator[Row]:
    """Yield the gauges of a log that is no replica's: the metadata's."""
    yield Row(LOG_COLUMNS[1:], _of_log(log), _tags(*log.topic_partition))


def _of_log(log: "Log") -> tuple[int, ...]:
    """Return the values of LOG_COLUMNS without the first one.

    The last one is the size in percent of retention.bytes, 0 without it (KIP-1257). Deviation: Apache Kafka's is as of
    the last check for segments to delete. Here as of now, because it is computed at each scrape.
    """
    size_bytes, limit = log.size_bytes, log.config.retention_bytes
    percent = size_bytes * 100 // limit if limit > 0 and log.config.is_deleted_by_retention else 0
    return size_bytes, log.log_start_offset, log.log_end_offset, len(log.segments), percent


def _tags(topic: str, partition: int) -> tuple[tuple[str, str], ...]:
    return ("partition", str(partition)), ("topic", topic)


def directory_gauges(log_manager: "LogManager") -> Iterator[Gauge]:
    """Yield the gauges of the log directories."""
    directories = log_manager.directories
    offline = set(directories.offline_paths)
    cordoned = set(directories.cordoned_ids)
    yield Gauge(LOG_MANAGER, "OfflineLogDirectoryCount", len(offline))
    yield Gauge(LOG_MANAGER, "CordonedLogDirectoryCount", len(cordoned))
    for directory in directories:
        tags = (("logDirectory", directory.path),)
        yield Gauge(LOG_MANAGER, "LogDirectoryOffline", int(directory.path in offline), tags)
        yield Gauge(LOG_MANAGER, "LogDirectoryCordoned", int(directory.directory_id in cordoned), tags)


def session_gauges(sessions: "FetchSessionCache") -> Iterator[Gauge]:
    yield Gauge(SESSIONS, "NumIncrementalFetchSessions", len(sessions))
    yield Gauge(SESSIONS, "NumIncrementalFetchPartitionsCached", sessions.partition_count)
    yield Gauge(SESSIONS, "IncrementalFetchSessionEvictionsPerSec", sessions.eviction_count, is_counter=True)
