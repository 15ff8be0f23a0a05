"""A classic consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, and what time does to it.

The members' clients make the assignment: everyone joins, the leader gets all subscriptions and brings, with its
SyncGroup, what each member gets. The coordinator keeps generations apart, and knows nothing of what is assigned; so
this also serves Kafka Connect and whoever else has a protocol. Source: Apache Kafka 4.3.1; KIP-62 (rebalance
time-outs), KIP-134 (initial delay), KIP-345 (static members), KIP-394 (member ids), KIP-559 (protocol checks), KIP-814.

states.py             the states and the ways between them
members.py            who is in it, and what they have in common
state.py              the group at rest: records, replay, offsets' questions
rebalance.py          the phases, and time
join.py               JoinGroup
../classic_requests.py where a shard's requests and records meet its classic groups
"""

from typing import Final

from kafkapy.errors import ApiError
from kafkapy.group.classic.join import ClassicJoin, Join
from kafkapy.group.classic.members import ClassicMember
from kafkapy.group.classic.state import CONSUMER_PROTOCOL
from kafkapy.group.classic.states import ClassicState
from kafkapy.group.decision import GroupDecision, Reply
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.heartbeat_request import HeartbeatRequest
from kafkapy.protocol.messages.heartbeat_response import HeartbeatResponse
from kafkapy.protocol.messages.leave_group_request import MemberIdentity
from kafkapy.protocol.messages.leave_group_response import LeaveGroupResponse, MemberResponse
from kafkapy.protocol.messages.sync_group_request import SyncGroupRequest
from kafkapy.protocol.messages.sync_group_response import SyncGroupResponse

__all__ = ["ClassicGroup", "Join"]

NOTHING_ASSIGNED: Final = bytes.fromhex("0000 00000000 ffffffff")
"""A consumer's assignment of version 0: no topics, no user data."""


class ClassicGroup(ClassicJoin):
    # -- SyncGroup ------------------------------------------------------------------------------------------------

    def sync(self, request: SyncGroupRequest, token: int, now_ms: int) -> GroupDecision:
        """Decide a SyncGroup. Raises ApiError; nothing has changed then."""
        member = self._check_sync(request)
        decision = GroupDecision()
        self.note_synced(member.member_id)
        if self.state is ClassicState.STABLE:
            decision.response = self._sync_response(member.assignment)
            return decision
        self.refuse_waiting(member, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id, decision)
        self.syncing[member.member_id] = token
        if member.member_id == self.members.leader_id:
            self._assign(request, decision, now_ms)
        return decision

    def _check_sync(self, request: SyncGroupRequest) -> ClassicMember:
        if self.is_dead:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        member = self.check_member(request.member_id, request.group_instance_id)
        self.check_generation(request.generation_id)
        is_other_type = request.protocol_type not in (None, self.protocol_type)
        if is_other_type or request.protocol_name not in (None, self.protocol_name):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if self.state is ClassicState.PREPARING_REBALANCE:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        return member

    def _assign(self, request: SyncGroupRequest, decision: GroupDecision, now_ms: int) -> None:
        """Write the leader's assignment; who waits for it gets it once that is committed.

        A member that the leader left out gets nothing, in a consumer's case as an assignment that says so (a deviation:
        Apache Kafka sends no bytes, which clients cannot read).
        """
        nothing = NOTHING_ASSIGNED if self.protocol_type == CONSUMER_PROTOCOL else b""
        given = {assigned.member_id: assigned.assignment for assigned in request.assignments}
        assignments = {member.member_id: given.get(member.member_id) or nothing for member in self.members}
        decision.records.append(self.metadata_record(assignments))
        tokens = dict(self.syncing)
        for member_id, token in tokens.items():
            decision.replies.append(Reply(token, self._sync_response(assignments[member_id])))
            self.renew_session(self.members[member_id], now_ms)
        self.syncing.clear()

        def on_failed(code: int) -> list[Reply]:
            """Have everyone try again."""
            failed = GroupDecision()
            self.syncing = tokens
            self._refuse_syncs(code, failed, now_ms)
            self.prepare_rebalance("the assignment could not be written", failed, now_ms)
            return failed.replies

        decision.on_failed = on_failed

    def _sync_response(self, assignment: bytes) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.protocol_type, protocol_name=self.protocol_name, assignment=assignment
        )

    # -- Heartbeat ------------------------------------------------------------------------------------------------

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> GroupDecision:
        """Decide a Heartbeat. Raises ApiError. In a rebalance it counts all the same, and says so."""
        if self.is_dead:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        member = self.check_member(request.member_id, request.group_instance_id)
        self.check_generation(request.generation_id)
        self.renew_session(member, now_ms)
        is_rebalancing = self.state is ClassicState.PREPARING_REBALANCE
        code = ErrorCode.REBALANCE_IN_PROGRESS if is_rebalancing else ErrorCode.NONE
        return GroupDecision(HeartbeatResponse(error_code=code))

    def on_offset_commit(self, member_id: str, now_ms: int) -> None:
        """See group.Group."""
        member = self.members.find(member_id)
        if member is not None:
            self.renew_session(member, now_ms)

    # -- LeaveGroup -----------------------------------------------------------------------------------------------

    def leave(self, identities: list[MemberIdentity], now_ms: int) -> GroupDecision:
        """Decide a LeaveGroup: each of these with its own code, one rebalance for all. Raises ApiError.

        An id that leaves before anybody has joined with it makes nobody join again (a deviation: in Apache Kafka a
        stable group rebalances, with the members that it had).
        """
        if self.is_dead:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        response = LeaveGroupResponse()
        decision = GroupDecision(response)
        left: list[str] = []
        was_pending = False
        for identity in identities:
            code = ErrorCode.NONE.value
            if identity.member_id in self.pending:
                del self.pending[identity.member_id]
                was_pending = True
            else:
                try:
                    left.append(self._leave_one(identity, decision))
                except ApiError as error:
                    code = error.code
            response.members.append(MemberResponse(identity.member_id, identity.group_instance_id, code))
        if left:
            self.rebalance_or_complete(f"left: {', '.join(left)}", decision, now_ms)
        elif was_pending:
            self.maybe_complete_join(decision, now_ms)
        return decision

    def _leave_one(self, identity: MemberIdentity, decision: GroupDecision) -> str:
        """Remove a member, by its instance id alone if an administrator does; return what to call it."""
        member_id = identity.member_id
        if not member_id and identity.group_instance_id is not None:
            member_id = self.members.static_id(identity.group_instance_id) or ""
        member = self.check_member(member_id, identity.group_instance_id)
        self.remove_member(member, decision)
        return f"{member_id} ({identity.reason})" if identity.reason else member_id

    # -- the coordinator's own ------------------------------------------------------------------------------------

    def on_loaded(self, now_ms: int, *, is_converted: bool = False) -> None:
        """The group came from the log: sessions begin anew. Too many members rebalance, the first to come stay.

        `is_converted`: it was a KIP-848 group, and no generation has followed. Its members may still wait for what they
        were assigned, so they rebalance, too. Apache Kafka forgets that with the coordinator that converted the group:
        those partitions have no owner there until something else makes the group rebalance (a deviation).
        """
        self.renew_sessions(now_ms)
        if len(self.members) > self.settings.config.group_max_size:
            self.prepare_rebalance("group.max.size is smaller than the group", GroupDecision(), now_ms)
        elif is_converted and len(self.members):
            self.prepare_rebalance("the group has just become a classic one", GroupDecision(), now_ms)

    def die(self) -> None:
        """The group has been deleted."""
        self.transition_to(ClassicState.DEAD)
