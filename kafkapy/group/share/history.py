"""Records the rebalance history of share groups from their records as they are replayed.

A rebalance begins with a new group epoch and ends with its target assignment. Records replayed while the log is loading
are not recorded: `is_telling` is set afterwards.
"""

from collections.abc import Callable, Iterable

from kafkapy.group.history import MemberShare, RebalanceHistory
from kafkapy.group.share.group import ShareGroup
from kafkapy.protocol.messages.share_group_member_metadata_key import ShareGroupMemberMetadataKey
from kafkapy.protocol.messages.share_group_member_metadata_value import ShareGroupMemberMetadataValue
from kafkapy.protocol.messages.share_group_metadata_key import ShareGroupMetadataKey
from kafkapy.protocol.messages.share_group_metadata_value import ShareGroupMetadataValue
from kafkapy.protocol.messages.share_group_target_assignment_metadata_value import (
    ShareGroupTargetAssignmentMetadataValue,
)
from kafkapy.protocol.primitives import Message

LEFT = "left"
EXPIRED = "was not heard of for its session timeout"
PARTITIONS_CHANGED = (
    "a subscribed topic was created or deleted, has other partitions now, or their states are initialised"
)


class ShareHistory:
    """Observes the replay of a shard's share groups."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self.is_telling = False
        self._wall_ms = wall_ms
        self._farewell = LEFT
        self._reasons: list[str] = []

    def load(self, groups: Iterable[ShareGroup]) -> None:
        """Start the history after the log was replayed, from the members' current targets."""
        self.is_telling = True
        for group in groups:
            group.history = RebalanceHistory(_shares(group))

    def begin_decision(self, farewell: str = LEFT) -> None:
        """Begin the records of a new decision; `farewell` is the reason for removed members, if any."""
        self._farewell = farewell
        self._reasons = []

    def before_replay(self, group: ShareGroup, key: Message, value: Message | None) -> None:
        """Observe a record before it is applied to the group."""
        if not self.is_telling:
            return
        if type(key) is ShareGroupMemberMetadataKey:
            assert value is None or type(value) is ShareGroupMemberMetadataValue
            reason = self._reason(group, key.member_id, value)
            if reason is not None:
                self._reasons.append(reason)
        elif type(value) is ShareGroupMetadataValue and value.epoch > group.log.group_epoch:
            for reason in self._reasons or [PARTITIONS_CHANGED]:
                group.history.begin(reason, self._wall_ms())

    def after_replay(self, group: ShareGroup, key: Message, value: Message | None) -> None:
        """Observe a record after it was applied to the group."""
        if not self.is_telling or value is None:
            return
        if type(value) is ShareGroupTargetAssignmentMetadataValue:
            group.history.end(value.assignment_epoch, _shares(group), self._wall_ms())
        elif type(key) is ShareGroupMetadataKey and not group.log.members:
            group.history.end(group.log.group_epoch, (), self._wall_ms())

    def _reason(self, group: ShareGroup, member_id: str, value: ShareGroupMemberMetadataValue | None) -> str | None:
        member = group.log.members.get(member_id)
        if value is None:
            return None if member is None else f"member {_name(member_id, member.client_id)} {self._farewell}"
        name = _name(member_id, value.client_id)
        if member is None:
            return f"member {name} joined"
        is_same = member.subscribed_topic_names == frozenset(value.subscribed_topic_names)
        return None if is_same else f"member {name} changed its subscription"


def _name(member_id: str, client_id: str) -> str:
    return f"{member_id} (client {client_id})" if client_id else member_id


def _shares(group: ShareGroup) -> list[MemberShare]:
    return [
        MemberShare(member_id, None, member.client_id, member.client_host, group.log.targets.get(member_id, {}))
        for member_id, member in group.log.members.items()
    ]
