"""Keys of tiered storage (KIP-405). They are parsed and checked, but the feature is not supported."""

from kafkapy.config.section import Section
from kafkapy.dataclass import dataclass
from kafkapy.types import INT64_MAX


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteStorageConfig(Section):
    """Kafka's keys with underscores for dots, and Kafka's defaults."""

    remote_fetch_max_wait_ms: int = 500
    remote_list_offsets_request_timeout_ms: int = 30000
    remote_log_index_file_cache_total_size_bytes: int = 1073741824
    remote_log_index_file_cache_ttl_ms: int = 900000
    remote_log_manager_copier_thread_pool_size: int = 10
    remote_log_manager_copy_max_bytes_per_second: int = INT64_MAX
    remote_log_manager_copy_quota_window_num: int = 11
    remote_log_manager_copy_quota_window_size_seconds: int = 1
    remote_log_manager_expiration_thread_pool_size: int = 10
    remote_log_manager_fetch_max_bytes_per_second: int = INT64_MAX
    remote_log_manager_fetch_quota_window_num: int = 11
    remote_log_manager_fetch_quota_window_size_seconds: int = 1
    remote_log_manager_follower_thread_pool_size: int = 2
    remote_log_manager_task_interval_ms: int = 30000
    remote_log_manager_task_retry_backoff_max_ms: int = 30000
    remote_log_manager_task_retry_backoff_ms: int = 500
    remote_log_manager_task_retry_jitter: float = 0.2
    remote_log_manager_thread_pool_size: int = 2
    remote_log_metadata_custom_metadata_max_bytes: int = 128
    remote_log_metadata_manager_class_name: str = (
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"
    )
    remote_log_metadata_manager_class_path: str | None = None
    remote_log_metadata_manager_impl_prefix: str = "rlmm.config."
    remote_log_metadata_manager_listener_name: str | None = None
    remote_log_reader_max_pending_tasks: int = 100
    remote_log_reader_threads: int = 10
    remote_log_storage_manager_class_name: str | None = None
    remote_log_storage_manager_class_path: str | None = None
    remote_log_storage_manager_impl_prefix: str = "rsm.config."
    remote_log_storage_system_enable: bool = False
