"""The configuration of a share group for its share partitions: its own keys, else the broker's.

A value of the group that is outside of the broker's current bounds counts as the nearest bound, as in Apache Kafka.
"""

from collections.abc import Mapping
from typing import Final

from kafkapy.config.group import group_value
from kafkapy.config.share import ShareConfig
from kafkapy.config.validators import duration_ms
from kafkapy.dataclass import dataclass
from kafkapy.share.letter_headers import TOPIC_KEY
from kafkapy.share.partition_settings import PartitionSettings

DEAD_LETTERS_SINCE: Final = 2
"""The level of share.version from which on records may go to a dead-letter topic (KIP-1191)."""
BY_DURATION: Final = "by_duration"


@dataclass(slots=True, frozen=True)
class GroupShareSettings:
    """The settings of one group. `offset_reset`: latest, earliest, or by_duration with reset_duration_ms."""

    partition: PartitionSettings
    offset_reset: str
    reset_duration_ms: int
    reads_committed: bool


def group_share_settings(config: ShareConfig, own: Mapping[str, str], share_version: int) -> GroupShareSettings:
    """Return the settings of a group with these own keys (IncrementalAlterConfigs of the group)."""
    offset_reset, _, duration = own.get("share.auto.offset.reset", "latest").lower().partition(":")
    has_dead_letters = share_version >= DEAD_LETTERS_SINCE and bool(own.get(TOPIC_KEY, "").strip())
    return GroupShareSettings(
        PartitionSettings(
            delivery_count_limit=group_value(config, own, "share.delivery.count.limit"),
            max_record_locks=group_value(config, own, "share.partition.max.record.locks"),
            record_lock_duration_ms=group_value(config, own, "share.record.lock.duration.ms"),
            is_renew_enabled=own.get("share.renew.acknowledge.enable", "true").lower() == "true",
            has_dead_letters=has_dead_letters,
        ),
        offset_reset,
        (duration_ms(duration) or 0) if offset_reset == BY_DURATION else 0,
        own.get("share.isolation.level", "read_uncommitted").lower() == "read_committed",
    )
