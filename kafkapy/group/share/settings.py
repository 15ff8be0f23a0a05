"""The configuration of share groups' membership: the broker's keys, and those set on a group itself."""

from kafkapy.config.group import group_value
from kafkapy.dataclass import dataclass
from kafkapy.group.settings import GroupSettings


@dataclass(frozen=True, slots=True)
class ShareTimes:
    """What a heartbeat needs, read together. All in milliseconds."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    initialize_retry_interval_ms: int
    max_size: int


def share_times(settings: GroupSettings, group_id: str) -> ShareTimes:
    """Return a group's times: its own values, clamped to the broker's current bounds, or else the broker's."""
    config, own = settings.share_config(), settings.group_configs(group_id)
    return ShareTimes(
        group_value(config, own, "share.session.timeout.ms"),
        group_value(config, own, "share.heartbeat.interval.ms"),
        group_value(config, own, "share.assignment.interval.ms"),
        config.group_share_initialize_retry_interval_ms,
        config.group_share_max_size,
    )
