"""Keys of the KRaft quorum, the metadata log and its snapshots, and the broker's session at the controller."""

from kafkapy.config.section import Section
from kafkapy.dataclass import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class QuorumConfig(Section):
    """Kafka's keys with underscores for dots, and Kafka's defaults."""

    broker_heartbeat_interval_ms: int = 2000
    broker_session_timeout_ms: int = 9000
    controller_performance_always_log_threshold_ms: int = 2000
    controller_performance_sample_period_ms: int = 60000
    controller_quorum_append_linger_ms: int = 25
    controller_quorum_auto_join_enable: bool = False
    controller_quorum_bootstrap_servers: tuple[str, ...] = ()
    controller_quorum_election_backoff_max_ms: int = 1000
    controller_quorum_election_timeout_ms: int = 1000
    controller_quorum_fetch_max_bytes: int = 1048576
    controller_quorum_fetch_snapshot_max_bytes: int = 1048576
    controller_quorum_fetch_timeout_ms: int = 2000
    controller_quorum_request_timeout_ms: int = 2000
    controller_quorum_retry_backoff_ms: int = 20
    controller_quorum_voters: tuple[str, ...] = ()
    initial_broker_registration_timeout_ms: int = 60000
    internal_metadata_delete_delay_millis: int = 60000
    internal_metadata_log_segment_bytes: int | None = None
    internal_metadata_max_batch_size_in_bytes: int = 8388608
    metadata_log_dir: str | None = None
    metadata_log_max_record_bytes_between_snapshots: int = 20971520
    metadata_log_max_snapshot_interval_ms: int = 3600000
    metadata_log_segment_bytes: int = 1073741824
    metadata_log_segment_ms: int = 604800000
    metadata_max_idle_interval_ms: int = 500
    metadata_max_retention_bytes: int = 104857600
    metadata_max_retention_ms: int = 604800000
