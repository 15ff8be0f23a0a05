"""The configuration of groups: the broker's current keys, and the keys set on a group itself."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from kafkapy.config.group import GroupCoordinatorConfig, group_value
from kafkapy.group.counts import GroupCounts

if TYPE_CHECKING:
    from kafkapy.config.share import ShareConfig

OFFSETS_TOPIC: Final = "__consumer_offsets"
"""The topic that holds the coordinator's records (records.py)."""
MAX_NAMES: Final = 5_000
"""Topics that a member may subscribe to by name. Every change of a member is written with all of them."""
MAX_NAMES_OF_GROUP: Final = 50_000
"""Different names of all members, which a change of any member goes through: 10 ms.

Deviation: Apache Kafka bounds neither. Here more are refused with INVALID_REQUEST, because 63 members with 19,000 names
each kept all other clients of the coordinator waiting for 1.1 s."""


class GroupSettings:
    """Read at every use: the broker's keys may change at run time, and the groups' keys are part of the metadata."""

    def __init__(
        self,
        config: Callable[[], GroupCoordinatorConfig],
        group_configs: Callable[[str], Mapping[str, str]] = lambda group_id: {},
        share_config: "Callable[[], ShareConfig] | None" = None,
    ) -> None:
        """`group_configs(group_id)` returns the keys set on that group by IncrementalAlterConfigs.

        `share_config` returns the broker's keys of share groups, by default Kafka's defaults.
        """
        self._config = config
        self._group_configs = group_configs
        self._share_config = share_config
        self.counts = GroupCounts()
        """Of all groups that have these settings, in each partition that is coordinated here."""

    @classmethod
    def fixed(cls, config: GroupCoordinatorConfig | None = None) -> "GroupSettings":
        """Return settings that never change: `config`, or Kafka's defaults if it is None."""
        fixed_config = config or GroupCoordinatorConfig()
        return cls(lambda: fixed_config)

    @property
    def config(self) -> GroupCoordinatorConfig:
        """The broker's keys, such as `settings.config.group_min_session_timeout_ms`."""
        return self._config()

    def share_config(self) -> "ShareConfig":
        """Return the broker's keys of share groups (group/share/settings.py)."""
        if self._share_config is None:
            from kafkapy.config.share import ShareConfig

            config = ShareConfig()
            self._share_config = lambda: config
        return self._share_config()

    def group_configs(self, group_id: str) -> Mapping[str, str]:
        """Return the keys set on the group itself."""
        return self._group_configs(group_id)

    def consumer_times_ms(self, group_id: str) -> tuple[int, int]:
        """Return a group's session time-out and heartbeat interval: read by every heartbeat, so together."""
        config, own = self._config(), self._group_configs(group_id)
        if not own:
            return config.group_consumer_session_timeout_ms, config.group_consumer_heartbeat_interval_ms
        session_timeout_ms = group_value(config, own, "consumer.session.timeout.ms")
        return session_timeout_ms, group_value(config, own, "consumer.heartbeat.interval.ms")

    def consumer_session_timeout_ms(self, group_id: str) -> int:
        return self.consumer_times_ms(group_id)[0]

    def consumer_assignment_interval_ms(self, group_id: str) -> int:
        return group_value(self._config(), self._group_configs(group_id), "consumer.assignment.interval.ms")
