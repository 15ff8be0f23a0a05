"""Gauges of replication between brokers: changes of ISRs, the lag of this broker's followers, throttled bytes."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkapy.gauge import Gauge
from kafkapy.server.admin.names import object_name

if TYPE_CHECKING:
    from kafkapy.replication.replica_manager import ReplicaManager
    from kafkapy.runtime.followers.replica_fetchers import ReplicaFetchers
    from kafkapy.runtime.logs.log_dir_mover import LogDirMover
    from kafkapy.server.replication import Replication
    from kafkapy.storage.manager.log_manager import LogManager

REPLICA_MANAGER: Final = "kafka.server:type=ReplicaManager"
FETCHER_MANAGER: Final = "kafka.server:type=ReplicaFetcherManager"
FETCHER_LAG: Final = "kafka.server:type=FetcherLagMetrics"
MOVE_MANAGER: Final = "kafka.server:type=ReplicaAlterLogDirsManager"
OF_MOVES: Final = (("clientId", "ReplicaAlterLogDirs"),)
OF_REPLICAS: Final = (("clientId", "Replica"),)
ASSIGNMENTS: Final = ("kafka.server:type=AssignmentsManager", "org.apache.kafka.server:type=AssignmentsManager")
QUEUED_ASSIGNMENTS: Final = "QueuedReplicaToDirAssignments"
NAMES_OF_SUMS: Final = ("MaxLag", "MinFetchRate", "DeadThreadCount", "FailedPartitionsCount")


def expiry_gauges(manager: "ReplicaManager") -> Iterator[Gauge]:
    """Yield how many waiting requests timed out.

    Deviation: Apache Kafka counts a Produce request once for each of its partitions. Here once, because it waits as
    one.
    """
    expired = manager.expired_counts
    of_fetches = "kafka.server:type=DelayedFetchMetrics"
    for kind, count in (("consumer", expired["Fetch"]), ("follower", manager.watches.expired_count)):
        yield Gauge(of_fetches, "ExpiresPerSec", count, (("fetcherType", kind),), is_counter=True)
    yield Gauge("kafka.server:type=DelayedProduceMetrics", "ExpiresPerSec", expired["Produce"], is_counter=True)


def replication_gauges(replication: "Replication", started_s: float) -> Iterator[Gauge | None]:
    """`started_s`: when the broker began to count, of the monotonic clock."""
    updates = replication.isr_updates
    for name, count in (
        ("IsrShrinksPerSec", updates.shrink_count if updates is not None else 0),
        ("IsrExpandsPerSec", updates.expand_count if updates is not None else 0),
        ("FailedIsrUpdatesPerSec", updates.failure_count if updates is not None else 0),
    ):
        yield Gauge(REPLICA_MANAGER, name, count, is_counter=True)
    if replication.fetchers is None:
        for name in NAMES_OF_SUMS:
            yield Gauge(FETCHER_MANAGER, name, 0, OF_REPLICAS)
    else:
        yield from _of_fetchers(replication.fetchers, max(time.monotonic() - started_s, 1.0))


def move_gauges(log_manager: "LogManager") -> Iterator[Gauge]:
    """Yield how far moves between log directories are behind."""
    max_lag = 0
    for topic_partition, future in list(log_manager.future_logs.items()):
        log = log_manager.get_log(topic_partition)
        if log is not None:
            max_lag = max(max_lag, log.log_end_offset - future.log_end_offset)
    for name, value in zip(NAMES_OF_SUMS, (max_lag, 0, 0, 0), strict=True):
        yield Gauge(MOVE_MANAGER, name, value, OF_MOVES)


def assignment_gauges(mover: "LogDirMover") -> Iterator[Gauge]:
    """Yield how many replicas' directories the controller has not accepted yet, by both names of the MBean."""
    for group in ASSIGNMENTS:
        tags = (object_name(group, QUEUED_ASSIGNMENTS),)
        yield Gauge(group, QUEUED_ASSIGNMENTS, mover.queued_assignment_count, tags)


def _of_fetchers(fetchers: "ReplicaFetchers", passed_s: float) -> Iterator[Gauge | None]:
    names = fetchers.replica_manager.image.topics.by_id
    max_lag, rates = 0, []
    for (leader_id, index), fetcher in fetchers:
        rates.append(fetcher.fetch_count / passed_s)
        client_id = ("clientId", f"ReplicaFetcherThread-{index}-{leader_id}")
        for (topic_id, partition_id), lag in list(fetcher.lags.items()):
            max_lag = max(max_lag, lag)
            topic = names.get(topic_id)
            if topic is not None:
                tags = (client_id, ("partition", str(partition_id)), ("topic", topic.name))
                yield Gauge(FETCHER_LAG, "ConsumerLag", lag, tags)
        yield None
    throttles = (
        ("LeaderReplication", fetchers.replica_manager.watches.throttle),
        ("FollowerReplication", fetchers.throttle),
    )
    for kind, throttle in throttles:
        if throttle is not None:
            yield Gauge(f"kafka.server:type={kind}", "byte-rate", throttle.measured_rate)
    for name, value in zip(NAMES_OF_SUMS, (max_lag, min(rates, default=0), 0, fetchers.failed_count), strict=True):
        yield Gauge(FETCHER_MANAGER, name, value, OF_REPLICAS)
