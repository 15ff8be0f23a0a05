"""A classic consumer group: decides JoinGroup, SyncGroup, Heartbeat and LeaveGroup, and expires sessions and phases.

The assignment is made by the clients: all members join, the leader gets all subscriptions, and its SyncGroup carries
each member's assignment. The coordinator numbers the generations and does not interpret assignments, so Kafka Connect
and other protocols use the same group. Source: Apache Kafka 4.3.1; KIP-62 (rebalance time-outs), KIP-134 (initial
delay), KIP-345 (static members), KIP-394 (member ids), KIP-559 (protocol checks), KIP-814. Driven by
`runtime/coordinators/group_host.py`, through the shard.

states.py             the states and the transitions between them
members.py            the members, the leader, the common protocol
state.py              the state that is in the log, and its replay
rebalance.py          the phases of a rebalance, parked requests, deadlines
join.py               the steps of a JoinGroup
../classic_requests.py dispatch of a shard's requests and records to its classic groups
"""

from collections.abc import Callable, Iterable

from kafkapy.errors import ApiError
from kafkapy.group.classic.join import Join, JoinDecision
from kafkapy.group.classic.members import ClassicMember
from kafkapy.group.classic.rebalance import ClassicRebalance
from kafkapy.group.classic.state import CONSUMER_PROTOCOL, ClassicGroupLog
from kafkapy.group.classic.states import ClassicState
from kafkapy.group.decision import GroupDecision
from kafkapy.group.group import CheckPartition
from kafkapy.group.hash_order import hash_of_text, in_put_order
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


class ClassicGroup:
    """Decides the requests of its members. `log` is the state of its records, `rebalance` its parked requests."""

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
    def is_unjoined(self) -> bool:
        """Whether nobody has ever been a member."""
        return self.log.is_empty and not self.log.generation

    @property
    def member_count(self) -> int:
        return len(self.log.members)

    @property
    def may_expire(self) -> bool:
        return True

    def is_subscribed_to(self, topic: str) -> bool:
        return self.log.is_subscribed_to(topic)

    def tombstone_records(self) -> Iterable[CoordinatorRecord]:
        """Return the tombstones that delete the group, without those of its offsets."""
        return self.log.tombstone_records()

    def describe(self) -> DescribedGroup:
        """Return the group as DescribeGroups shows it: subscriptions and protocol only in state STABLE.

        The members are in the order of Apache Kafka's hash map.
        """
        members = self.log.members
        in_order = in_put_order((member.member_id for member in members), hash_of_text)
        is_stable = self.log.state is ClassicState.STABLE
        return DescribedGroup(
            group_id=self.log.group_id,
            group_state=self.state_name,
            protocol_type=self.log.protocol_type or "",
            protocol_data=(self.log.protocol_name or "") if is_stable else "",
            members=[
                DescribedGroupMember(
                    member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(self.log.protocol_name) if is_stable else b"",
                    member_assignment=member.assignment,
                )
                for member in map(members.__getitem__, in_order)
            ],
        )

    # -- JoinGroup ------------------------------------------------------------------------------------------------

    def join(self, join: Join) -> GroupDecision:
        """Decide a JoinGroup. Raises ApiError without having changed anything."""
        if self.log.is_dead:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return JoinDecision(self.log, self.rebalance, self._settings.config.group_max_size, join).decide()

    # -- SyncGroup ------------------------------------------------------------------------------------------------

    def sync(self, request: SyncGroupRequest, token: int, now_ms: int) -> GroupDecision:
        """Decide a SyncGroup. Raises ApiError without having changed anything."""
        member = self._check_sync(request)
        decision = GroupDecision()
        self.rebalance.mark_synced(member.member_id)
        if self.log.state is ClassicState.STABLE:
            decision.response = self._sync_response(member.assignment)
            return decision
        self.rebalance.refuse_parked(member, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id, decision)
        self.rebalance.park_sync(member.member_id, token)
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
        """Write the leader's assignment; parked SyncGroups are answered once it is committed.

        A member that the leader left out gets zero bytes, of whatever protocol it is.
        """
        given = {assigned.member_id: assigned.assignment for assigned in request.assignments}
        assignments = {member.member_id: given.get(member.member_id, b"") for member in self.log.members}
        decision.records.append(self.log.metadata_record(assignments))
        self._settings.counts.classic_rebalances += 1
        self.rebalance.respond_to_syncs(lambda member_id: self._sync_response(assignments[member_id]), decision, now_ms)

    def _sync_response(self, assignment: bytes) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.log.protocol_type, protocol_name=self.log.protocol_name, assignment=assignment
        )

    # -- Heartbeat ------------------------------------------------------------------------------------------------

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> GroupDecision:
        """Decide a Heartbeat: renew the session. Answers REBALANCE_IN_PROGRESS in a rebalance. Raises ApiError."""
        if self.log.is_dead:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        member = self.log.check_member(request.member_id, request.group_instance_id)
        self.log.check_generation(request.generation_id)
        self.rebalance.renew_session(member, now_ms)
        is_rebalancing = self.log.state is ClassicState.PREPARING_REBALANCE
        code = ErrorCode.REBALANCE_IN_PROGRESS if is_rebalancing else ErrorCode.NONE
        return GroupDecision(HeartbeatResponse(error_code=code))

    def on_offset_commit(self, member_id: str, now_ms: int) -> None:
        """Renew the session of a member that committed offsets."""
        member = self.log.members.find(member_id)
        if member is not None:
            self.rebalance.renew_session(member, now_ms)

    # -- LeaveGroup -----------------------------------------------------------------------------------------------

    def leave(self, identities: list[MemberIdentity], now_ms: int) -> GroupDecision:
        """Decide a LeaveGroup: an error code for each member, one rebalance for all. Raises ApiError.

        Deviation: Apache Kafka's stable group rebalances if an id given out by MEMBER_ID_REQUIRED leaves before it has
        joined. Here it does not, because its members are unchanged.
        """
        if self.log.is_dead:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        response = LeaveGroupResponse()
        decision = GroupDecision(response)
        left: list[str] = []
        was_pending = False
        for identity in identities:
            code = ErrorCode.NONE.value
            # an id that was given out, and not yet joined with: no member leaves, so that none has to join again
            if self.rebalance.remove_pending_member(identity.member_id):
                was_pending = True
            else:
                try:
                    left.append(self._leave_one(identity, decision))
                except ApiError as error:
                    code = error.code
            response.members.append(
                MemberResponse(identity.member_id, group_instance_id=identity.group_instance_id, error_code=code)
            )
        assert len(response.members) == len(identities), "members are told apart by their order"
        if left:
            self.rebalance.rebalance_or_complete(f"left: {', '.join(left)}", decision, now_ms)
        elif was_pending:
            self.rebalance.maybe_complete_join(decision, now_ms)
        return decision

    def _leave_one(self, identity: MemberIdentity, decision: GroupDecision) -> str:
        """Remove a member and return its name for the log. An administrator may name it by instance id alone."""
        member_id = identity.member_id
        if not member_id and identity.group_instance_id is not None:
            member_id = self.log.members.static_id(identity.group_instance_id) or ""
        member = self.log.check_member(member_id, identity.group_instance_id)
        self.rebalance.remove_member(member, decision)
        return f"{member_id} ({identity.reason})" if identity.reason else member_id

    # -- the coordinator's own ------------------------------------------------------------------------------------

    def on_loaded(self, now_ms: int, *, is_converted: bool = False) -> None:
        """Start after the log was replayed: renew all sessions.

        A group above group.max.size rebalances, and the first members to join stay. `is_converted`: the group was a
        KIP-848 group and has had no generation since. Its members may not have all their assigned partitions yet.
        Deviation: Apache Kafka loses this fact with the coordinator that converted the group: such partitions have no
        owner until another event makes the group rebalance. Here it
        rebalances at once, because the fact is in the log.
        """
        self.rebalance.renew_sessions(now_ms)
        if len(self.log.members) > self._settings.config.group_max_size:
            self.rebalance.prepare_rebalance("group.max.size is smaller than the group", GroupDecision(), now_ms)
        elif is_converted and len(self.log.members):
            self.rebalance.prepare_rebalance("the group has just become a classic one", GroupDecision(), now_ms)

    def die(self) -> None:
        """Move to DEAD: the group has been deleted."""
        self.log.transition_to(ClassicState.DEAD)

    # -- time -----------------------------------------------------------------------------------------------------

    def deadline_ms(self) -> int | None:
        """Return when to call on_time next (monotonic), or None. May be too early."""
        return self.rebalance.deadline_ms()

    def on_time(self, now_ms: int) -> GroupDecision:
        """Decide what has expired. If the decision has a record, call again after its replay for the rest."""
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
        """Raise ApiError unless a member of this generation commits, or a non-member while the group is empty."""
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
            # The member has joined this generation, so its partitions are about to change.
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        return None

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if self.log.is_dead:
            raise self._not_found()

    def check_offset_delete(self) -> None:
        """Raise NON_EMPTY_GROUP if the members are not consumers: their subscriptions are unknown."""
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
        """Return since when (wall clock ms) an offset committed at that time is unused, or None if it is in use."""
        if self.log.protocol_type is None:
            return commit_timestamp_ms
        if self.log.is_empty:
            return commit_timestamp_ms if self.log.state_since_ms == NO_TIMESTAMP else self.log.state_since_ms
        is_known = self.log.protocol_type == CONSUMER_PROTOCOL and self.log.has_known_subscriptions
        return commit_timestamp_ms if is_known and self.log.state is ClassicState.STABLE else None
