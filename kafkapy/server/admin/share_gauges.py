"""Gauges of share groups: share partitions and sessions of this broker, its share coordinator, the groups' states.

Strimzi's rules of the JMX exporter, written for names with two properties, would put the group of SharePartitionMetrics
into the metric's name. Here it is the label `group`.
"""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkapy.gauge import Distribution, Gauge, Measured
from kafkapy.metadata.topic_names import SHARE_STATE_TOPIC
from kafkapy.metrics.shares import ACKNOWLEDGE_TYPES
from kafkapy.server.admin.group_gauges import GROUP_COORDINATOR

if TYPE_CHECKING:
    from kafkapy.metrics.rates import Rates
    from kafkapy.metrics.shares import ShareCounts, SharePartitionCounts
    from kafkapy.runtime.coordinators.share_coordinator import ShareCoordinator
    from kafkapy.runtime.share.in_use import InUse
    from kafkapy.runtime.share.share_partitions import SharePartitions

SHARE_GROUPS: Final = "kafka.server:type=ShareGroupMetrics"
SHARE_PARTITIONS: Final = "kafka.server:type=SharePartitionMetrics"
SESSIONS: Final = "kafka.server:type=ShareSessionCache"
DELAYED_FETCHES: Final = "kafka.server:type=DelayedShareFetchMetrics"
SHARE_COORDINATOR: Final = "kafka.server:type=share-coordinator-metrics"


def share_gauges(counts: "ShareCounts", shares: "SharePartitions | None") -> Iterator[Measured | None]:
    """Yield the values of this broker's share partitions; `shares` is None while there have been none."""
    for type_id, type_name in enumerate(ACKNOWLEDGE_TYPES):
        if type_id:
            tags = (("ackType", type_name),)
            acknowledged = counts.acknowledgements[type_id]
            yield Gauge(SHARE_GROUPS, "RecordAcknowledgementsPerSec", acknowledged, tags, is_counter=True)
    yield Distribution(SHARE_GROUPS, "PartitionLoadTimeMs", (), [counts.load_ms.copy()])
    for group_id, of_group in list(counts.groups.items()):
        tags = (("group", group_id),)
        yield Distribution(SHARE_GROUPS, "RequestTopicPartitionsFetchRatio", tags, [of_group.fetch_ratio.copy()])
        yield Distribution(SHARE_GROUPS, "TopicPartitionsAcquireTimeMs", tags, [of_group.acquire_ms.copy()])
        yield None
    for group_id, letters in list(counts.letters.items()):
        tags = (("group", group_id),)
        for name, count in (
            ("DeadLetterQueueRecordCount", letters.written_records),
            ("DeadLetterQueueTotalProduceRequestsPerSec", letters.requests),
            ("DeadLetterQueueFailedProduceRequestsPerSec", letters.failed_requests),
        ):
            if count:  # Apache Kafka makes each when it first counts something
                yield Gauge(SHARE_GROUPS, name, count, tags, is_counter=True)
    sessions = None if shares is None else shares.sessions
    yield Gauge(SESSIONS, "ShareSessionsCount", 0 if sessions is None else len(sessions))
    yield Gauge(SESSIONS, "SharePartitionsCount", 0 if sessions is None else sessions.partition_count)
    closed_count = 0 if sessions is None else sessions.closed_count
    yield Gauge(SESSIONS, "ShareSessionEvictionsPerSec", closed_count, is_counter=True)
    if shares is not None:
        yield Gauge(DELAYED_FETCHES, "ExpiresPerSec", counts.expired_fetches, is_counter=True)
        for in_use in list(shares):
            yield from _of_share_partition(in_use)
            yield None


def _of_share_partition(in_use: "InUse") -> Iterator[Measured]:
    machine, topic_partition = in_use.partition, in_use.hosted.topic_partition
    tags = (
        ("group", machine.key.group_id),
        ("topic", topic_partition.topic),
        ("partition", str(topic_partition.partition)),
    )
    yield Gauge(SHARE_PARTITIONS, "InFlightMessageCount", machine.records.record_count, tags)
    yield Gauge(SHARE_PARTITIONS, "InFlightBatchCount", len(machine.records), tags)
    if machine.counts is not None:
        yield from _counted(machine.counts, tags)


def _counted(counts: "SharePartitionCounts", tags: tuple[tuple[str, str], ...]) -> Iterator[Measured]:
    yield Gauge(SHARE_PARTITIONS, "AcquisitionLockTimeoutPerSec", counts.timeouts, tags, is_counter=True)
    for name, histogram in (
        ("InFlightBatchMessageCount", counts.batch_records),
        ("FetchLockTimeMs", counts.lock_ms),
        ("FetchLockRatio", counts.lock_ratio),
    ):
        if histogram is not None:
            yield Distribution(SHARE_PARTITIONS, name, tags, [], recent=histogram)


def share_coordinator_gauges(
    coordinator: "ShareCoordinator | None", counts: "ShareCounts", rates: "Rates"
) -> Iterator[Gauge]:
    """Yield the values of this broker as a share coordinator; None: it has not been one so far."""
    now_ms = counts.now_ms()
    rate = rates.per_second("share-coordinator-writes", counts.state_writes, time.monotonic())
    yield Gauge(SHARE_COORDINATOR, "write-rate", rate)
    yield Gauge(SHARE_COORDINATOR, "write-total", counts.state_writes, is_counter=True)
    yield Gauge(SHARE_COORDINATOR, "write-latency-avg", counts.state_write_ms.average(now_ms))
    yield Gauge(SHARE_COORDINATOR, "write-latency-max", counts.state_write_ms.maximum(now_ms))
    states = {"loading": 0, "active": 0, "failed": 0} if coordinator is None else coordinator.count_by_state()
    for state, count in states.items():
        yield Gauge(SHARE_COORDINATOR, "num-partitions", count, (("state", state),))
    average_ms, longest_ms = (
        (0.0, 0) if coordinator is None else (coordinator.average_load_time_ms(), coordinator.max_load_time_ms())
    )
    yield Gauge(SHARE_COORDINATOR, "partition-load-time-avg", average_ms)
    yield Gauge(SHARE_COORDINATOR, "partition-load-time-max", longest_ms)
    for partition, offset in (coordinator.pruned_offsets() if coordinator is not None else {}).items():
        tags = (("topic", SHARE_STATE_TOPIC), ("partition", str(partition)))
        yield Gauge(SHARE_COORDINATOR, "last-pruned-offset", offset, tags)


def rebalance_gauges(counts: "ShareCounts", rates: "Rates") -> Iterator[Gauge]:
    rate = rates.per_second("share-group-rebalances", counts.rebalances, time.monotonic())
    yield Gauge(GROUP_COORDINATOR, "share-group-rebalance-rate", rate)
    yield Gauge(GROUP_COORDINATOR, "share-group-rebalance-count", counts.rebalances, is_counter=True)
