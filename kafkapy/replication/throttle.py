"""Replication throttles: limits on sending to followers that are not in sync, or on fetching as one. KIP-73.

Each side has a rate (leader.replication.throttled.rate, follower.replication.throttled.rate; dynamic configs of
brokers) and the partitions that it covers (leader. and follower.replication.throttled.replicas; configs of topics). All
replication of covered partitions counts towards the rate, but only replicas that are not in sync are held back, so that
a throttle never shrinks an ISR. A response may exceed the rate; the next ones then wait until the average is below it.

Source: Apache Kafka's ReplicationQuotaManager.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kafkapy.security.rate import SimpleRate
from kafkapy.types import INT64_MAX

if TYPE_CHECKING:
    from kafkapy.config.quota import QuotaConfig
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.seams import Clock
    from kafkapy.storage.log.log import Log

ALL: Final = "*"
UNLIMITED: Final = INT64_MAX
MAX_ENTRY_LENGTH: Final = 100
"""Longer `partition:broker` entries, which the topic config allows, match no partition."""


class ThrottledSide(Enum):
    """The side that is throttled: sending as leader, or fetching as follower."""

    LEADER = "leader"
    FOLLOWER = "follower"

    @property
    def rate_key(self) -> str:
        return f"{self.value}.replication.throttled.rate"

    def replicas_of(self, log: "Log") -> tuple[str, ...]:
        """Return the topic config that lists the covered replicas."""
        config = log.config
        if self is ThrottledSide.LEADER:
            return config.leader_replication_throttled_replicas
        return config.follower_replication_throttled_replicas


class ReplicationThrottle:
    """One side's limit, in bytes per second, and its measured rate."""

    def __init__(
        self, side: ThrottledSide, bytes_per_second: int, *, node_id: int, quota: "QuotaConfig", clock: "Clock"
    ) -> None:
        """`quota` has replication.quota.window.num and replication.quota.window.size.seconds."""
        self.bytes_per_second = bytes_per_second
        self._side = side
        self._node_id = node_id
        self._clock = clock
        self._rate = SimpleRate(quota.replication_quota_window_num, quota.replication_quota_window_size_seconds * 1000)

    @property
    def measured_rate(self) -> float:
        """Bytes per second of the covered partitions."""
        return self._rate.per_second(self._clock.monotonic_ms())

    def covers(self, partition: "HostedPartition") -> bool:
        """Whether a partition's replication counts towards the rate and may be held back."""
        log = partition.log
        return log is not None and covers(
            self._side.replicas_of(log), node_id=self._node_id, partition_id=partition.topic_partition.partition
        )

    def record(self, size_bytes: int) -> None:
        """Count the bytes of a covered partition, whether its replica is in sync or not."""
        assert size_bytes >= 0, "bytes that were given back would let others exceed the rate"
        if size_bytes:
            self._rate.record(size_bytes, self._clock.monotonic_ms())

    def pause_ms(self) -> int:
        """Return how long replicas that are not in sync have to wait; 0 if the rate is not exceeded."""
        return self._rate.throttle_ms(self.bytes_per_second, self._clock.monotonic_ms())

    def holds_back(self, partition: "HostedPartition", replica_id: int) -> bool:
        """Whether the leader sends no records to a follower now."""
        return replica_id not in partition.isr and self.covers(partition) and self.pause_ms() > 0

    def holding_back(self, replica_id: int) -> "Callable[[HostedPartition], bool]":
        return lambda partition: self.holds_back(partition, replica_id)


@lru_cache(maxsize=256)
def covered_partitions(entries: tuple[str, ...], node_id: int) -> frozenset[int] | None:
    """Return the partitions of a broker in a list of `partition:broker` entries; None for all (`*`)."""
    if entries == (ALL,):
        return None
    pairs = [entry.split(":") for entry in entries if 0 < len(entry) <= MAX_ENTRY_LENGTH]
    return frozenset(int(partition_id) for partition_id, broker_id in pairs if int(broker_id) == node_id)


def covers(entries: tuple[str, ...], *, node_id: int, partition_id: int) -> bool:
    """Whether a list of throttled replicas includes a partition's replica on a broker."""
    if not entries:
        return False
    covered = covered_partitions(entries, node_id)
    return covered is None or partition_id in covered


def changed_throttle(
    throttle: ReplicationThrottle | None,
    side: ThrottledSide,
    dynamic: "tuple[Mapping[str, str], Mapping[str, str]]",
    new: Callable[[ThrottledSide, int], ReplicationThrottle],
) -> ReplicationThrottle | None:
    """Return a side's throttle according to `dynamic` (configs of the broker, of the cluster); None without a rate.

    If only the rate changes, the bytes already counted are kept.
    """
    of_broker, of_cluster = dynamic
    text = of_broker.get(side.rate_key, of_cluster.get(side.rate_key))
    bytes_per_second = UNLIMITED if text is None else int(text)
    if bytes_per_second == UNLIMITED:
        return None
    if throttle is None:
        return new(side, bytes_per_second)
    throttle.bytes_per_second = bytes_per_second
    return throttle
