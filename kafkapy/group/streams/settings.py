"""The configuration of streams groups: the broker's keys, and those set on a group itself."""

from collections.abc import Mapping
from typing import Final

from kafkapy.config.group import GroupCoordinatorConfig, group_value
from kafkapy.dataclass import dataclass
from kafkapy.group.settings import GroupSettings

STANDBY_REPLICAS: Final = "num.standby.replicas"
RACK_TAGS: Final = "rack.aware.assignment.tags"


@dataclass(frozen=True, slots=True)
class StreamsSettings:
    """What a heartbeat needs, read together.

    assignment_configs: what the assignor is given, as the group's record keeps it. A change of it begins an epoch.
    """

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    initial_rebalance_delay_ms: int
    task_offset_interval_ms: int
    acceptable_recovery_lag: int
    num_warmup_replicas: int
    max_size: int
    assignment_configs: Mapping[str, str]
    assignor_name: str


def streams_settings(settings: GroupSettings, group_id: str) -> StreamsSettings:
    """Return a group's settings: its own values, clamped to the broker's current bounds, or else the broker's."""
    config, own = settings.config, settings.group_configs(group_id)
    return StreamsSettings(
        group_value(config, own, "streams.session.timeout.ms"),
        group_value(config, own, "streams.heartbeat.interval.ms"),
        group_value(config, own, "streams.assignment.interval.ms"),
        int(own.get("streams.initial.rebalance.delay.ms", config.group_streams_initial_rebalance_delay_ms)),
        _task_offset_interval_ms(config, own),
        int(own.get("streams.acceptable.recovery.lag", config.group_streams_acceptable_recovery_lag)),
        _num_warmup_replicas(config, own),
        config.group_streams_max_size,
        _assignment_configs(config, own),
        _assignor_name(config, own),
    )


def _task_offset_interval_ms(config: GroupCoordinatorConfig, own: Mapping[str, str]) -> int:
    value = own.get("streams.task.offset.interval.ms")
    if value is None:
        return config.group_streams_task_offset_interval_ms
    return max(int(value), config.group_streams_min_task_offset_interval_ms)


def _num_warmup_replicas(config: GroupCoordinatorConfig, own: Mapping[str, str]) -> int:
    value = own.get("streams.num.warmup.replicas")
    if value is None:
        return config.group_streams_num_warmup_replicas
    return min(int(value), config.group_streams_max_warmup_replicas)


def _assignment_configs(config: GroupCoordinatorConfig, own: Mapping[str, str]) -> dict[str, str]:
    replicas = own.get("streams.num.standby.replicas")
    if replicas is None:
        count = config.group_streams_num_standby_replicas
    else:
        count = min(int(replicas), config.group_streams_max_standby_replicas)
    own_tags = own.get("streams.rack.aware.assignment.tags")
    if own_tags is None:
        tags = list(config.group_streams_rack_aware_assignment_tags)
    else:
        tags = [tag.strip() for tag in own_tags.split(",") if tag.strip()]
    configs = {STANDBY_REPLICAS: str(count)}
    if tags:
        configs[RACK_TAGS] = ",".join(tags)
    return configs


def _assignor_name(config: GroupCoordinatorConfig, own: Mapping[str, str]) -> str:
    """Return the assignor that is named, or else the first of the broker's: also if the broker has lost that name."""
    name, names = own.get("streams.assignor.name"), config.group_streams_assignors
    return name if name is not None and name in names else names[0]
