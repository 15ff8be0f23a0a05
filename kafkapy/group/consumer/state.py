"""The replayed state of a KIP-848 group. Requests read it; only replay changes it.

Each record type of the group has one method here. The log may be partly compacted, so replay accepts records in any
combination, and requests do the validation. Source: KIP-848, schemas in protocol_specs/group_coordinator.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, Final

from kafkapy.group.assignors.spec import EMPTY_ASSIGNMENT, Assignment
from kafkapy.group.consumer.member import ConsumerMember
from kafkapy.group.consumer.subscriptions import ResolvedRegex, Subscriptions
from kafkapy.protocol.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from kafkapy.protocol.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
)
from kafkapy.protocol.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from kafkapy.protocol.messages.consumer_group_member_metadata_value import ConsumerGroupMemberMetadataValue
from kafkapy.protocol.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from kafkapy.protocol.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from kafkapy.protocol.messages.consumer_group_partition_metadata_key import ConsumerGroupPartitionMetadataKey
from kafkapy.protocol.messages.consumer_group_regular_expression_key import ConsumerGroupRegularExpressionKey
from kafkapy.protocol.messages.consumer_group_regular_expression_value import ConsumerGroupRegularExpressionValue
from kafkapy.protocol.messages.consumer_group_target_assignment_member_key import ConsumerGroupTargetAssignmentMemberKey
from kafkapy.protocol.messages.consumer_group_target_assignment_member_value import (
    ConsumerGroupTargetAssignmentMemberValue,
)
from kafkapy.protocol.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from kafkapy.protocol.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)
from kafkapy.protocol.primitives import Message
from kafkapy.types import Uuid

INITIAL_EPOCH: Final = 1
"""The group and assignment epoch of a group before its first record."""


class GroupState(Enum):
    """The values are the names in ConsumerGroupDescribe and ListGroups."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """The target assignment's epoch is below the group epoch."""
    RECONCILING = "Reconciling"
    """Not all members have reached their target assignment."""
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroupLog:
    """The state of a group, as replayed from its records."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = INITIAL_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = INITIAL_EPOCH
        self.assignment_timestamp_ms = 0
        """When the target was computed (wall clock), 0 if not known."""
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        """By instance id: the member id."""
        self.targets: dict[str, Assignment] = {}
        self.subscriptions = Subscriptions()
        self.has_partition_metadata_record = False
        self.is_deleted = False
        self.is_loaded = False
        """From then on this coordinator has decided every record, and replay asserts what its decisions promise; a log
        that is being loaded may be Apache Kafka's, and partly compacted."""
        self._owners: dict[Uuid, dict[int, str]] = {}

    @property
    def state(self) -> GroupState:
        if self.is_deleted:
            return GroupState.DEAD
        if not self.members:
            return GroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = self.static_members.get(instance_id) if instance_id is not None else None
        return None if member_id is None else self.members.get(member_id)

    def owner(self, topic_id: Uuid, partition: int) -> str | None:
        """Return the id of the member that has the partition assigned or must still revoke it, or None."""
        return self._owners.get(topic_id, {}).get(partition)

    def is_owned(self, topic_id: Uuid, partition: int) -> bool:
        return self.owner(topic_id, partition) is not None

    def target_of(self, member: ConsumerMember) -> Assignment:
        """Return the member's target. A static member's is found by instance id: it may have just been replaced."""
        member_id: str | None = member.member_id
        if member.instance_id is not None:
            member_id = self.static_members.get(member.instance_id)
        return EMPTY_ASSIGNMENT if member_id is None else self.targets.get(member_id, EMPTY_ASSIGNMENT)

    def assignor_counts(self) -> dict[str, int]:
        """Return the number of members that name each assignor."""
        counts: dict[str, int] = {}
        for member in self.members.values():
            if member.server_assignor is not None:
                counts[member.server_assignor] = counts.get(member.server_assignor, 0) + 1
        return counts

    def replay(self, key: Message, value: Message | None) -> None:
        """Apply one ConsumerGroup* record; `value` is None for a tombstone."""
        assert not self.is_deleted, f"{self.group_id} is deleted: the next record makes another group"
        _REPLAY[type(key)](self, key, value)

    def _replay_member(
        self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
    ) -> None:
        member = self.members.get(key.member_id)
        if value is not None:
            owner = self.static_member(value.instance_id)
            had_it = member is not None and member.instance_id == value.instance_id  # a log may have it twice
            is_free = owner is None or owner is member or had_it
            assert not self.is_loaded or is_free, f"{value.instance_id} belongs to another member"
            self._put(member, (member or ConsumerMember(key.member_id)).with_metadata(value))
        elif member is not None:
            self._remove(member)

    def _replay_current(
        self, key: ConsumerGroupCurrentMemberAssignmentKey, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        member = self.members.get(key.member_id)
        if value is not None:
            assert not self.is_loaded or member is not None, f"{key.member_id} is assigned partitions and no member"
            self._put(member, (member or ConsumerMember(key.member_id)).with_assignment(value))
        elif member is not None:
            self._put(member, member.without_assignment())

    def _replay_epoch(self, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None) -> None:
        if value is None:
            assert not self.is_loaded or not self.members, f"{self.group_id} is deleted with members"
            self.is_deleted = True
            return
        assert not self.is_loaded or value.epoch >= self.group_epoch, f"{self.group_id} goes back to {value.epoch}"
        self.group_epoch = value.epoch
        self.metadata_hash = value.metadata_hash

    def _replay_target(
        self, key: ConsumerGroupTargetAssignmentMemberKey, value: ConsumerGroupTargetAssignmentMemberValue | None
    ) -> None:
        if value is None:
            self.targets.pop(key.member_id, None)
        else:
            assert not self.is_loaded or key.member_id in self.members, f"{key.member_id} has a target and is no member"
            self.targets[key.member_id] = {
                topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions
            }

    def _replay_target_epoch(
        self, key: ConsumerGroupTargetAssignmentMetadataKey, value: ConsumerGroupTargetAssignmentMetadataValue | None
    ) -> None:
        self.assignment_epoch = -1 if value is None else value.assignment_epoch
        assert not self.is_loaded or self.assignment_epoch in (-1, self.group_epoch), "a target of another epoch"
        self.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp

    def _replay_regex(
        self, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
    ) -> None:
        resolved = self.subscriptions.resolved
        if value is None:
            resolved.pop(key.regular_expression, None)
        else:
            is_known = key.regular_expression in self.subscriptions.regexes
            assert not self.is_loaded or is_known, f"nobody subscribes to {key.regular_expression}"
            resolved[key.regular_expression] = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)

    def _replay_partition_metadata(self, key: ConsumerGroupPartitionMetadataKey, value: Message | None) -> None:
        self.has_partition_metadata_record = value is not None

    def _put(self, before: ConsumerMember | None, after: ConsumerMember) -> None:
        self.members[after.member_id] = after
        owns_the_same = before is not None and _owns_as(before, after)
        if before is not None:
            self.subscriptions.remove(before.subscribed_topic_names, before.subscribed_topic_regex)
            self._forget_instance(before)
            if not owns_the_same:
                self._disown(before)
        self.subscriptions.add(after.subscribed_topic_names, after.subscribed_topic_regex)
        if not owns_the_same:
            for topic_id, partition in _partitions(after):
                self._owners.setdefault(topic_id, {})[partition] = after.member_id
        if after.instance_id is not None:
            self.static_members[after.instance_id] = after.member_id

    def _remove(self, member: ConsumerMember) -> None:
        assert self.members[member.member_id] is member, f"{member.member_id} is counted as it was before"
        del self.members[member.member_id]
        self.subscriptions.remove(member.subscribed_topic_names, member.subscribed_topic_regex)
        self._disown(member)
        self._forget_instance(member)

    def _forget_instance(self, member: ConsumerMember) -> None:
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]

    def _disown(self, member: ConsumerMember) -> None:
        for topic_id, partition in _partitions(member):
            owners = self._owners.get(topic_id, {})
            if owners.get(partition) == member.member_id:
                del owners[partition]
                if not owners:
                    del self._owners[topic_id]


def _owns_as(before: ConsumerMember, after: ConsumerMember) -> bool:
    """Return whether a record of a member says nothing of its partitions: in a log that gave one of them to another
    member meanwhile, it does not take it back.
    """
    return before.assigned is after.assigned and before.pending_revocation is after.pending_revocation


def _partitions(member: ConsumerMember) -> Iterator[tuple[Uuid, int]]:
    for owned in (member.assigned, member.pending_revocation):
        for topic_id, partitions in owned.items():
            for partition in partitions:
                yield topic_id, partition


_REPLAY: Final[Mapping[type[Message], Callable[[ConsumerGroupLog, Any, Any], None]]] = {
    ConsumerGroupMemberMetadataKey: ConsumerGroupLog._replay_member,
    ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroupLog._replay_current,
    ConsumerGroupMetadataKey: ConsumerGroupLog._replay_epoch,
    ConsumerGroupTargetAssignmentMemberKey: ConsumerGroupLog._replay_target,
    ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroupLog._replay_target_epoch,
    ConsumerGroupRegularExpressionKey: ConsumerGroupLog._replay_regex,
    ConsumerGroupPartitionMetadataKey: ConsumerGroupLog._replay_partition_metadata,
}

CONSUMER_GROUP_KEYS: Final[frozenset[type[Message]]] = frozenset(_REPLAY)
"""The record types that belong to a KIP-848 group."""
