"""The node's identity, and keys that belong to no single subsystem: roles, ids, topic defaults, start and stop."""

from kafkapy.config.section import Section
from kafkapy.dataclass import dataclass
from kafkapy.types import INT64_MAX

REMOVED_IN = 4
"""The major release that removed the versions which handlers.legacy serves."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeConfig(Section):
    """Kafka's keys with underscores for dots, and Kafka's defaults."""

    node_id: int
    process_roles: tuple[str, ...]
    alter_config_policy_class_name: str | None = None
    auto_create_topics_enable: bool = True
    background_threads: int = 10
    broker_id: int = -1
    broker_rack: str | None = None
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    config_providers: tuple[str, ...] = ()
    controlled_shutdown_enable: bool = True
    create_topic_policy_class_name: str | None = None
    delete_topic_enable: bool = True
    fetch_max_bytes: int = 57671680
    kafkapy_admin_listener: str | None = None
    kafkapy_imitated_release: str | None = None
    kafkapy_legacy_clients_enable: bool = False
    kafkapy_metrics_groups: str = ".*"
    kafkapy_metrics_names: str = "strimzi"
    kafkapy_metrics_rules: str | None = None
    kafkapy_metrics_topics: str = ".*"
    kafkapy_telemetry_otlp_endpoint: str | None = None
    max_incremental_fetch_session_cache_slots: int = 1000
    max_request_partition_size_limit: int = 2000
    message_max_bytes: int = 1048588
    num_io_threads: int = 8
    num_partitions: int = 1
    request_timeout_ms: int = 30000
    server_max_startup_time_ms: int = INT64_MAX
    unstable_api_versions_enable: bool = False
    unstable_feature_versions_enable: bool = False

    @property
    def serves_removed_versions(self) -> bool:
        """Whether versions of APIs are served that Apache Kafka 4 has removed."""
        release = self.kafkapy_imitated_release
        return self.kafkapy_legacy_clients_enable or (
            release is not None and int(release.partition(".")[0]) < REMOVED_IN
        )
