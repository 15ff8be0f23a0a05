"""What the records of a classic group say: its state, generation, protocol and members.

A GroupMetadata record is written when a generation has its assignment (STABLE), when the last member is gone (EMPTY),
when a static member gets another id, and when the group begins to exist. Replay of a record takes the group to STABLE
or EMPTY; what happens on the way there (the members while they join, the state in between) is soft, changed by the
decisions as in Apache Kafka, and gone with the coordinator: members then find the last generation that was written, and
rebalance from there. Who waits, and until when, is rebalance.py's.
"""

from collections.abc import Callable, Iterable
from typing import Final

from kafkapy.errors import ApiError, ProtocolError
from kafkapy.group.classic.members import ClassicMember, Roster
from kafkapy.group.classic.states import NEXT_STATES, ClassicState
from kafkapy.group.history import MemberShare, RebalanceHistory
from kafkapy.group.records import CoordinatorRecord
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from kafkapy.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from kafkapy.protocol.messages.group_metadata_key import GroupMetadataKey
from kafkapy.protocol.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from kafkapy.types import TopicPartition

CONSUMER_PROTOCOL: Final = "consumer"
NO_REBALANCE_TIMEOUT: Final = -1
VERSION_BYTES: Final = 2
"""A subscription or assignment of consumers begins with its version; what follows reads as version 0 in all of them."""


class ClassicGroupLog:
    """A group as its log has it, and as it becomes until the next record."""

    def __init__(self, group_id: str, wall_ms: Callable[[], int]) -> None:
        self.group_id = group_id
        self.wall_ms = wall_ms
        self.state = ClassicState.EMPTY
        self.state_since_ms = wall_ms()
        """Wall clock; NO_TIMESTAMP where an old record did not say."""
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.members = Roster()
        self.history = RebalanceHistory()
        self._subscribed_topics: frozenset[str] | None = None

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

    def take_protocol_type(self, protocol_type: str) -> None:
        """The first member says what kind of group this is."""
        if not len(self.members):
            self.protocol_type = protocol_type

    def begin_generation(self) -> None:
        """All who are to be in the next generation have joined: choose their protocol."""
        assert len(self.members)
        self.generation += 1
        self.protocol_name = self.members.select_protocol()
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

    # -- questions ------------------------------------------------------------------------------------------------

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

    @property
    def has_known_subscriptions(self) -> bool:
        return self._subscribed_topics is not None

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member wants the topic; of consumers whose subscriptions cannot be read, whether any may."""
        if self._subscribed_topics is not None:
            return topic in self._subscribed_topics
        return self.protocol_type == CONSUMER_PROTOCOL

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
