"""Records the rebalance history of KIP-848 groups from their records as they are replayed.

A rebalance begins with a new group epoch and ends with its target assignment; members may still have to revoke
partitions then. Records replayed while the log is loading are not recorded: `is_telling` is set afterwards.
"""

from collections.abc import Callable, Iterable

from kafkapy.group.consumer.group import ConsumerGroup
from kafkapy.group.consumer.member import ConsumerMember
from kafkapy.group.history import MemberShare, RebalanceHistory
from kafkapy.protocol.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from kafkapy.protocol.messages.consumer_group_member_metadata_value import ConsumerGroupMemberMetadataValue
from kafkapy.protocol.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from kafkapy.protocol.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from kafkapy.protocol.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from kafkapy.protocol.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)
from kafkapy.protocol.primitives import Message

LEFT = "left"
EXPIRED = "was not heard of for its session timeout, or did not give up partitions in its rebalance timeout"
TOPICS_CHANGED = "a subscribed topic was created or deleted, or has other partitions or racks now"


class ConsumerHistory:
    """Observes the replay of a shard's KIP-848 groups."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self.is_telling = False
        self._wall_ms = wall_ms
        self._farewell = LEFT
        self._reasons: list[str] = []

    def load(self, groups: Iterable[ConsumerGroup]) -> None:
        """Start the history after the log was replayed, from the members' current targets."""
        self.is_telling = True
        for group in groups:
            group.continue_history(RebalanceHistory(_shares(group)))

    def begin_decision(self, farewell: str = LEFT) -> None:
        """Begin the records of a new decision; `farewell` is the reason for removed members, if any."""
        self._farewell = farewell
        self._reasons = []

    def before_replay(self, group: ConsumerGroup, key: Message, value: Message | None) -> None:
        """Observe a record before it is applied to the group."""
        if not self.is_telling:
            return
        if type(key) is ConsumerGroupMemberMetadataKey:
            assert value is None or type(value) is ConsumerGroupMemberMetadataValue
            reason = self._reason(group.log.members.get(key.member_id), key.member_id, value)
            if reason is not None:
                self._reasons.append(reason)
        elif type(value) is ConsumerGroupMetadataValue and value.epoch > group.log.group_epoch:
            for reason in self._reasons or [TOPICS_CHANGED]:
                group.history.begin(reason, self._wall_ms())

    def after_replay(self, group: ConsumerGroup, key: Message, value: Message | None) -> None:
        """Observe a record after it was applied to the group."""
        if not self.is_telling or value is None:
            return
        is_target = type(key) is ConsumerGroupTargetAssignmentMetadataKey
        if type(value) is ConsumerGroupTargetAssignmentMetadataValue and is_target:
            group.history.end(value.assignment_epoch, _shares(group), self._wall_ms())
        elif type(key) is ConsumerGroupMetadataKey and not group.log.members:
            group.history.end(group.log.group_epoch, (), self._wall_ms())

    def _reason(
        self, member: ConsumerMember | None, member_id: str, value: ConsumerGroupMemberMetadataValue | None
    ) -> str | None:
        if value is None:
            return None if member is None else f"member {_name(member_id, member.client_id)} {self._farewell}"
        name = _name(member_id, value.client_id)
        if member is None:
            return f"member {name} joined"
        after = member.with_metadata(value)
        is_same = (
            member.subscribed_topic_names == after.subscribed_topic_names
            and member.subscribed_topic_regex == after.subscribed_topic_regex
        )
        return None if is_same else f"member {name} changed its subscription"


def _name(member_id: str, client_id: str) -> str:
    return f"{member_id} (client {client_id})" if client_id else member_id


def _shares(group: ConsumerGroup) -> list[MemberShare]:
    return [
        MemberShare(
            member_id, member.instance_id, member.client_id, member.client_host, group.log.targets.get(member_id, {})
        )
        for member_id, member in group.log.members.items()
    ]
