"""The phases of a classic rebalance: park joins, begin a generation, park syncs; and all time-outs of a group.

1. Join. Each JoinGroup is parked until all members have joined again, and all pending members (KIP-394) have joined
   with the id that MEMBER_ID_REQUIRED gave them; at most for the longest rebalance time-out among the members. An
   empty group waits group.initial.rebalance.delay.ms instead, and as long again whenever a new member has joined
   meanwhile, at most that time-out. Dynamic members that have not joined by then are removed; static members stay,
   because they may be restarting.
2. A new generation begins: a leader is elected, and the parked JoinGroups are answered.
3. Sync. Each SyncGroup is parked until the leader's has brought the assignment. Members that send none within the same
   time-out are removed, the leader too, and the others rebalance.

Methods add their responses and records to the decision that they are given. Only `_decide_empty` adds a record.
"""

from collections.abc import Callable

from kafkapy.dataclass import dataclass
from kafkapy.group.classic.members import ClassicMember
from kafkapy.group.classic.state import ClassicGroupLog
from kafkapy.group.classic.states import NEXT_STATES, ClassicState
from kafkapy.group.decision import GroupDecision, ParkedResponse
from kafkapy.group.settings import GroupSettings
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.group_metadata_value import GroupMetadataValue
from kafkapy.protocol.messages.join_group_response import JoinGroupResponse, JoinGroupResponseMember
from kafkapy.protocol.messages.sync_group_response import SyncGroupResponse

NO_MEMBER_ID = ""
MAX_PENDING_MEMBERS = 1_000
"""Member ids of one group that were given out and not used yet.

Deviation: Apache Kafka keeps each until the session time-out that its client named, up to 30 minutes. Here the oldest
is forgotten, because any client with the right to read could fill the memory. A client that joins with a forgotten id
gets another one.
"""


@dataclass(slots=True)
class InitialDelay:
    """The delay of a group's first rebalance: the length of this round, and the time left for further rounds."""

    round_ms: int
    remaining_ms: int
    has_new_member: bool = False


class ClassicRebalance:
    """The parked requests and deadlines of a classic group: soft state. Updates the group's log when a phase ends."""

    def __init__(self, log: ClassicGroupLog, settings: GroupSettings) -> None:
        self._log = log
        self._settings = settings
        self.pending_members: dict[str, int] = {}
        """Ids given out by MEMBER_ID_REQUIRED, each with the deadline (monotonic) for joining with it."""
        self.parked_joins: dict[str, int] = {}
        """By member id: the token of its parked JoinGroup."""
        self.parked_syncs: dict[str, int] = {}
        """By member id: the token of its parked SyncGroup."""
        self._unsynced: set[str] = set()
        """Members that have not sent SyncGroup in this generation yet."""
        self._join_deadline_ms: int | None = None
        self._sync_deadline_ms: int | None = None
        self._is_initial = False
        """Whether the group was empty before this PREPARING_REBALANCE: only then it waits for the initial delay."""
        self._initial_delay: InitialDelay | None = None
        self._earliest_deadline_ms: int | None = None
        """A lower bound of all deadlines: heartbeats move their own deadline without recomputing this minimum."""

    # -- the join phase -------------------------------------------------------------------------------------------

    def rebalance_or_complete(self, reason: str, decision: GroupDecision, now_ms: int) -> None:
        """Begin a rebalance, or, if one is collecting joins already, complete it when all members have joined."""
        if ClassicState.PREPARING_REBALANCE in NEXT_STATES[self._log.state]:
            self.prepare_rebalance(reason, decision, now_ms)
        else:
            self._log.history.begin(reason, self._log.wall_ms())
            self.maybe_complete_join(decision, now_ms)

    def prepare_rebalance(self, reason: str, decision: GroupDecision, now_ms: int) -> None:
        """Begin a rebalance: all members must join again.

        If the current generation has not got its assignment, the members' previous assignments are cleared.
        """
        if self._log.state is ClassicState.COMPLETING_REBALANCE:
            for member in self._log.members:
                member.assignment = b""
        assert self._join_deadline_ms is None, "the phase before still waits for joins"
        assert self._initial_delay is None, "the phase before still has its delay"
        self._refuse_syncs(ErrorCode.REBALANCE_IN_PROGRESS, decision, now_ms)
        self._unsynced.clear()
        self._sync_deadline_ms = None
        self._is_initial = self._log.is_empty
        self._log.transition_to(ClassicState.PREPARING_REBALANCE)
        self._log.history.begin(reason, self._log.state_since_ms)
        # An empty group waits for more members first (group.initial.rebalance.delay.ms): each that joins prolongs it,
        # up to the longest rebalance time-out.
        if self._is_initial:
            delay_ms = max(self._settings.config.group_initial_rebalance_delay_ms, 0)
            remaining_ms = max(self._log.members.rebalance_timeout_ms - delay_ms, 0)
            self._initial_delay = InitialDelay(delay_ms, remaining_ms)
            self._wait_for_joins(delay_ms, now_ms)
        elif self._have_all_joined():
            self._complete_join(decision, now_ms)
        else:
            self._wait_for_joins(self._log.members.rebalance_timeout_ms, now_ms)

    def _have_all_joined(self) -> bool:
        return len(self.parked_joins) == len(self._log.members) and not self.pending_members

    def maybe_complete_join(self, decision: GroupDecision, now_ms: int) -> bool:
        """Begin the generation if all members have joined. A first rebalance always waits for its initial delay."""
        is_waiting = self._log.state is ClassicState.PREPARING_REBALANCE and not self._is_initial
        if is_waiting and self._have_all_joined():
            self._complete_join(decision, now_ms)
            return True
        return False

    def _wait_for_joins(self, wait_ms: int, now_ms: int) -> None:
        self._join_deadline_ms = now_ms + wait_ms
        self._add_deadline(self._join_deadline_ms)

    def _extend_initial_delay(self, now_ms: int) -> bool:
        """Wait another round if a member joined in this one and there is time left."""
        delay = self._initial_delay
        if delay is None or not delay.has_new_member or not delay.remaining_ms:
            return False
        round_ms = min(max(self._settings.config.group_initial_rebalance_delay_ms, 0), delay.remaining_ms)
        self._initial_delay = InitialDelay(round_ms, max(delay.remaining_ms - delay.round_ms, 0))
        self._wait_for_joins(round_ms, now_ms)
        return True

    def add_pending_member(self, member_id: str, deadline_ms: int) -> None:
        """Keep a member id that MEMBER_ID_REQUIRED gives out, until a JoinGroup uses it or its deadline passes."""
        assert member_id not in self._log.members, f"{member_id} is given out twice"
        if len(self.pending_members) >= MAX_PENDING_MEMBERS:
            del self.pending_members[next(iter(self.pending_members))]
        self.pending_members[member_id] = deadline_ms
        assert len(self.pending_members) <= MAX_PENDING_MEMBERS, f"{len(self.pending_members)} ids are given out"
        self._add_deadline(deadline_ms)

    def remove_pending_member(self, member_id: str) -> bool:
        """Remove an id that was given out by MEMBER_ID_REQUIRED; return whether it was pending."""
        return self.pending_members.pop(member_id, None) is not None

    def park_join(self, member_id: str, token: int) -> None:
        """Park a member's JoinGroup until the next generation."""
        assert member_id in self._log.members, "only members are answered at the end of the phase"
        assert member_id not in self.parked_joins, "the request that is parked already would never be answered"
        self.parked_joins[member_id] = token

    def park_sync(self, member_id: str, token: int) -> None:
        """Park a member's SyncGroup until the assignment."""
        assert self._log.state is ClassicState.COMPLETING_REBALANCE, "no assignment would come"
        assert member_id not in self.parked_syncs, "the request that is parked already would never be answered"
        self.parked_syncs[member_id] = token

    def add_member(self, member: ClassicMember, token: int, deadline_ms: int) -> None:
        """Add a new member and park its JoinGroup until `deadline_ms`. During the initial delay, extend that."""
        if self._initial_delay is not None:
            self._initial_delay.has_new_member = True
        self.remove_pending_member(member.member_id)
        self._log.members.add(member)
        self.park_join(member.member_id, token)
        self.schedule_session(member, deadline_ms)

    def rename_unsynced(self, member_id: str, new_member_id: str) -> None:
        """Replace the id of a static member that has not sent SyncGroup yet."""
        if member_id in self._unsynced:
            self._unsynced.remove(member_id)
            self._unsynced.add(new_member_id)

    # -- a new generation -----------------------------------------------------------------------------------------

    def _complete_join(self, decision: GroupDecision, now_ms: int) -> None:
        """End the join phase with the members that have joined."""
        assert self._log.state is ClassicState.PREPARING_REBALANCE, "there is no join phase to end"
        assert all(member_id in self._log.members for member_id in self.parked_joins), "only members can join"
        self._join_deadline_ms = self._initial_delay = None
        self._is_initial = False
        for member in [member for member in self._log.members if member.member_id not in self.parked_joins]:
            if not member.is_static:
                self._log.members.remove(member.member_id)
        if not len(self._log.members):
            self._decide_empty(decision)
        elif not self.parked_joins:
            # Only static members are left, and none has joined. Wait for them until their sessions expire.
            self._wait_for_joins(self._log.members.rebalance_timeout_ms, now_ms)
        else:
            assert not self.parked_syncs, "a SyncGroup of the generation before would get this one's assignment"
            self._log.members.elect_among(self.parked_joins)
            self._log.begin_generation()
            self._unsynced = {member.member_id for member in self._log.members}
            self._respond_to_joins(decision, now_ms)
            self._sync_deadline_ms = now_ms + self._log.members.rebalance_timeout_ms
            self._add_deadline(self._sync_deadline_ms)

    def _decide_empty(self, decision: GroupDecision) -> None:
        record = self._log.empty_record()
        value = record.value
        assert isinstance(value, GroupMetadataValue)
        assert not decision.records, "one phase ends at a time"
        decision.records.append(record)

        def on_failed(code: int) -> list[ParkedResponse]:
            """Become empty all the same. A coordinator that loads the log finds the old members and expires them."""
            self._log.replay_metadata(value)
            return decision.parked_responses

        decision.on_failed = on_failed

    def _respond_to_joins(self, decision: GroupDecision, now_ms: int) -> None:
        for member in self._log.members:
            member.is_new = False
            self.renew_session(member, now_ms)
            token = self.parked_joins.pop(member.member_id, None)
            if token is not None:
                decision.parked_responses.append(ParkedResponse(token, self.join_response(member.member_id)))
        assert not self.parked_joins, "only members have parked requests"

    def join_response(self, member_id: str, *, skip_assignment: bool = False) -> JoinGroupResponse:
        """Return the response for a member of this generation; only the leader's has the members' subscriptions."""
        assert member_id in self._log.members, f"{member_id} is not in this generation"
        is_leader = member_id == self._log.members.leader_id
        return JoinGroupResponse(
            generation_id=self._log.generation,
            protocol_type=self._log.protocol_type,
            protocol_name=self._log.protocol_name,
            leader=self._log.members.leader_id or NO_MEMBER_ID,
            skip_assignment=skip_assignment,
            member_id=member_id,
            members=self._subscriptions() if is_leader else [],
        )

    def _subscriptions(self) -> list[JoinGroupResponseMember]:
        return [
            JoinGroupResponseMember(
                member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(self._log.protocol_name),
            )
            for member in self._log.members
        ]

    # -- members that leave, and refused requests -----------------------------------------------------------------

    def refuse_all_parked(self, code: ErrorCode, decision: GroupDecision) -> None:
        """Answer all parked requests with an error, because the group is about to be converted."""
        for member in self._log.members:
            self.refuse_parked(member, code, member.member_id, decision)

    def remove_member(self, member: ClassicMember, decision: GroupDecision) -> None:
        """Remove a member and answer its parked requests. The caller starts the rebalance.

        Deviation: Apache Kafka leaves a parked SyncGroup unanswered here. Here it is answered, because the client would
        wait until its time-out.
        """
        self.refuse_parked(member, ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER_ID, decision)
        self._unsynced.discard(member.member_id)
        self._log.members.remove(member.member_id)
        self._forget_synced()

    def refuse_parked(self, member: ClassicMember, code: ErrorCode, named: str, decision: GroupDecision) -> None:
        """Answer a member's parked requests with an error; `named` is the member id in the JoinGroup response."""
        join_token = self.parked_joins.pop(member.member_id, None)
        if join_token is not None:
            decision.parked_responses.append(
                ParkedResponse(join_token, JoinGroupResponse(error_code=code, member_id=named))
            )
        sync_token = self.parked_syncs.pop(member.member_id, None)
        if sync_token is not None:
            decision.parked_responses.append(ParkedResponse(sync_token, SyncGroupResponse(error_code=code)))

    def _refuse_syncs(self, code: int, decision: GroupDecision, now_ms: int) -> None:
        """Answer all parked SyncGroups with an error code, and renew the sessions of their members."""
        for member_id, token in self.parked_syncs.items():
            decision.parked_responses.append(ParkedResponse(token, SyncGroupResponse(error_code=code)))
            self.renew_session(self._log.members[member_id], now_ms)
        self.parked_syncs.clear()

    def respond_to_syncs(
        self, response_of: Callable[[str], SyncGroupResponse], decision: GroupDecision, now_ms: int
    ) -> None:
        """Answer all parked SyncGroups once the decision's record, the assignment, is committed.

        If the record cannot be appended, they are refused with that error and the group rebalances.
        """
        waiting, self.parked_syncs = self.parked_syncs, {}
        for member_id, token in waiting.items():
            decision.parked_responses.append(ParkedResponse(token, response_of(member_id)))
            self.renew_session(self._log.members[member_id], now_ms)

        def on_failed(code: int) -> list[ParkedResponse]:
            failed = GroupDecision()
            assert not self.parked_syncs, "a SyncGroup came between the decision and its append"
            self.parked_syncs = waiting
            self._refuse_syncs(code, failed, now_ms)
            self.prepare_rebalance("the assignment could not be written", failed, now_ms)
            return failed.parked_responses

        decision.on_failed = on_failed

    def mark_synced(self, member_id: str) -> None:
        """Record that the member has sent SyncGroup in this generation."""
        self._unsynced.discard(member_id)
        self._forget_synced()

    def _forget_synced(self) -> None:
        if not self._unsynced:
            self._sync_deadline_ms = None

    # -- time -----------------------------------------------------------------------------------------------------

    def renew_session(self, member: ClassicMember, now_ms: int) -> None:
        self.schedule_session(member, now_ms + member.session_timeout_ms)

    def renew_sessions(self, now_ms: int) -> None:
        for member in self._log.members:
            self.renew_session(member, now_ms)

    def schedule_session(self, member: ClassicMember, deadline_ms: int) -> None:
        member.session_deadline_ms = deadline_ms
        self._add_deadline(deadline_ms)

    def _add_deadline(self, deadline_ms: int) -> None:
        earliest_ms = self._earliest_deadline_ms
        if earliest_ms is None or deadline_ms < earliest_ms:
            self._earliest_deadline_ms = deadline_ms

    def deadline_ms(self) -> int | None:
        """Return when to call on_time next (monotonic), or None. May be too early."""
        return self._earliest_deadline_ms

    def on_time(self, now_ms: int) -> GroupDecision:
        """Decide what has expired. If the decision has a record, call again after its replay for the rest."""
        decision = GroupDecision()
        if self._earliest_deadline_ms is None or now_ms < self._earliest_deadline_ms:
            return decision
        assert min(self._deadlines(), default=now_ms) >= self._earliest_deadline_ms, "a deadline would be missed"
        for step in (self._expire_pending, self._expire_sessions, self._expire_join, self._expire_sync):
            if not decision.records:
                step(decision, now_ms)
        self._earliest_deadline_ms = min(self._deadlines(), default=None)
        is_woken = self._join_deadline_ms is not None or self._log.state is not ClassicState.PREPARING_REBALANCE
        assert is_woken or decision.records, "a rebalance without a deadline might never end"
        return decision

    def _deadlines(self) -> list[int]:
        deadlines = [self._join_deadline_ms, self._sync_deadline_ms]
        deadlines += [member.session_deadline_ms for member in self._log.members]
        deadlines += self.pending_members.values()
        return [deadline_ms for deadline_ms in deadlines if deadline_ms is not None]

    def _expire_pending(self, decision: GroupDecision, now_ms: int) -> None:
        late = [member_id for member_id, deadline_ms in self.pending_members.items() if deadline_ms <= now_ms]
        for member_id in late:
            del self.pending_members[member_id]
        if late:
            self.maybe_complete_join(decision, now_ms)

    def _expire_sessions(self, decision: GroupDecision, now_ms: int) -> None:
        """Remove members whose session expired. A member with a parked request stays, unless that is its first join."""
        for member in list(self._log.members):
            deadline_ms = member.session_deadline_ms
            if deadline_ms is None or deadline_ms > now_ms or member.member_id not in self._log.members:
                continue
            has_parked = member.member_id in self.parked_joins or member.member_id in self.parked_syncs
            if has_parked and not member.is_new:
                member.session_deadline_ms = None
                continue
            self.remove_member(member, decision)
            reason = f"member {member.member_id} was not heard of for {member.session_timeout_ms} ms"
            if member.is_new:
                reason = f"new member {member.member_id} waited too long for the others"
            self.rebalance_or_complete(reason, decision, now_ms)
            if decision.records:
                return

    def _expire_join(self, decision: GroupDecision, now_ms: int) -> None:
        if self._join_deadline_ms is None or now_ms < self._join_deadline_ms:
            return
        assert self._log.state is ClassicState.PREPARING_REBALANCE
        if not self._extend_initial_delay(now_ms):
            self._complete_join(decision, now_ms)

    def _expire_sync(self, decision: GroupDecision, now_ms: int) -> None:
        if self._sync_deadline_ms is None or now_ms < self._sync_deadline_ms:
            return
        assert self._log.state in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE), "nobody has to sync"
        assert self._unsynced, "the deadline ends with the last SyncGroup"
        self._sync_deadline_ms = None
        late = [self._log.members[member_id] for member_id in self._unsynced]
        names = ", ".join(member.member_id for member in late)
        for member in late:
            self.remove_member(member, decision)
        self.prepare_rebalance(f"members did not ask for their assignment in time: {names}", decision, now_ms)
