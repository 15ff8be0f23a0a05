"""Keys of the group coordinator: classic, consumer and streams groups, and the __consumer_offsets topic."""

from collections.abc import Mapping
from functools import lru_cache

from kafkapy.config.section import Section
from kafkapy.dataclass import dataclass
from kafkapy.types import INT32_MAX


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupCoordinatorConfig(Section):
    """Kafka's keys with underscores for dots, and Kafka's defaults."""

    group_consumer_assignment_interval_ms: int = 1000
    group_consumer_assignor_offload_enable: bool = True
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_heartbeat_interval_ms: int = 5000
    group_consumer_max_assignment_interval_ms: int = 15000
    group_consumer_max_heartbeat_interval_ms: int = 15000
    group_consumer_max_session_timeout_ms: int = 60000
    group_consumer_max_size: int = INT32_MAX
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_min_assignment_interval_ms: int = 0
    group_consumer_min_heartbeat_interval_ms: int = 5000
    group_consumer_min_session_timeout_ms: int = 45000
    group_consumer_regex_refresh_interval_ms: int = 600000
    group_consumer_session_timeout_ms: int = 45000
    group_coordinator_append_linger_ms: int = -1
    group_coordinator_background_threads: int = 2
    group_coordinator_cached_buffer_max_bytes: int = 1048588
    group_coordinator_rebalance_protocols: tuple[str, ...] = ("classic", "consumer", "streams")
    group_coordinator_threads: int = 4
    group_initial_rebalance_delay_ms: int = 3000
    group_max_session_timeout_ms: int = 1800000
    group_max_size: int = INT32_MAX
    group_min_session_timeout_ms: int = 6000
    group_streams_acceptable_recovery_lag: int = 10000
    group_streams_assignment_interval_ms: int = 1000
    group_streams_assignor_offload_enable: bool = True
    group_streams_assignors: tuple[str, ...] = ("sticky",)
    group_streams_heartbeat_interval_ms: int = 5000
    group_streams_initial_rebalance_delay_ms: int = 3000
    group_streams_max_assignment_interval_ms: int = 15000
    group_streams_max_heartbeat_interval_ms: int = 15000
    group_streams_max_session_timeout_ms: int = 60000
    group_streams_max_size: int = INT32_MAX
    group_streams_max_standby_replicas: int = 2
    group_streams_max_warmup_replicas: int = 20
    group_streams_min_assignment_interval_ms: int = 0
    group_streams_min_heartbeat_interval_ms: int = 5000
    group_streams_min_session_timeout_ms: int = 45000
    group_streams_min_task_offset_interval_ms: int = 15000
    group_streams_num_standby_replicas: int = 0
    group_streams_num_warmup_replicas: int = 2
    group_streams_rack_aware_assignment_tags: tuple[str, ...] = ()
    group_streams_session_timeout_ms: int = 45000
    group_streams_task_offset_interval_ms: int = 60000
    group_streams_topology_description_plugin_class: str | None = None
    offset_metadata_max_bytes: int = 4096
    offsets_commit_timeout_ms: int = 5000
    offsets_load_buffer_size: int = 5242880
    offsets_retention_check_interval_ms: int = 600000
    offsets_retention_minutes: int = 10080
    offsets_topic_compression_codec: int = 0
    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 3
    offsets_topic_segment_bytes: int = 104857600


def group_value(config: object, own: Mapping[str, str], key: str) -> int:
    """Return a group's own value of a key, clamped to the broker's current bounds, or else the broker's default.

    config: the broker's keys. Of `consumer.session.timeout.ms` the default is group.consumer.session.timeout.ms, the
    bounds are group.consumer.min.session.timeout.ms and group.consumer.max.session.timeout.ms.
    """
    value = own.get(key)
    default, lowest, highest = _fields_of(key)
    if value is None:
        return int(getattr(config, default))
    return int(min(max(int(value), getattr(config, lowest)), getattr(config, highest)))


@lru_cache(32)
def _fields_of(key: str) -> tuple[str, str, str]:
    """Return the broker's fields of a group's key: its default and the bounds."""
    kind, _, name = key.replace(".", "_").partition("_")
    return f"group_{kind}_{name}", f"group_{kind}_min_{name}", f"group_{kind}_max_{name}"
