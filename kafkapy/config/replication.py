"""Keys of replication: fetching from leaders, in-sync replicas, leader balance, purgatories."""

from kafkapy.config.section import Section
from kafkapy.dataclass import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplicationConfig(Section):
    """Kafka's keys with underscores for dots, and Kafka's defaults."""

    auto_leader_rebalance_enable: bool = True
    controller_socket_timeout_ms: int = 30000
    default_replication_factor: int = 1
    delete_records_purgatory_purge_interval_requests: int = 1
    fetch_purgatory_purge_interval_requests: int = 1000
    follower_fetch_last_tiered_offset_enable: bool = False
    leader_imbalance_check_interval_seconds: int = 300
    min_insync_replicas: int = 1
    num_replica_alter_log_dirs_threads: int | None = None
    num_replica_fetchers: int = 1
    producer_purgatory_purge_interval_requests: int = 1000
    replica_fetch_backoff_ms: int = 1000
    replica_fetch_max_bytes: int = 1048576
    replica_fetch_min_bytes: int = 1
    replica_fetch_response_max_bytes: int = 10485760
    replica_fetch_wait_max_ms: int = 500
    replica_high_watermark_checkpoint_interval_ms: int = 5000
    replica_lag_time_max_ms: int = 30000
    replica_selector_class: str | None = None
    replica_socket_receive_buffer_bytes: int = 65536
    replica_socket_timeout_ms: int = 30000
    unclean_leader_election_enable: bool = False
    unclean_leader_election_interval_ms: int = 300000
