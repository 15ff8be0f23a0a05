"""Keys of share groups and their coordinator."""

from kafkapy.config.section import Section
from kafkapy.dataclass import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ShareConfig(Section):
    """Kafka's keys with underscores for dots, and Kafka's defaults."""

    errors_deadletterqueue_auto_create_topics_enable: bool = False
    errors_deadletterqueue_topic_name_prefix: str = "dlq."
    group_share_assignment_interval_ms: int = 1000
    group_share_assignor_offload_enable: bool = True
    group_share_assignors: tuple[str, ...] = ("simple",)
    group_share_delivery_count_limit: int = 5
    group_share_dlq_manager_class_name: str = "org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager"
    group_share_heartbeat_interval_ms: int = 5000
    group_share_initialize_retry_interval_ms: int = 30000
    group_share_max_assignment_interval_ms: int = 15000
    group_share_max_delivery_count_limit: int = 10
    group_share_max_heartbeat_interval_ms: int = 15000
    group_share_max_partition_max_record_locks: int = 4000
    group_share_max_record_lock_duration_ms: int = 60000
    group_share_max_session_timeout_ms: int = 60000
    group_share_max_share_sessions: int = 2000
    group_share_max_size: int = 200
    group_share_min_assignment_interval_ms: int = 0
    group_share_min_delivery_count_limit: int = 2
    group_share_min_heartbeat_interval_ms: int = 5000
    group_share_min_partition_max_record_locks: int = 100
    group_share_min_record_lock_duration_ms: int = 15000
    group_share_min_session_timeout_ms: int = 45000
    group_share_partition_max_record_locks: int = 2000
    group_share_persister_class_name: str = "org.apache.kafka.server.share.persister.DefaultStatePersister"
    group_share_record_lock_duration_ms: int = 30000
    group_share_session_timeout_ms: int = 45000
    share_coordinator_append_linger_ms: int = -1
    share_coordinator_cached_buffer_max_bytes: int = 1048588
    share_coordinator_cold_partition_snapshot_interval_ms: int = 300000
    share_coordinator_load_buffer_size: int = 5242880
    share_coordinator_snapshot_update_records_per_snapshot: int = 500
    share_coordinator_state_topic_compression_codec: int = 0
    share_coordinator_state_topic_min_isr: int = 2
    share_coordinator_state_topic_num_partitions: int = 50
    share_coordinator_state_topic_prune_interval_ms: int = 300000
    share_coordinator_state_topic_replication_factor: int = 3
    share_coordinator_state_topic_segment_bytes: int = 104857600
    share_coordinator_threads: int = 1
    share_coordinator_write_timeout_ms: int = 5000
    share_fetch_purgatory_purge_interval_requests: int = 1000
