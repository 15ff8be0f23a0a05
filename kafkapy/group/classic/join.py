"""The steps of a JoinGroup to a classic group: admit or update the member, and rebalance if needed.

From version 4 a dynamic member without an id first gets one, with MEMBER_ID_REQUIRED, and joins again with it
(KIP-394). So a client that gives up and retries leaves no unused members. A static member (KIP-345) that joins without
a member id replaces the member with its instance id, which is fenced. In a stable group this causes no rebalance if the
group's protocol does not change. If the leader is replaced so, the response from version 9 on says that it leads and
must skip the assignment (KIP-814). Older versions get the previous member id as the leader's, so that the client does
not act as leader.
"""

from kafkapy.errors import ApiError
from kafkapy.group.classic.members import ClassicMember, Protocols
from kafkapy.group.classic.rebalance import NO_MEMBER_ID, ClassicRebalance
from kafkapy.group.classic.state import ClassicGroupLog, share_of
from kafkapy.group.classic.states import ClassicState
from kafkapy.group.decision import Client, GroupDecision, ParkedResponse
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.join_group_request import JoinGroupRequest
from kafkapy.protocol.messages.join_group_response import JoinGroupResponse
from kafkapy.types import Uuid

MEMBER_ID_REQUIRED_SINCE = 4
SKIP_ASSIGNMENT_SINCE = 9
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long a new member's first join may be parked: it sends no heartbeats meanwhile, so its client may be gone."""


class Join:
    """A JoinGroup request with its context."""

    __slots__ = ("client", "new_uuid", "now_ms", "protocols", "request", "token", "version")

    def __init__(
        self, request: JoinGroupRequest, *, version: int, client: Client, token: int, now_ms: int, new_uuid: Uuid
    ) -> None:
        """`new_uuid` is used to generate the id of a member that has none."""
        self.request = request
        self.version = version
        self.client = client
        self.token = token
        self.now_ms = now_ms
        self.new_uuid = new_uuid
        self.protocols: Protocols = tuple((protocol.name, protocol.metadata) for protocol in request.protocols)

    def new_member_id(self) -> str:
        name = self.client.client_id if self.request.group_instance_id is None else self.request.group_instance_id
        digits = self.new_uuid.hex()
        return f"{name}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    @property
    def reason(self) -> str:
        return f" (client says: {self.request.reason})" if self.request.reason else ""


class JoinDecision:
    """Decides one JoinGroup."""

    def __init__(self, log: ClassicGroupLog, rebalance: ClassicRebalance, max_size: int, join: Join) -> None:
        """max_size: group.max.size."""
        self._log = log
        self._rebalance = rebalance
        self._max_size = max_size
        self._join = join
        self._decision = GroupDecision()

    def decide(self) -> GroupDecision:
        """Decide the request. Raises ApiError without having changed anything."""
        request = self._join.request
        if not self._has_room_for(request.member_id):
            self._refuse_for_size()
            return self._decision
        self._check_protocols()
        if request.member_id:
            self._join_known()
        else:
            self._join_unknown()
        return self._decision

    def _has_room_for(self, member_id: str) -> bool:
        """Return whether group.max.size admits the member. In a rebalance the first members to join stay."""
        log, parked_joins, max_size = self._log, self._rebalance.parked_joins, self._max_size
        if log.is_empty:
            return True
        if log.state is ClassicState.PREPARING_REBALANCE:
            return member_id in parked_joins or len(parked_joins) < max_size
        return member_id in log.members or len(log.members) < max_size

    def _refuse_for_size(self) -> None:
        """Refuse the request. A member that was in the group is removed, so that the others can go on without it."""
        join, decision = self._join, self._decision
        member_id = join.request.member_id
        decision.response = JoinGroupResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED, member_id=NO_MEMBER_ID)
        member = self._log.members.find(member_id)
        if member is not None:
            self._rebalance.remove_member(member, decision)
        self._rebalance.remove_pending_member(member_id)
        self._rebalance.maybe_complete_join(decision, join.now_ms)

    def _check_protocols(self) -> None:
        join = self._join
        names = [name for name, _ in join.protocols]
        protocol_type = join.request.protocol_type
        if self._log.is_empty:
            is_consistent = bool(protocol_type and names)
        else:
            is_consistent = protocol_type == self._log.protocol_type and self._log.members.has_common_protocol(names)
        if not is_consistent:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    # -- members without an id ------------------------------------------------------------------------------------

    def _join_unknown(self) -> None:
        """Replace a static member that came back, give a dynamic member its id, or add the member."""
        join, decision = self._join, self._decision
        member_id = join.new_member_id()
        instance_id = join.request.group_instance_id
        old_id = self._log.members.static_id(instance_id) if instance_id is not None else None
        if old_id is not None:
            self._replace_static(old_id, member_id)
        elif instance_id is None and join.version >= MEMBER_ID_REQUIRED_SINCE:
            self._rebalance.add_pending_member(member_id, join.now_ms + join.request.session_timeout_ms)
            decision.response = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        else:
            self._add_member(member_id)

    def _add_member(self, member_id: str) -> None:
        join, decision = self._join, self._decision
        request = join.request
        member = ClassicMember(
            member_id=member_id,
            instance_id=request.group_instance_id,
            client_id=join.client.client_id,
            client_host=join.client.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=join.protocols,
            is_new=True,
        )
        self._log.adopt_protocol_type(request.protocol_type)
        self._rebalance.add_member(member, join.token, join.now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance.rebalance_or_complete(f"member {member_id} joined{join.reason}", decision, join.now_ms)

    # -- members with an id ---------------------------------------------------------------------------------------

    def _join_known(self) -> None:
        """Update the member and rebalance; respond with the current generation if nothing has changed."""
        join, decision = self._join, self._decision
        request = join.request
        if request.member_id in self._rebalance.pending_members and request.group_instance_id is None:
            self._add_member(request.member_id)
            return
        member = self._log.check_member(request.member_id, request.group_instance_id)
        assert not self._log.is_empty, "an empty group has no members"
        is_leader = member.member_id == self._log.members.leader_id
        has_changes = member.protocols != join.protocols
        if self._log.state is ClassicState.PREPARING_REBALANCE:
            self._update_member(member)
            self._rebalance.maybe_complete_join(decision, join.now_ms)
            return
        if has_changes:
            reason = f"member {member.member_id} changed its subscription or protocols{join.reason}"
        elif is_leader and self._log.state is ClassicState.STABLE:
            # The leader may know of changed topics or partitions that need a new assignment.
            reason = f"leader {member.member_id} joined again{join.reason}"
        else:
            # A retry, because the last response was lost, or no change: return the current generation.
            decision.response = self._rebalance.join_response(member.member_id)
            return
        self._update_member(member)
        self._rebalance.rebalance_or_complete(reason, decision, join.now_ms)

    def _update_member(self, member: ClassicMember) -> None:
        """Update the member from the request and park its join. Refuse its earlier parked requests."""
        join, decision = self._join, self._decision
        self._update_from_request(member)
        self._rebalance.refuse_parked(member, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id, decision)
        self._rebalance.park_join(member.member_id, join.token)

    def _update_from_request(self, member: ClassicMember) -> None:
        """Set what a JoinGroup may change: protocols and time-outs."""
        join = self._join
        self._log.members.set_protocols(member, join.protocols)
        member.rebalance_timeout_ms = join.request.rebalance_timeout_ms
        member.session_timeout_ms = join.request.session_timeout_ms

    # -- static members that come back ----------------------------------------------------------------------------

    def _replace_static(self, old_id: str, member_id: str) -> None:
        """Replace the static member's id by a new one.

        Deviation: Apache Kafka keeps showing the client id and host of the previous member. Here they are updated,
        because an operator looks for the process that is there.
        """
        join, decision = self._join, self._decision
        old, leader_id = self._log.members[old_id], self._log.members.leader_id
        self._rebalance.refuse_parked(old, ErrorCode.FENCED_INSTANCE_ID, old_id, decision)
        member = self._log.members.rename(old_id, member_id)
        self._rebalance.rename_unsynced(old_id, member_id)
        self._update_from_request(member)
        member.client_id, member.client_host = join.client.client_id, join.client.client_host
        self._rebalance.renew_session(member, join.now_ms)
        if self._log.state is ClassicState.STABLE and self._log.members.select_protocol() == self._log.protocol_name:
            self._write_replaced(old, member, leader_id)
            return
        self._rebalance.park_join(member_id, join.token)
        reason = f"static member {member.instance_id} came back as {member_id}{join.reason}"
        self._rebalance.rebalance_or_complete(reason, decision, join.now_ms)

    def _write_replaced(self, old: ClassicMember, member: ClassicMember, leader_id: str | None) -> None:
        """Write the new member id, without a rebalance."""
        join, decision = self._join, self._decision
        is_leader = member.member_id == self._log.members.leader_id
        if join.version >= SKIP_ASSIGNMENT_SINCE:
            decision.response = self._rebalance.join_response(member.member_id, skip_assignment=is_leader)
        else:
            decision.response = self._rebalance.join_response(member.member_id)
            decision.response.leader, decision.response.members = leader_id or NO_MEMBER_ID, []
        decision.records.append(self._log.metadata_record())
        self._log.history.replace(share_of(member))

        def on_failed(code: int) -> list[ParkedResponse]:
            self._undo_replacement(old, member)
            return decision.parked_responses

        decision.on_failed = on_failed

    def _undo_replacement(self, old: ClassicMember, member: ClassicMember) -> None:
        """Undo the replacement, because its record could not be appended."""
        self._log.members.set_protocols(member, old.protocols)
        restored = self._log.members.rename(member.member_id, old.member_id)
        restored.rebalance_timeout_ms, restored.session_timeout_ms = old.rebalance_timeout_ms, old.session_timeout_ms
        restored.client_id, restored.client_host = old.client_id, old.client_host
        self._rebalance.renew_session(restored, self._join.now_ms)
        self._rebalance.rename_unsynced(member.member_id, old.member_id)
