"""The state of a classic group: its generation, protocol and members, as replayed from its records.

A GroupMetadata record is written when a generation has its assignment (STABLE), when the last member has left (EMPTY),
when a static member gets a new id, and when the group is created. Replaying a record moves the group to STABLE or
EMPTY. The changes in between (members that join, PREPARING_REBALANCE, COMPLETING_REBALANCE) are soft state: decisions
change it directly, as in Apache Kafka, and it is lost with the coordinator. A new coordinator starts from the last
generation written, and the members rebalance from there. rebalance.py has the parked requests and deadlines.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kafkapy.errors import ApiError, ProtocolError
from kafkapy.group.classic.members import ClassicMember, ClassicMembers
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
"""The version before a consumer's subscription or assignment; the bytes after it can be read as version 0 always."""


class ClassicGroupLog:
    """The state of a group: that of its last record, plus the soft changes since."""

    def __init__(self, group_id: str, wall_ms: Callable[[], int]) -> None:
        self.group_id = group_id
        self.wall_ms = wall_ms
        self.state = ClassicState.EMPTY
        self.state_since_ms = wall_ms()
        """Wall clock; NO_TIMESTAMP if loaded from an old record that does not have it."""
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.members = ClassicMembers()
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

    def adopt_protocol_type(self, protocol_type: str) -> None:
        """Set the group's protocol type to that of its first member; that of later members is ignored."""
        assert protocol_type, "a group with members is not a simple one"
        if not len(self.members):
            self.protocol_type = protocol_type

    def begin_generation(self) -> None:
        """Begin the next generation with the current members and choose their protocol."""
        assert len(self.members), "a generation without members has another record: empty_record"
        assert self.members.has_leader, "nobody would assign"
        self.generation += 1
        self.protocol_name = self.members.select_protocol()
        self._subscribed_topics = self._read_subscriptions()
        self.transition_to(ClassicState.COMPLETING_REBALANCE)

    # -- records --------------------------------------------------------------------------------------------------

    def metadata_record(self, assignments: dict[str, bytes] | None = None) -> CoordinatorRecord:
        """Return the record of this generation; `assignments` (by member id) default to the members' current ones."""
        assert len(self.members), "the record of a generation without members is another: empty_record"
        assert self.state in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE), "the members are not settled"
        members = [
            MemberMetadata(
                member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(self.protocol_name),
                assignment=member.assignment if assignments is None else assignments[member.member_id],
            )
            for member in self.members
        ]
        return self._record(self.generation, self.protocol_name, members, since_ms=self.state_since_ms)

    def empty_record(self) -> CoordinatorRecord:
        """Return the record of the next generation, without members."""
        assert not len(self.members), "a coordinator that loads the record would forget them"
        return self._record(self.generation + 1, None, [], since_ms=self.wall_ms())

    def creation_record(self) -> CoordinatorRecord:
        """Return the record of a new group, which has had no members."""
        value = GroupMetadataValue(
            "", generation=0, protocol=None, leader=None, current_state_timestamp=self.state_since_ms, members=[]
        )
        return CoordinatorRecord(GroupMetadataKey(self.group_id), value)

    def tombstone_records(self) -> Iterable[CoordinatorRecord]:
        """Return the tombstones that delete the group, without those of its offsets."""
        return [CoordinatorRecord(GroupMetadataKey(self.group_id), None)]

    def _record(
        self, generation: int, protocol: str | None, members: list[MemberMetadata], *, since_ms: int
    ) -> CoordinatorRecord:
        value = GroupMetadataValue(
            self.protocol_type or "",
            generation=generation,
            protocol=protocol,
            leader=self.members.leader_id,
            current_state_timestamp=since_ms,
            members=members,
        )
        return CoordinatorRecord(GroupMetadataKey(self.group_id), value)

    def load_metadata(self, value: GroupMetadataValue) -> None:
        """Load a record into this new group; its members have no sessions yet."""
        assert self.is_empty
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol
        self.state_since_ms = value.current_state_timestamp
        for member in _last_of_each(value.members):
            self.members.add(_loaded_member(member, value.protocol or ""))
        if value.leader is not None and value.leader in self.members:
            self.members.leader_id = value.leader
        if value.members:
            self.state = ClassicState.STABLE
        assert self.members.has_leader or not len(self.members), "the first member leads"
        self._subscribed_topics = self._read_subscriptions()
        self.history = RebalanceHistory(self._shares())

    def found(self, members: Iterable[ClassicMember], generation: int, history: RebalanceHistory) -> None:
        """Start as a stable group of consumers, converted from a KIP-848 group (downgrade.py); `assign` comes next.

        `history` is that of the KIP-848 group, which goes on here.
        """
        assert self.is_empty
        for member in members:
            self.members.add(member)
        self.generation = generation
        self.protocol_type = CONSUMER_PROTOCOL
        assert self.members.has_leader, "nobody would assign"
        self.protocol_name = self.members.select_protocol()
        self.state = ClassicState.STABLE
        self.history = history
        self._subscribed_topics = self._read_subscriptions()

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """Give the members of a group that was just founded their assignments, by member id."""
        assert self.state is ClassicState.STABLE
        assert assignments.keys() == {member.member_id for member in self.members}
        for member in self.members:
            member.assignment = assignments[member.member_id]

    def replay_metadata(self, value: GroupMetadataValue) -> None:
        """Apply a record that this group has just decided."""
        if not value.members:
            self._become_empty(value)
            return
        assert value.generation == self.generation
        assert value.leader == self.members.leader_id, "another leader was written than the one that assigned"
        assert len(value.members) == len(self.members)
        for member in value.members:
            self.members[member.member_id].assignment = member.assignment
        if self.state is not ClassicState.STABLE:
            self.transition_to(ClassicState.STABLE)
            self.history.end(self.generation, self._shares(), self.state_since_ms)

    def _become_empty(self, value: GroupMetadataValue) -> None:
        assert not len(self.members)
        assert value.generation == self.generation + 1, "a generation was begun meanwhile"
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
        """Return the member. Raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another has its instance id now."""
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
        """Return whether a member subscribes to the topic; True for consumers whose subscriptions are unreadable."""
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
    """Return the partitions of a consumer's assignment; the empty set if it cannot be read (another protocol's)."""
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


def _last_of_each(members: Iterable[MemberMetadata]) -> Iterable[MemberMetadata]:
    """Return the members, but only the last of those with the same id, and of those with the same instance id.

    No coordinator writes two of them, but a file may have them.
    """
    by_id = {member.member_id: member for member in members}
    return {
        (member.member_id, None) if member.group_instance_id is None else (None, member.group_instance_id): member
        for member in by_id.values()
    }.values()


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
