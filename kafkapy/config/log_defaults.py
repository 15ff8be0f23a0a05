"""The log.* keys: log directories, checkpoints, the cleaner, and the defaults that topics inherit."""

from kafkapy.config.log import MAX_DECOMPRESSED_BYTES
from kafkapy.config.section import Section
from kafkapy.dataclass import dataclass
from kafkapy.types import INT64_MAX


@dataclass(frozen=True, kw_only=True, slots=True)
class LogDefaults(Section):
    """Kafka's keys with underscores for dots, and Kafka's defaults."""

    cordoned_log_dirs: tuple[str, ...] = ()
    log_cleaner_backoff_ms: int = 15000
    log_cleaner_dedupe_buffer_size: int = 134217728
    log_cleaner_delete_retention_ms: int = 86400000
    log_cleaner_enable: bool = True
    log_cleaner_io_buffer_load_factor: float = 0.9
    log_cleaner_io_buffer_size: int = 524288
    log_cleaner_io_max_bytes_per_second: float = 1.7976931348623157e308
    log_cleaner_max_compaction_lag_ms: int = INT64_MAX
    log_cleaner_min_cleanable_ratio: float = 0.5
    log_cleaner_min_compaction_lag_ms: int = 0
    log_cleaner_threads: int = 1
    log_cleanup_policy: tuple[str, ...] = ("delete",)
    log_dir: tuple[str, ...] = ("/tmp/kafka-logs",)
    log_dir_failure_timeout_ms: int = 30000
    log_dirs: tuple[str, ...] | None = None
    log_flush_interval_messages: int = INT64_MAX
    log_flush_interval_ms: int | None = None
    log_flush_offset_checkpoint_interval_ms: int = 60000
    log_flush_scheduler_interval_ms: int = INT64_MAX
    log_flush_start_offset_checkpoint_interval_ms: int = 60000
    log_index_interval_bytes: int = 4096
    log_index_size_max_bytes: int = 10485760
    log_initial_task_delay_ms: int = 30000
    log_local_retention_bytes: int = -2
    log_local_retention_ms: int = -2
    log_message_timestamp_after_max_ms: int = 3600000
    log_message_timestamp_before_max_ms: int = INT64_MAX
    log_message_timestamp_type: str = "CreateTime"
    log_preallocate: bool = False
    log_remote_copy_lag_bytes: int = -1
    log_remote_copy_lag_ms: int = 0
    log_retention_bytes: int = -1
    log_retention_check_interval_ms: int = 300000
    log_retention_hours: int = 168
    log_retention_minutes: int | None = None
    log_retention_ms: int | None = None
    log_roll_hours: int = 168
    log_roll_jitter_hours: int = 0
    log_roll_jitter_ms: int | None = None
    log_roll_ms: int | None = None
    log_segment_bytes: int = 1073741824
    log_segment_delete_delay_ms: int = 60000
    max_decompressed_message_bytes: int = MAX_DECOMPRESSED_BYTES
    num_recovery_threads_per_data_dir: int = 2
