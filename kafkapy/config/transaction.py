"""Keys of the transaction coordinator, its topic, and the expiration of producer ids."""

from kafkapy.config.section import Section
from kafkapy.dataclass import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class TransactionConfig(Section):
    """Kafka's keys with underscores for dots, and Kafka's defaults."""

    add_partitions_to_txn_retry_backoff_max_ms: int = 100
    add_partitions_to_txn_retry_backoff_ms: int = 20
    kafkapy_producers_max: int = 1048576
    producer_id_expiration_check_interval_ms: int = 600000
    producer_id_expiration_ms: int = 86400000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10000
    transaction_max_timeout_ms: int = 900000
    transaction_partition_verification_enable: bool = True
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3600000
    transaction_state_log_load_buffer_size: int = 5242880
    transaction_state_log_min_isr: int = 2
    transaction_state_log_num_partitions: int = 50
    transaction_state_log_replication_factor: int = 3
    transaction_state_log_segment_bytes: int = 104857600
    transaction_two_phase_commit_enable: bool = False
    transactional_id_expiration_ms: int = 604800000
