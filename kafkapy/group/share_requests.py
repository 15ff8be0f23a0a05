"""Dispatch of a shard's requests and records to its share groups. Imported with the first of them.

Error messages are Kafka's, word for word: clients show them to users, who search for them.
"""

from collections.abc import Callable
from typing import Any

from kafkapy.group.decision import GroupDecision
from kafkapy.group.metadata_hash import MetadataHashes
from kafkapy.group.settings import GroupSettings
from kafkapy.group.share.group import ShareGroup
from kafkapy.group.share.history import EXPIRED, ShareHistory
from kafkapy.group.share.removal import removal_records
from kafkapy.metadata.image import MetadataImage
from kafkapy.protocol.primitives import Message


class ShareGroups:
    """The share groups among a shard's groups."""

    def __init__(
        self,
        groups: dict[str, Any],
        settings: GroupSettings,
        hashes: MetadataHashes,
        *,
        metadata: Callable[[], MetadataImage],
        wall_ms: Callable[[], int],
    ) -> None:
        """`groups` is the shard's own map of groups of any type, by id; `hashes` are shared with its other groups."""
        self._groups = groups
        self._settings = settings
        self._hashes = hashes
        self._metadata = metadata
        self._wall_ms = wall_ms
        self._history = ShareHistory(wall_ms)

    # -- the coordinator's own ------------------------------------------------------------------------------------

    def on_time(self, group: ShareGroup, now_ms: int) -> GroupDecision:
        """Decide the removal of the members whose session has expired."""
        self._history.begin_decision(EXPIRED)
        timeout_ms = group.times().session_timeout_ms
        late = group.sessions.late_members(group.log.members, now_ms, timeout_ms)
        return GroupDecision(records=removal_records(group, late, self._metadata()))

    def on_loaded(self) -> None:
        """Start after the log was replayed and before the first request."""
        self._history.load(group for group in self._groups.values() if isinstance(group, ShareGroup))

    # -- replay ---------------------------------------------------------------------------------------------------

    def replay(self, key: Message, value: Message | None) -> None:
        """Apply a ShareGroup* record. The first one creates the group, the group's tombstone removes it."""
        group_id: str = key.group_id  # type: ignore[attr-defined]
        group = self._groups.get(group_id)
        if not isinstance(group, ShareGroup):
            if value is None:
                return
            group = self._groups[group_id] = self.make(group_id)
        self._history.before_replay(group, key, value)
        group.replay(key, value)
        self._history.after_replay(group, key, value)
        if group.log.is_deleted:
            del self._groups[group_id]

    def make(self, group_id: str) -> ShareGroup:
        return ShareGroup(group_id, self._settings, self._wall_ms, self._hashes)
