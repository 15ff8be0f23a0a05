"""A topic's log configuration: every key of Kafka 4.4.0's topic configs, typed, with Kafka's defaults.

`LogConfig()` is the configuration of a topic without overrides on a broker without settings.
`kafkapy.config.topic.log_config` applies a broker's defaults and a topic's overrides.
"""

from typing import Final

from kafkapy.config.section import Section
from kafkapy.dataclass import dataclass
from kafkapy.types import INT64_MAX

WEEK_MS: Final = 604800000
DAY_MS: Final = 86400000
MAX_DECOMPRESSED_BYTES: Final = 2_147_483_639
"""The default of max.decompressed.message.bytes: the largest array of a JVM."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LogConfig(Section):
    """A partition's log settings: segment roll, retention, compaction, flushes and record checks."""

    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = DAY_MS
    errors_deadletterqueue_group_enable: bool = False
    file_delete_delay_ms: int = 60000
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    internal_segment_bytes: int | None = None
    """For tests, below the minimum of segment.bytes; `log_config` copies it to segment_bytes."""
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    max_compaction_lag_ms: int = INT64_MAX
    max_decompressed_message_bytes: int = MAX_DECOMPRESSED_BYTES
    max_message_bytes: int = 1048588
    message_timestamp_after_max_ms: int = 3600000
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    remote_copy_lag_bytes: int = -1
    remote_copy_lag_ms: int = 0
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_storage_enable: bool = False
    retention_bytes: int = -1
    retention_ms: int = WEEK_MS
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10485760
    segment_jitter_ms: int = 0
    segment_ms: int = WEEK_MS
    unclean_leader_election_enable: bool = False

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleted_by_retention(self) -> bool:
        return "delete" in self.cleanup_policy
