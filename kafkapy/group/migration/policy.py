"""group.consumer.migration.policy: the directions in which groups may be converted. Source: KIP-848."""

from typing import Final

from kafkapy.group.settings import GroupSettings

_DISABLED: Final = "disabled"
_UPGRADES: Final = frozenset({"upgrade", "bidirectional"})
_DOWNGRADES: Final = frozenset({"downgrade", "bidirectional"})


def is_disabled(settings: GroupSettings) -> bool:
    """Whether groups are not converted, nor may KIP-848 groups have classic members."""
    return _policy(settings) == _DISABLED


def allows_upgrade(settings: GroupSettings) -> bool:
    """Whether a classic group may become a KIP-848 group."""
    return _policy(settings) in _UPGRADES


def allows_downgrade(settings: GroupSettings) -> bool:
    """Whether a KIP-848 group may become a classic group."""
    return _policy(settings) in _DOWNGRADES


def _policy(settings: GroupSettings) -> str:
    return settings.config.group_consumer_migration_policy.lower()
