"""Gauges of groups: their number by kind and state, what happens to them, and the lag of each (kafka_exporter's names).

kafka_exporter queries every coordinator and leader each time; here the coordinator reads its own state and the local
logs. The lag of a partition without a replica on this broker is not reported.
"""

import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkapy.gauge import Gauge

if TYPE_CHECKING:
    from kafkapy.group.counts import GroupCounts
    from kafkapy.group.group import Group
    from kafkapy.group.offsets import GroupOffsets
    from kafkapy.metrics.rates import Rates
    from kafkapy.replication.hosted_partitions import HostedPartitions
    from kafkapy.runtime.coordinators.group_coordinator import GroupCoordinator

METADATA_MANAGER: Final = "kafka.coordinator.group:type=GroupMetadataManager"
STATES: Final = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")
"""The states that Kafka counts by name; KIP-848 groups in other states are only in NumGroups."""
GROUP_COORDINATOR: Final = "kafka.server:type=group-coordinator-metrics"
STATES_BY_TYPE: Final = {
    "classic": STATES,
    "consumer": ("Empty", "Assigning", "Reconciling", "Stable", "Dead"),
    "share": ("Empty", "Stable", "Dead"),
    "streams": ("Empty", "NotReady", "Assigning", "Reconciling", "Stable", "Dead"),
}
"""The states that each kind of group can be in."""
EVENTS: Final = {
    "offset-commit": "offset_commits",
    "offset-expiration": "offset_expirations",
    "offset-deletion": "offset_deletions",
    "group-completed-rebalance": "classic_rebalances",
    "consumer-group-rebalance": "consumer_rebalances",
    "streams-group-rebalance": "streams_rebalances",
}
"""Apache Kafka's names of what GroupCounts has."""
EXPORTER: Final = ""
SHARE_GROUP: Final = "share"


def group_gauges(coordinator: "GroupCoordinator", partitions: "HostedPartitions") -> Iterator[Gauge | None]:
    """Yield the gauges of all groups that are coordinated here, and their counts."""
    counts: Counter[tuple[str, str]] = Counter()
    for shard in coordinator.active_shards():
        for group in list(shard.groups.values()):
            counts[group.group_type, group.state_name] += 1
            if group.group_type != SHARE_GROUP:  # it has no committed offsets
                yield from _of_group(group, shard.offsets.store.of_group(group.group_id), partitions)
            yield None
    yield Gauge(METADATA_MANAGER, "NumGroups", counts.total())
    for state in STATES:
        count = sum(counts[kind, state] for kind in STATES_BY_TYPE)
        yield Gauge(METADATA_MANAGER, f"NumGroups{state}", count)
    yield from _by_type(counts)


def event_gauges(counts: "GroupCounts", rates: "Rates") -> Iterator[Gauge]:
    """Yield how often each event has happened to groups that are coordinated here, and how often of late."""
    now_s = time.monotonic()
    for name, attribute in EVENTS.items():
        count = getattr(counts, attribute)
        yield Gauge(GROUP_COORDINATOR, f"{name}-rate", rates.per_second(f"groups: {name}", count, now_s))
        yield Gauge(GROUP_COORDINATOR, f"{name}-count", count, is_counter=True)


def _by_type(counts: Counter[tuple[str, str]]) -> Iterator[Gauge]:
    for kind, states in STATES_BY_TYPE.items():
        total = sum(count for (of_kind, _), count in counts.items() if of_kind == kind)
        yield Gauge(GROUP_COORDINATOR, "group-count", total, (("protocol", kind),))
        for state in states:
            yield Gauge(GROUP_COORDINATOR, f"{kind}-group-count", counts[kind, state], (("state", state),))


def _of_group(group: "Group", offsets: "GroupOffsets", partitions: "HostedPartitions") -> Iterator[Gauge]:
    of_group = ("consumergroup", group.group_id)
    yield Gauge(EXPORTER, "kafka_consumergroup_members", group.member_count, (of_group,))
    for topic, committed in list(offsets.items()):
        of_topic = (of_group, ("topic", topic))
        offset_sum = lag_sum = 0
        for partition, offset in list(committed.items()):
            tags = (*of_topic, ("partition", str(partition)))
            offset_sum += offset.value.offset
            yield Gauge(EXPORTER, "kafka_consumergroup_current_offset", offset.value.offset, tags)
            hosted = partitions.find(topic, partition)
            if hosted is not None and hosted.log is not None:
                lag = max(hosted.log.high_watermark - offset.value.offset, 0)
                lag_sum += lag
                yield Gauge(EXPORTER, "kafka_consumergroup_lag", lag, tags)
        yield Gauge(EXPORTER, "kafka_consumergroup_current_offset_sum", offset_sum, of_topic)
        yield Gauge(EXPORTER, "kafka_consumergroup_lag_sum", lag_sum, of_topic)
