"""The configuration of a share partition."""

from typing import Final

from kafkapy.dataclass import dataclass

MIN_THROTTLED_DELIVERY_COUNT: Final = 2
"""A record that was delivered once is nothing suspicious yet. As in Apache Kafka."""


@dataclass(slots=True, frozen=True)
class PartitionSettings:
    """The values of one group: its own keys (share.*), or the broker's (group.share.*). Shared by its partitions."""

    delivery_count_limit: int = 5
    max_record_locks: int = 2000
    record_lock_duration_ms: int = 30_000
    is_renew_enabled: bool = True
    has_dead_letters: bool = False
    """share.version is 2 and the group names a dead-letter topic (KIP-1191)."""

    @property
    def throttled_delivery_count(self) -> int:
        """The delivery count from which on a record comes in smaller batches: half of the attempts."""
        return max(MIN_THROTTLED_DELIVERY_COUNT, (self.delivery_count_limit + 1) // 2)

    @property
    def last_attempt_is_alone(self) -> bool:
        """A record that may be delivered once more is delivered alone, in case another one of its batch kills."""
        return self.delivery_count_limit > MIN_THROTTLED_DELIVERY_COUNT
