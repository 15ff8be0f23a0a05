"""The configuration of share groups' membership: the broker's keys, and those set on a group itself."""

from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.group.settings import GroupSettings

SESSION_TIMEOUT: Final = "session_timeout_ms"
HEARTBEAT_INTERVAL: Final = "heartbeat_interval_ms"
ASSIGNMENT_INTERVAL: Final = "assignment_interval_ms"


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

    def value(key: str) -> int:
        own_value = own.get(f"share.{key.replace('_', '.')}")
        if own_value is None:
            return int(getattr(config, f"group_share_{key}"))
        lowest, highest = getattr(config, f"group_share_min_{key}"), getattr(config, f"group_share_max_{key}")
        return int(min(max(int(own_value), lowest), highest))

    return ShareTimes(
        value(SESSION_TIMEOUT),
        value(HEARTBEAT_INTERVAL),
        value(ASSIGNMENT_INTERVAL),
        config.group_share_initialize_retry_interval_ms,
        config.group_share_max_size,
    )
