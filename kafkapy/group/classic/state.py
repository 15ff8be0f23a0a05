"""What a classic group is between requests: its state, generation, members and who waits; what its records say.

A GroupMetadata record is written when a generation has its assignment (STABLE), when the last member is gone (EMPTY),
when a static member gets another id, and when the group begins to exist. Replay of a record takes the group to STABLE
or EMPTY; everything on the way there (joins that wait, sessions, the members themselves while they join) is soft
state, changed by the decisions as in Apache Kafka, and gone with the coordinator: members then find the last generation
that was written, and rebalance from there.
"""

from collections.abc import Callable, Iterable
from typing import Final

from kafkapy.errors import ApiError, ProtocolError
from kafkapy.group.classic.members import ClassicMember, Roster
from kafkapy.group.classic.states import NEXT_STATES, ClassicState
from kafkapy.group.group import CheckPartition
from kafkapy.group.history import MemberShare, RebalanceHistory
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.settings import GroupSettings
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from kafkapy.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from kafkapy.protocol.messages.describe_groups_response import DescribedGroup, DescribedGroupMember
from kafkapy.protocol.messages.group_metadata_key import GroupMetadataKey
from kafkapy.protocol.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from kafkapy.record.batch import NO_TIMESTAMP
from kafkapy.types import TopicPartition

CONSUMER_PROTOCOL: Final = "consumer"
NO_REBALANCE_TIMEOUT: Final = -1
VERSION_BYTES: Final = 2
"""A subscription or assignment of consumers begins with its version; what follows reads as version 0 in all of them."""


class ClassicGroupState:
    group_type = "classic"

    def __init__(self, group_id: str, settings: GroupSettings, wall_ms: Callable[[], int]) -> None:
        self.group_id = group_id
        self.settings = settings
        self.wall_ms = wall_ms
        self.state = ClassicState.EMPTY
        self.state_since_ms = wall_ms()
        """Wall clock; NO_TIMESTAMP where an old record did not say."""
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.members = Roster()
        self.pending: dict[str, int] = {}
        """Ids given out by MEMBER_ID_REQUIRED, and until when (monotonic) their owners may come back with them."""
        self.joining: dict[str, int] = {}
        """Members whose JoinGroup waits, with its token."""
        self.syncing: dict[str, int] = {}
        """Members whose SyncGroup waits, with its token."""
        self.unsynced: set[str] = set()
        """Members that have not asked for the assignment of this generation yet."""
        self.history = RebalanceHistory()
        self._subscribed_topics: frozenset[str] | None = None

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    @property
    def is_dead(self) -> bool:
        return self.state is ClassicState.DEAD

    def transition_to(self, state: ClassicState) -> None:
        assert state in NEXT_STATES[self.state], f"group {self.group_id}: {self.state} does not lead to {state}"
        self.state = state
        self.state_since_ms = self.wall_ms()

    def begin_generation(self) -> None:
        """All who are to be in the next generation have joined: choose their protocol, expect their SyncGroups."""
        assert len(self.members)
        self.generation += 1
        self.protocol_name = self.members.select_protocol()
        self.unsynced = {member.member_id for member in self.members}
        self._subscribed_topics = self._read_subscriptions()
        self.transition_to(ClassicState.COMPLETING_REBALANCE)

    # -- records --------------------------------------------------------------------------------------------------

    def metadata_record(self, assignments: dict[str, bytes] | None = None) -> CoordinatorRecord:
        """Return the record of this generation; `assignments` are the members' own where none are given."""
        members = [
            MemberMetadata(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(self.protocol_name),
                member.assignment if assignments is None else assignments[member.member_id],
            )
            for member in self.members
        ]
        return self._record(self.generation, self.protocol_name, members, since_ms=self.state_since_ms)

    def empty_record(self) -> CoordinatorRecord:
        """Return the record of the next generation, which has no members."""
        return self._record(self.generation + 1, None, [], since_ms=self.wall_ms())

    def creation_record(self) -> CoordinatorRecord:
        """Return the record of a group that nobody has been a member of."""
        value = GroupMetadataValue("", 0, None, None, self.state_since_ms, [])
        return CoordinatorRecord(GroupMetadataKey(self.group_id), value)

    def tombstone_records(self) -> Iterable[CoordinatorRecord]:
        """Return what deletes the group, its offsets aside."""
        return [CoordinatorRecord(GroupMetadataKey(self.group_id), None)]

    def _record(
        self, generation: int, protocol: str | None, members: list[MemberMetadata], *, since_ms: int
    ) -> CoordinatorRecord:
        value = GroupMetadataValue(
            self.protocol_type or "", generation, protocol, self.members.leader_id, since_ms, members
        )
        return CoordinatorRecord(GroupMetadataKey(self.group_id), value)

    def load_metadata(self, value: GroupMetadataValue) -> None:
        """Make this new group what a record says; its members have no sessions yet."""
        assert self.is_empty
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol
        self.state_since_ms = value.current_state_timestamp
        for member in value.members:
            self.members.add(_loaded_member(member, value.protocol or ""))
        if value.leader is not None and value.leader in self.members:
            self.members.leader_id = value.leader
        if value.members:
            self.state = ClassicState.STABLE
        self._subscribed_topics = self._read_subscriptions()
        self.history = RebalanceHistory(self._shares())

    def found(self, members: Iterable[ClassicMember], generation: int) -> None:
        """Begin as a stable group of consumers, which have been assigned already (downgrade.py)."""
        assert self.is_empty
        for member in members:
            self.members.add(member)
        self.generation = generation
        self.protocol_type = CONSUMER_PROTOCOL
        self.protocol_name = self.members.select_protocol()
        self.state = ClassicState.STABLE
        self._subscribed_topics = self._read_subscriptions()

    def replay_metadata(self, value: GroupMetadataValue) -> None:
        """Apply the record that this group has just decided."""
        if not value.members:
            self._become_empty(value)
            return
        assert value.generation == self.generation
        assert len(value.members) == len(self.members)
        for member in value.members:
            self.members[member.member_id].assignment = member.assignment
        if self.state is not ClassicState.STABLE:
            self.transition_to(ClassicState.STABLE)
            self.history.end(self.generation, self._shares(), self.state_since_ms)

    def _become_empty(self, value: GroupMetadataValue) -> None:
        assert not len(self.members)
        self.generation = value.generation
        self.protocol_name = None
        self._subscribed_topics = self._read_subscriptions()
        self.transition_to(ClassicState.EMPTY)
        self.state_since_ms = value.current_state_timestamp
        self.history.end(self.generation, (), self.state_since_ms)

    def _shares(self) -> Iterable[MemberShare]:
        return [share_of(member) for member in self.members]

    # -- what is asked of any group (group.Group) -----------------------------------------------------------------

    def describe(self) -> DescribedGroup:
        """Return the group as DescribeGroups shows it: subscriptions and protocol only where they are settled."""
        is_stable = self.state is ClassicState.STABLE
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self.state_name,
            protocol_type=self.protocol_type or "",
            protocol_data=(self.protocol_name or "") if is_stable else "",
            members=[
                DescribedGroupMember(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.metadata(self.protocol_name) if is_stable else b"",
                    member.assignment,
                )
                for member in self.members
            ],
        )

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """Return the member. Raises UNKNOWN_MEMBER_ID; FENCED_INSTANCE_ID where another has its instance id now."""
        if instance_id is not None:
            owner_id = self.members.static_id(instance_id)
            if owner_id is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            if owner_id != member_id:
                raise ApiError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.find(member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)

    def check_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        version: int,
        is_transactional: bool,
    ) -> CheckPartition | None:
        """Raise unless a member of this generation commits, or somebody who is no member while there are none."""
        if self.is_dead:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation < 0 and self.is_empty:
            return None
        if generation >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            self.check_generation(generation)
        elif not is_transactional:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        if self.state is ClassicState.COMPLETING_REBALANCE and not is_transactional:
            # It has this generation's id, so it is about to hear that its partitions are others now.
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        return None

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if self.is_dead:
            raise self._not_found()

    def check_offset_delete(self) -> None:
        """Raise NON_EMPTY_GROUP for members that are not consumers: nobody knows what they use."""
        if self.is_dead:
            raise self._not_found()
        if not self.is_empty and self.protocol_type != CONSUMER_PROTOCOL:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)

    def check_deletion(self) -> None:
        if self.is_dead:
            raise self._not_found()
        if not self.is_empty:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)

    def _not_found(self) -> ApiError:
        return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is in dead state.")

    def is_subscribed_to(self, topic: str) -> bool:
        if self._subscribed_topics is not None:
            return topic in self._subscribed_topics
        return self.protocol_type == CONSUMER_PROTOCOL

    def offsets_unused_since_ms(self, commit_timestamp_ms: int) -> int | None:
        """See group.Group."""
        if self.protocol_type is None:
            return commit_timestamp_ms
        if self.is_empty:
            return commit_timestamp_ms if self.state_since_ms == NO_TIMESTAMP else self.state_since_ms
        is_known = self.protocol_type == CONSUMER_PROTOCOL and self._subscribed_topics is not None
        return commit_timestamp_ms if is_known and self.state is ClassicState.STABLE else None

    def _read_subscriptions(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER_PROTOCOL or (len(self.members) and self.protocol_name is None):
            return None
        topics: set[str] = set()
        try:
            for member in self.members:
                metadata = member.metadata(self.protocol_name)
                if len(metadata) < VERSION_BYTES:
                    return None
                subscription, _ = ConsumerProtocolSubscription.read(metadata, VERSION_BYTES, 0)
                topics.update(subscription.topics)
        except ProtocolError:
            return None
        return frozenset(topics)


def share_of(member: ClassicMember) -> MemberShare:
    return MemberShare(member.member_id, member.instance_id, member.client_id, member.client_host, member.assignment)


def assigned_partitions(assignment: bytes) -> set[TopicPartition]:
    """Return what a consumer's assignment holds; nothing where it cannot be read (another protocol's)."""
    if len(assignment) < VERSION_BYTES:
        return set()
    try:
        decoded, _ = ConsumerProtocolAssignment.read(assignment, VERSION_BYTES, 0)
    except ProtocolError:
        return set()
    return {
        TopicPartition(topic.topic, partition)
        for topic in decoded.assigned_partitions
        for partition in topic.partitions
    }


def _loaded_member(member: MemberMetadata, protocol: str) -> ClassicMember:
    rebalance_timeout_ms = member.rebalance_timeout
    if rebalance_timeout_ms == NO_REBALANCE_TIMEOUT:
        rebalance_timeout_ms = member.session_timeout
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms,
        session_timeout_ms=member.session_timeout,
        protocols=((protocol, member.subscription),),
        assignment=member.assignment,
    )
