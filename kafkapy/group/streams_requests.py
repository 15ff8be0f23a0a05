"""Dispatch of a shard's records to its streams groups. Imported with the first of them; no request is served."""

from typing import Any

from kafkapy.group.decision import GroupDecision
from kafkapy.group.settings import GroupSettings
from kafkapy.group.streams.group import StreamsGroup
from kafkapy.protocol.primitives import Message


class StreamsGroups:
    """The streams groups among a shard's groups."""

    def __init__(self, groups: dict[str, Any], settings: GroupSettings) -> None:
        """`groups` is the shard's own map of groups of any type, by id."""
        self._groups = groups
        self._settings = settings

    def on_time(self, group: StreamsGroup, now_ms: int) -> GroupDecision:
        """Decide the removal of the members whose session has expired."""
        timeout_ms = self._settings.streams_session_timeout_ms(group.group_id)
        return GroupDecision(
            records=group.removal_records(group.sessions.late_members(group.members, now_ms, timeout_ms))
        )

    def replay(self, key: Message, value: Message | None) -> None:
        """Apply a StreamsGroup* record. The first one creates the group, the group's tombstone removes it."""
        group_id: str = key.group_id  # type: ignore[attr-defined]
        group = self._groups.get(group_id)
        if not isinstance(group, StreamsGroup):
            if value is None:
                return
            group = self._groups[group_id] = StreamsGroup(group_id)
        group.replay(key, value)
        if group.is_deleted:
            del self._groups[group_id]
