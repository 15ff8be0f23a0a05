"""The replayed state of a share group. Requests read it; only replay changes it.

Each record type of the group has one method here. The log may be partly compacted, so replay accepts records in any
combination, and requests do the validation. Source: KIP-932, schemas in protocol_specs/group_coordinator.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kafkapy.group.share.member import ShareMember
from kafkapy.group.share.simple_assignor import Target
from kafkapy.group.share.states import GroupStates
from kafkapy.group.shared_rules import NO_ASSIGNMENT_EPOCH
from kafkapy.protocol.messages.share_group_current_member_assignment_key import ShareGroupCurrentMemberAssignmentKey
from kafkapy.protocol.messages.share_group_current_member_assignment_value import (
    ShareGroupCurrentMemberAssignmentValue,
)
from kafkapy.protocol.messages.share_group_member_metadata_key import ShareGroupMemberMetadataKey
from kafkapy.protocol.messages.share_group_member_metadata_value import ShareGroupMemberMetadataValue
from kafkapy.protocol.messages.share_group_metadata_key import ShareGroupMetadataKey
from kafkapy.protocol.messages.share_group_metadata_value import ShareGroupMetadataValue
from kafkapy.protocol.messages.share_group_state_partition_metadata_key import ShareGroupStatePartitionMetadataKey
from kafkapy.protocol.messages.share_group_state_partition_metadata_value import ShareGroupStatePartitionMetadataValue
from kafkapy.protocol.messages.share_group_target_assignment_member_key import ShareGroupTargetAssignmentMemberKey
from kafkapy.protocol.messages.share_group_target_assignment_member_value import ShareGroupTargetAssignmentMemberValue
from kafkapy.protocol.messages.share_group_target_assignment_metadata_key import ShareGroupTargetAssignmentMetadataKey
from kafkapy.protocol.messages.share_group_target_assignment_metadata_value import (
    ShareGroupTargetAssignmentMetadataValue,
)
from kafkapy.protocol.primitives import Message
from kafkapy.types import Uuid

INITIAL_EPOCH: Final = 1
"""The group and assignment epoch of a group before its first record."""


class ShareGroupLog:
    """The state of a group, as replayed from its records."""

    def __init__(self, group_id: str, wall_ms: Callable[[], int]) -> None:
        self.group_id = group_id
        self.group_epoch = INITIAL_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = INITIAL_EPOCH
        self.assignment_timestamp_ms = 0
        """When the target was computed (wall clock), 0 if not known or never."""
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Target] = {}
        self._targeted: dict[Uuid, set[int]] | None = None
        """What `targeted` returns; None if a target has changed since."""
        self.topic_names: dict[str, int] = {}
        """The number of members that subscribe to each topic."""
        self.states: GroupStates | None = None
        """None before the first share partition was to be initialised."""
        self.is_deleted = False
        self.is_loaded = False
        """From then on this coordinator has decided every record, and replay asserts what its decisions promise; a log
        that is being loaded may be Apache Kafka's, and partly compacted."""
        self.version = 0
        """Raised by every record: what was derived from the state is outdated then."""
        self._wall_ms = wall_ms

    def replay(self, key: Message, value: Message | None) -> None:
        """Apply one ShareGroup* record; `value` is None for a tombstone."""
        assert not self.is_deleted, f"{self.group_id} is deleted: the next record makes another group"
        self.version += 1
        _REPLAY[type(key)](self, key, value)

    def targeted(self) -> Mapping[Uuid, set[int]]:
        """Return the partitions of all targets; kept until a target changes, because each heartbeat may need them."""
        if self._targeted is None:
            self._targeted = {}
            for target in self.targets.values():
                for topic_id, partitions in target.items():
                    self._targeted.setdefault(topic_id, set()).update(partitions)
        return self._targeted

    def _replay_member(self, key: ShareGroupMemberMetadataKey, value: ShareGroupMemberMetadataValue | None) -> None:
        member = self.members.get(key.member_id)
        if value is not None:
            self._put(member, (member or ShareMember(key.member_id)).with_metadata(value))
        elif member is not None:
            del self.members[key.member_id]
            count_names(self.topic_names, member, -1)

    def _replay_current(
        self, key: ShareGroupCurrentMemberAssignmentKey, value: ShareGroupCurrentMemberAssignmentValue | None
    ) -> None:
        member = self.members.get(key.member_id)
        if value is not None:
            assert not self.is_loaded or member is not None, f"{key.member_id} is assigned partitions and no member"
            self._put(member, (member or ShareMember(key.member_id)).with_assignment(value))
        elif member is not None:
            self._put(member, member.without_assignment())

    def _replay_epoch(self, key: ShareGroupMetadataKey, value: ShareGroupMetadataValue | None) -> None:
        if value is None:
            assert not self.is_loaded or not self.members, f"{self.group_id} is deleted with members"
            self.is_deleted = True
            return
        assert not self.is_loaded or value.epoch >= self.group_epoch, f"{self.group_id} goes back to {value.epoch}"
        self.group_epoch = value.epoch
        self.metadata_hash = value.metadata_hash

    def _replay_target(
        self, key: ShareGroupTargetAssignmentMemberKey, value: ShareGroupTargetAssignmentMemberValue | None
    ) -> None:
        self._targeted = None
        if value is None:
            self.targets.pop(key.member_id, None)
        else:
            assert not self.is_loaded or key.member_id in self.members, f"{key.member_id} has a target and is no member"
            # each partition once: a log that another broker wrote is not trusted with it, and the assignor relies on it
            self.targets[key.member_id] = {
                topic.topic_id: tuple(dict.fromkeys(topic.partitions)) for topic in value.topic_partitions
            }

    def _replay_target_epoch(
        self, key: ShareGroupTargetAssignmentMetadataKey, value: ShareGroupTargetAssignmentMetadataValue | None
    ) -> None:
        self.assignment_epoch = NO_ASSIGNMENT_EPOCH if value is None else value.assignment_epoch
        is_current = self.assignment_epoch in (NO_ASSIGNMENT_EPOCH, self.group_epoch)
        assert not self.is_loaded or is_current, "a target of another epoch"
        self.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp

    def _replay_states(
        self, key: ShareGroupStatePartitionMetadataKey, value: ShareGroupStatePartitionMetadataValue | None
    ) -> None:
        self.states = None if value is None else GroupStates.from_value(value, self._wall_ms())

    def _put(self, before: ShareMember | None, after: ShareMember) -> None:
        self.members[after.member_id] = after
        if before is not None:
            count_names(self.topic_names, before, -1)
        count_names(self.topic_names, after, 1)


def count_names(counts: dict[str, int], member: ShareMember, change: int) -> None:
    """Add a member's topic names to the counts, or take them away; a name that nobody subscribes to is dropped."""
    for name in member.subscribed_topic_names:
        count = counts.get(name, 0) + change
        assert count >= 0, f"nobody is counted who subscribes to {name}"
        if count > 0:
            counts[name] = count
        else:
            counts.pop(name, None)


_REPLAY: Final[Mapping[type[Message], Callable[[ShareGroupLog, Any, Any], None]]] = {
    ShareGroupMemberMetadataKey: ShareGroupLog._replay_member,
    ShareGroupCurrentMemberAssignmentKey: ShareGroupLog._replay_current,
    ShareGroupMetadataKey: ShareGroupLog._replay_epoch,
    ShareGroupTargetAssignmentMemberKey: ShareGroupLog._replay_target,
    ShareGroupTargetAssignmentMetadataKey: ShareGroupLog._replay_target_epoch,
    ShareGroupStatePartitionMetadataKey: ShareGroupLog._replay_states,
}
