"""The replayed state of a streams group. Requests read it; only replay changes it.

Each record type of the group has one method here. The log may be partly compacted, so replay accepts records in any
combination, and requests do the validation. Source: KIP-1071, schemas in protocol_specs/group_coordinator.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final

from kafkapy.group.shared_rules import NO_ASSIGNMENT_EPOCH
from kafkapy.group.streams.member import StreamsMember
from kafkapy.group.streams.task_owners import TaskOwners
from kafkapy.group.streams.tasks import TasksTuple, tasks_of
from kafkapy.group.streams.topology import StreamsTopology
from kafkapy.protocol.messages.streams_group_current_member_assignment_key import StreamsGroupCurrentMemberAssignmentKey
from kafkapy.protocol.messages.streams_group_current_member_assignment_value import (
    StreamsGroupCurrentMemberAssignmentValue,
)
from kafkapy.protocol.messages.streams_group_member_metadata_key import StreamsGroupMemberMetadataKey
from kafkapy.protocol.messages.streams_group_member_metadata_value import StreamsGroupMemberMetadataValue
from kafkapy.protocol.messages.streams_group_metadata_key import StreamsGroupMetadataKey
from kafkapy.protocol.messages.streams_group_metadata_value import StreamsGroupMetadataValue
from kafkapy.protocol.messages.streams_group_target_assignment_member_key import StreamsGroupTargetAssignmentMemberKey
from kafkapy.protocol.messages.streams_group_target_assignment_member_value import (
    StreamsGroupTargetAssignmentMemberValue,
)
from kafkapy.protocol.messages.streams_group_target_assignment_metadata_key import (
    StreamsGroupTargetAssignmentMetadataKey,
)
from kafkapy.protocol.messages.streams_group_target_assignment_metadata_value import (
    StreamsGroupTargetAssignmentMetadataValue,
)
from kafkapy.protocol.messages.streams_group_topology_key import StreamsGroupTopologyKey
from kafkapy.protocol.messages.streams_group_topology_value import StreamsGroupTopologyValue
from kafkapy.protocol.primitives import Message

INITIAL_EPOCH: Final = 1
"""The group and assignment epoch of a group before its first record."""
NO_TOPOLOGY_EPOCH: Final = -1


class GroupState(Enum):
    """The state of a group, as StreamsGroupDescribe and ListGroups show it."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    """The topology has not been configured: topics are missing, or do not fit together."""
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class StreamsGroupLog:
    """The state of a group, as replayed from its records."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.metadata = StreamsGroupMetadataValue(epoch=INITIAL_EPOCH)
        self.assignment_epoch = INITIAL_EPOCH
        self.assignment_timestamp_ms = 0
        """When the target was computed (wall clock), 0 if not known or never."""
        self.members: dict[str, StreamsMember] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by instance id."""
        self.targets: dict[str, TasksTuple] = {}
        self.topology: StreamsTopology | None = None
        self.subtopology_ids_by_source: dict[str, str] = {}
        """By topic that the application reads, and whose offsets it commits: its subtopology."""
        self._owners: TaskOwners | None = None
        """None until a decision asks for them: while a log is loaded, nothing does."""
        self.is_deleted = False
        self.is_loaded = False
        """From then on this coordinator has decided every record, and replay asserts what its decisions promise; a log
        that is being loaded may be Apache Kafka's, and partly compacted."""
        self.version = 0
        """Raised by every record: what was derived from the state is outdated then."""
        self._state = GroupState.EMPTY
        self._state_version = 0

    @property
    def group_epoch(self) -> int:
        return self.metadata.epoch

    @property
    def topology_epoch(self) -> int:
        return NO_TOPOLOGY_EPOCH if self.topology is None else self.topology.topology_epoch

    @property
    def assignment_configs(self) -> dict[str, str]:
        """Return the configuration of the last group epoch's assignment."""
        return {each.key: each.value for each in self.metadata.last_assignment_configs or ()}

    @property
    def state(self) -> GroupState:
        if self._state_version != self.version:
            self._state, self._state_version = self._current_state(), self.version
        return self._state

    def _current_state(self) -> GroupState:
        if self.is_deleted:
            return GroupState.DEAD
        if not self.members:
            return GroupState.EMPTY
        if self.topology is None or self.topology.topology_epoch != self.metadata.validated_topology_epoch:
            return GroupState.NOT_READY
        if self.group_epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def static_member(self, instance_id: str) -> StreamsMember | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    @property
    def owners(self) -> TaskOwners:
        """Return who has which tasks, counted from the members at the first call, and kept up to date from then on.

        A shard may load many groups with 20,000 tasks each: their owners are not all counted in one turn of the loop.

        Deviation: Apache Kafka keeps the owners that replaying the log has left, though compaction may have removed the
        record by which a member gave a task up before another one of its process got it. Here they are counted once the
        log is loaded, because a task without an owner is given to a second member while the first one runs it.
        """
        if self._owners is None:
            self._owners = TaskOwners()
            for member in self.members.values():
                self._owners.add(member)
        return self._owners

    # -- replay ---------------------------------------------------------------------------------------------------

    def replay(self, key: Message, value: Message | None) -> None:
        """Apply one StreamsGroup* record; `value` is None for a tombstone."""
        assert not self.is_deleted, f"{self.group_id} is deleted: the next record makes another group"
        self.version += 1
        _REPLAY[type(key)](self, key, value)

    def _replay_member(self, key: StreamsGroupMemberMetadataKey, value: StreamsGroupMemberMetadataValue | None) -> None:
        member = self.members.get(key.member_id)
        if value is not None:
            owner = None if value.instance_id is None else self.static_member(value.instance_id)
            had_it = member is not None and member.instance_id == value.instance_id  # a log may have it twice
            is_free = owner is None or owner is member or had_it
            assert not self.is_loaded or is_free, f"{value.instance_id} belongs to another member"
            self._put(member, (member or StreamsMember(key.member_id)).with_metadata(value))
        elif member is not None:
            del self.members[key.member_id]
            if self._owners is not None:
                self._owners.remove(member)
            self._forget_instance(member)

    def _replay_current(
        self, key: StreamsGroupCurrentMemberAssignmentKey, value: StreamsGroupCurrentMemberAssignmentValue | None
    ) -> None:
        member = self.members.get(key.member_id)
        if value is not None:
            assert not self.is_loaded or member is not None, f"{key.member_id} is assigned tasks and no member"
            self._put(member, (member or StreamsMember(key.member_id)).with_assignment(value))
        elif member is not None:
            self._put(member, member.without_assignment())

    def _replay_metadata(self, key: StreamsGroupMetadataKey, value: StreamsGroupMetadataValue | None) -> None:
        if value is None:
            assert not self.is_loaded or not self.members, f"{self.group_id} is deleted with members"
            self.is_deleted = True
        else:
            assert not self.is_loaded or value.epoch >= self.group_epoch, f"{self.group_id} goes back to {value.epoch}"
            self.metadata = value

    def _replay_target(
        self, key: StreamsGroupTargetAssignmentMemberKey, value: StreamsGroupTargetAssignmentMemberValue | None
    ) -> None:
        if value is None:
            self.targets.pop(key.member_id, None)
        else:
            assert not self.is_loaded or key.member_id in self.members, f"{key.member_id} has a target and is no member"
            self.targets[key.member_id] = TasksTuple(
                tasks_of(value.active_tasks), tasks_of(value.standby_tasks), tasks_of(value.warmup_tasks)
            )

    def _replay_target_epoch(
        self, key: StreamsGroupTargetAssignmentMetadataKey, value: StreamsGroupTargetAssignmentMetadataValue | None
    ) -> None:
        self.assignment_epoch = NO_ASSIGNMENT_EPOCH if value is None else value.assignment_epoch
        is_current = self.assignment_epoch in (NO_ASSIGNMENT_EPOCH, self.group_epoch)
        assert not self.is_loaded or is_current, "a target of another epoch"
        self.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp

    def _replay_topology(self, key: StreamsGroupTopologyKey, value: StreamsGroupTopologyValue | None) -> None:
        is_first = self.topology is None or value is None
        assert not self.is_loaded or is_first, f"the topology of {self.group_id} is replaced"
        self.topology = None if value is None else StreamsTopology.of(value)
        self.subtopology_ids_by_source = {} if self.topology is None else self.topology.subtopology_ids_by_source()

    def _put(self, before: StreamsMember | None, after: StreamsMember) -> None:
        self.members[after.member_id] = after
        if before is not None:
            self._forget_instance(before)
        if self._owners is not None:
            if before is not None:
                self._owners.remove(before)
            self._owners.add(after)
        if after.instance_id is not None:
            self.static_members[after.instance_id] = after.member_id

    def _forget_instance(self, member: StreamsMember) -> None:
        if member.instance_id is not None:
            self.static_members.pop(member.instance_id, None)


_REPLAY: Final[Mapping[type[Message], Callable[[StreamsGroupLog, Any, Any], None]]] = {
    StreamsGroupMemberMetadataKey: StreamsGroupLog._replay_member,
    StreamsGroupCurrentMemberAssignmentKey: StreamsGroupLog._replay_current,
    StreamsGroupMetadataKey: StreamsGroupLog._replay_metadata,
    StreamsGroupTargetAssignmentMemberKey: StreamsGroupLog._replay_target,
    StreamsGroupTargetAssignmentMetadataKey: StreamsGroupLog._replay_target_epoch,
    StreamsGroupTopologyKey: StreamsGroupLog._replay_topology,
}
