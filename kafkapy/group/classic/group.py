"""A classic consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, and what time does to it.

The members' clients make the assignment: everyone joins, the leader gets all subscriptions and brings, with its
SyncGroup, what each member gets. The coordinator keeps generations apart, and knows nothing of what is assigned; so
this also serves Kafka Connect and whoever else has a protocol. Source: Apache Kafka 4.3.1; KIP-62 (rebalance
time-outs), KIP-134 (initial delay), KIP-345 (static members), KIP-394 (member ids), KIP-559 (protocol checks), KIP-814.

states.py             the states and the ways between them
members.py            who is in it, and what they have in common
state.py              what the records say, and replay
rebalance.py          who waits: the phases, and time
join.py               the steps of a JoinGroup
../classic_requests.py where a shard's requests and records meet its classic groups
"""

from collections.abc import Callable, Iterable
from typing import Final

from kafkapy.errors import ApiError
from kafkapy.group.classic.join import Join, JoinDecision
from kafkapy.group.classic.members import ClassicMember
from kafkapy.group.classic.rebalance import ClassicRebalance
from kafkapy.group.classic.state import CONSUMER_PROTOCOL, ClassicGroupLog
from kafkapy.group.classic.states import ClassicState
from kafkapy.group.decision import GroupDecision
from kafkapy.group.group import CheckPartition
from kafkapy.group.history import RebalanceHistory
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.settings import GroupSettings
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_groups_response import DescribedGroup, DescribedGroupMember
from kafkapy.protocol.messages.heartbeat_request import HeartbeatRequest
from kafkapy.protocol.messages.heartbeat_response import HeartbeatResponse
from kafkapy.protocol.messages.leave_group_request import MemberIdentity
from kafkapy.protocol.messages.leave_group_response import LeaveGroupResponse, MemberResponse
from kafkapy.protocol.messages.sync_group_request import SyncGroupRequest
from kafkapy.protocol.messages.sync_group_response import SyncGroupResponse
from kafkapy.record.batch import NO_TIMESTAMP

__all__ = ["ClassicGroup", "Join"]

NOTHING_ASSIGNED: Final = bytes.fromhex("0000 00000000 ffffffff")
"""A consumer's assignment of version 0: no topics, no user data."""


class ClassicGroup:
    """Has a log (what its records say) and a rebalance (who waits, until when), and decides what its members ask."""

    group_type = "classic"

    def __init__(self, group_id: str, settings: GroupSettings, wall_ms: Callable[[], int]) -> None:
        self.group_id = group_id
        self._settings = settings
        self.log = ClassicGroupLog(group_id, wall_ms)
        self.rebalance = ClassicRebalance(self.log, settings)

    @property
    def history(self) -> RebalanceHistory:
        return self.log.history

    @property
    def protocol_type(self) -> str | None:
        return self.log.protocol_type

    @property
    def state_name(self) -> str:
        return self.log.state.value

    @property
    def is_empty(self) -> bool:
        return self.log.is_empty

    @property
    def member_count(self) -> int:
        return len(self.log.members)

    def is_subscribed_to(self, topic: str) -> bool:
        return self.log.is_subscribed_to(topic)

    def tombstone_records(self) -> Iterable[CoordinatorRecord]:
        """Return what deletes the group, its offsets aside."""
        return self.log.tombstone_records()

    def describe(self) -> DescribedGroup:
        """Return the group as DescribeGroups shows it: subscriptions and protocol only where they are settled."""
        is_stable = self.log.state is ClassicState.STABLE
        return DescribedGroup(
            group_id=self.log.group_id,
            group_state=self.state_name,
            protocol_type=self.log.protocol_type or "",
            protocol_data=(self.log.protocol_name or "") if is_stable else "",
            members=[
                DescribedGroupMember(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.metadata(self.log.protocol_name) if is_stable else b"",
                    member.assignment,
                )
                for member in self.log.members
            ],
        )

    # -- JoinGroup ------------------------------------------------------------------------------------------------

    def join(self, join: Join) -> GroupDecision:
        """Decide a JoinGroup. Raises ApiError; nothing has changed then."""
        if self.log.is_dead:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return JoinDecision(self.log, self.rebalance, self._settings.config.group_max_size, join).decide()

    # -- SyncGroup ------------------------------------------------------------------------------------------------

    def sync(self, request: SyncGroupRequest, token: int, now_ms: int) -> GroupDecision:
        """Decide a SyncGroup. Raises ApiError; nothing has changed then."""
        member = self._check_sync(request)
        decision = GroupDecision()
        self.rebalance.note_synced(member.member_id)
        if self.log.state is ClassicState.STABLE:
            decision.response = self._sync_response(member.assignment)
            return decision
        self.rebalance.refuse_waiting(member, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id, decision)
        self.rebalance.wait_to_sync(member.member_id, token)
        if member.member_id == self.log.members.leader_id:
            self._assign(request, decision, now_ms)
        return decision

    def _check_sync(self, request: SyncGroupRequest) -> ClassicMember:
        if self.log.is_dead:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        member = self.log.check_member(request.member_id, request.group_instance_id)
        self.log.check_generation(request.generation_id)
        is_other_type = request.protocol_type not in (None, self.log.protocol_type)
        if is_other_type or request.protocol_name not in (None, self.log.protocol_name):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if self.log.state is ClassicState.PREPARING_REBALANCE:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        return member

    def _assign(self, request: SyncGroupRequest, decision: GroupDecision, now_ms: int) -> None:
        """Write the leader's assignment; who waits for it gets it once that is committed.

        A member that the leader left out gets nothing, in a consumer's case as an assignment that says so (a deviation:
        Apache Kafka sends no bytes, which clients cannot read).
        """
        nothing = NOTHING_ASSIGNED if self.log.protocol_type == CONSUMER_PROTOCOL else b""
        given = {assigned.member_id: assigned.assignment for assigned in request.assignments}
        assignments = {member.member_id: given.get(member.member_id) or nothing for member in self.log.members}
        decision.records.append(self.log.metadata_record(assignments))
        self.rebalance.answer_syncs(lambda member_id: self._sync_response(assignments[member_id]), decision, now_ms)

    def _sync_response(self, assignment: bytes) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.log.protocol_type, protocol_name=self.log.protocol_name, assignment=assignment
        )

    # -- Heartbeat ------------------------------------------------------------------------------------------------

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> GroupDecision:
        """Decide a Heartbeat. Raises ApiError. In a rebalance it counts all the same, and says so."""
        if self.log.is_dead:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        member = self.log.check_member(request.member_id, request.group_instance_id)
        self.log.check_generation(request.generation_id)
        self.rebalance.renew_session(member, now_ms)
        is_rebalancing = self.log.state is ClassicState.PREPARING_REBALANCE
        code = ErrorCode.REBALANCE_IN_PROGRESS if is_rebalancing else ErrorCode.NONE
        return GroupDecision(HeartbeatResponse(error_code=code))

    def on_offset_commit(self, member_id: str, now_ms: int) -> None:
        """See group.Group."""
        member = self.log.members.find(member_id)
        if member is not None:
            self.rebalance.renew_session(member, now_ms)

    # -- LeaveGroup -----------------------------------------------------------------------------------------------

    def leave(self, identities: list[MemberIdentity], now_ms: int) -> GroupDecision:
        """Decide a LeaveGroup: each of these with its own code, one rebalance for all. Raises ApiError.

        An id that leaves before anybody has joined with it makes nobody join again (a deviation: in Apache Kafka a
        stable group rebalances, with the members that it had).
        """
        if self.log.is_dead:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        response = LeaveGroupResponse()
        decision = GroupDecision(response)
        left: list[str] = []
        was_pending = False
        for identity in identities:
            code = ErrorCode.NONE.value
            if self.rebalance.forget_id(identity.member_id):
                was_pending = True
            else:
                try:
                    left.append(self._leave_one(identity, decision))
                except ApiError as error:
                    code = error.code
            response.members.append(MemberResponse(identity.member_id, identity.group_instance_id, code))
        if left:
            self.rebalance.rebalance_or_complete(f"left: {', '.join(left)}", decision, now_ms)
        elif was_pending:
            self.rebalance.maybe_complete_join(decision, now_ms)
        return decision

    def _leave_one(self, identity: MemberIdentity, decision: GroupDecision) -> str:
        """Remove a member, by its instance id alone if an administrator does; return what to call it."""
        member_id = identity.member_id
        if not member_id and identity.group_instance_id is not None:
            member_id = self.log.members.static_id(identity.group_instance_id) or ""
        member = self.log.check_member(member_id, identity.group_instance_id)
        self.rebalance.remove_member(member, decision)
        return f"{member_id} ({identity.reason})" if identity.reason else member_id

    # -- the coordinator's own ------------------------------------------------------------------------------------

    def on_loaded(self, now_ms: int, *, is_converted: bool = False) -> None:
        """The group came from the log: sessions begin anew. Too many members rebalance, the first to come stay.

        `is_converted`: it was a KIP-848 group, and no generation has followed. Its members may still wait for what they
        were assigned, so they rebalance, too. Apache Kafka forgets that with the coordinator that converted the group:
        those partitions have no owner there until something else makes the group rebalance (a deviation).
        """
        self.rebalance.renew_sessions(now_ms)
        if len(self.log.members) > self._settings.config.group_max_size:
            self.rebalance.prepare_rebalance("group.max.size is smaller than the group", GroupDecision(), now_ms)
        elif is_converted and len(self.log.members):
            self.rebalance.prepare_rebalance("the group has just become a classic one", GroupDecision(), now_ms)

    def die(self) -> None:
        """The group has been deleted."""
        self.log.transition_to(ClassicState.DEAD)

    # -- time -----------------------------------------------------------------------------------------------------

    def deadline_ms(self) -> int | None:
        """See group.Group."""
        return self.rebalance.deadline_ms()

    def on_time(self, now_ms: int) -> GroupDecision:
        """Decide what the time means; where that is a record, the rest has to wait until it is replayed."""
        return self.rebalance.on_time(now_ms)

    # -- offsets and deletion -------------------------------------------------------------------------------------

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
        if self.log.is_dead:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation < 0 and self.log.is_empty:
            return None
        if generation >= 0 or member_id or instance_id is not None:
            self.log.check_member(member_id, instance_id)
            self.log.check_generation(generation)
        elif not is_transactional:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        if self.log.state is ClassicState.COMPLETING_REBALANCE and not is_transactional:
            # It has this generation's id, so it is about to hear that its partitions are others now.
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        return None

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if self.log.is_dead:
            raise self._not_found()

    def check_offset_delete(self) -> None:
        """Raise NON_EMPTY_GROUP for members that are not consumers: nobody knows what they use."""
        if self.log.is_dead:
            raise self._not_found()
        if not self.log.is_empty and self.log.protocol_type != CONSUMER_PROTOCOL:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)

    def check_deletion(self) -> None:
        if self.log.is_dead:
            raise self._not_found()
        if not self.log.is_empty:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)

    def _not_found(self) -> ApiError:
        return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.log.group_id} is in dead state.")

    def offsets_unused_since_ms(self, commit_timestamp_ms: int) -> int | None:
        """See group.Group."""
        if self.log.protocol_type is None:
            return commit_timestamp_ms
        if self.log.is_empty:
            return commit_timestamp_ms if self.log.state_since_ms == NO_TIMESTAMP else self.log.state_since_ms
        is_known = self.log.protocol_type == CONSUMER_PROTOCOL and self.log.has_known_subscriptions
        return commit_timestamp_ms if is_known and self.log.state is ClassicState.STABLE else None
