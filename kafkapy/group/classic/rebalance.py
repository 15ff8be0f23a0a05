"""The phases of a classic rebalance: request joins, park them, begin a generation, park syncs; and all time-outs.

Joins are parked until every member has joined again and every id given out by MEMBER_ID_REQUIRED has been used, at most
for the longest rebalance time-out among the members. The first rebalance of an empty group waits
group.initial.rebalance.delay.ms instead, again while new members keep joining, at most that time-out. Dynamic members
that have not joined by then are removed; static members stay, because they may be restarting. After a generation begins
its members have the same time-out to send SyncGroup: those that do not are removed, the leader too, and the others
rebalance.

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
MOST_PENDING_IDS = 1_000
"""Member ids given out and not used yet, of one group.

Deviation: Apache Kafka keeps each until the session time-out that its client named, up to 30 minutes. Here the oldest
is forgotten, because anybody who may read could fill the memory; who joins with a forgotten id is given another.
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
        self.pending: dict[str, int] = {}
        """Ids given out by MEMBER_ID_REQUIRED, each with the deadline (monotonic) for joining with it."""
        self.joining: dict[str, int] = {}
        """By member id: the token of its parked JoinGroup."""
        self.syncing: dict[str, int] = {}
        """By member id: the token of its parked SyncGroup."""
        self._unsynced: set[str] = set()
        """Members that have not sent SyncGroup in this generation yet."""
        self._join_deadline_ms: int | None = None
        self._sync_deadline_ms: int | None = None
        self._is_first = False
        """Whether this PREPARING_REBALANCE came from EMPTY."""
        self._initial_delay: InitialDelay | None = None
        self._earliest_deadline_ms: int | None = None
        """A lower bound of all deadlines: heartbeats move their own deadline without recomputing this minimum."""

    # -- asking for joins -----------------------------------------------------------------------------------------

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
        self._is_first = self._log.is_empty
        self._log.transition_to(ClassicState.PREPARING_REBALANCE)
        self._log.history.begin(reason, self._log.state_since_ms)
        if self._is_first:
            delay_ms = max(self._settings.config.group_initial_rebalance_delay_ms, 0)
            remaining_ms = max(self._log.members.rebalance_timeout_ms - delay_ms, 0)
            self._initial_delay = InitialDelay(delay_ms, remaining_ms)
            self._wait_for_joins(delay_ms, now_ms)
        elif self._has_all_joined():
            self._complete_join(decision, now_ms)
        else:
            self._wait_for_joins(self._log.members.rebalance_timeout_ms, now_ms)

    def _has_all_joined(self) -> bool:
        return len(self.joining) == len(self._log.members) and not self.pending

    def maybe_complete_join(self, decision: GroupDecision, now_ms: int) -> bool:
        """Begin the generation if all members have joined. A first rebalance always waits for its initial delay."""
        is_waiting = self._log.state is ClassicState.PREPARING_REBALANCE and not self._is_first
        if is_waiting and self._has_all_joined():
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

    def wait_for_id(self, member_id: str, deadline_ms: int) -> None:
        """Note a member id given out by MEMBER_ID_REQUIRED and the deadline for joining with it."""
        assert member_id not in self._log.members, f"{member_id} is given out twice"
        if len(self.pending) >= MOST_PENDING_IDS:
            del self.pending[next(iter(self.pending))]
        self.pending[member_id] = deadline_ms
        assert len(self.pending) <= MOST_PENDING_IDS, f"{len(self.pending)} ids are given out"
        self._add_deadline(deadline_ms)

    def forget_id(self, member_id: str) -> bool:
        """Forget a member id given out by MEMBER_ID_REQUIRED; return whether it was pending."""
        return self.pending.pop(member_id, None) is not None

    def wait_to_join(self, member_id: str, token: int) -> None:
        """Park a member's JoinGroup until the next generation."""
        assert member_id in self._log.members, "only members are answered at the end of the phase"
        assert member_id not in self.joining, "the request that is parked already would never be answered"
        self.joining[member_id] = token

    def wait_to_sync(self, member_id: str, token: int) -> None:
        """Park a member's SyncGroup until the assignment."""
        assert self._log.state is ClassicState.COMPLETING_REBALANCE, "no assignment would come"
        assert member_id not in self.syncing, "the request that is parked already would never be answered"
        self.syncing[member_id] = token

    def add_member(self, member: ClassicMember, token: int, deadline_ms: int) -> None:
        """Add a new member and park its JoinGroup until `deadline_ms`. During the initial delay, extend that."""
        if self._initial_delay is not None:
            self._initial_delay.has_new_member = True
        self.forget_id(member.member_id)
        self._log.members.add(member)
        self.wait_to_join(member.member_id, token)
        self.schedule_session(member, deadline_ms)

    def rename_unsynced(self, member_id: str, new_member_id: str) -> None:
        """Replace the id of a static member that has not sent SyncGroup yet."""
        if member_id in self._unsynced:
            self._unsynced.remove(member_id)
            self._unsynced.add(new_member_id)

    # -- beginning a generation -----------------------------------------------------------------------------------

    def _complete_join(self, decision: GroupDecision, now_ms: int) -> None:
        """End the join phase with the members that have joined."""
        assert self._log.state is ClassicState.PREPARING_REBALANCE, "there is no join phase to end"
        assert all(member_id in self._log.members for member_id in self.joining), "only members can join"
        self._join_deadline_ms = self._initial_delay = None
        self._is_first = False
        for member in [member for member in self._log.members if member.member_id not in self.joining]:
            if not member.is_static:
                self._log.members.remove(member.member_id)
        if not len(self._log.members):
            self._decide_empty(decision)
        elif not self.joining:
            # Only static members are left, and none has joined. Wait for them until their sessions expire.
            self._wait_for_joins(self._log.members.rebalance_timeout_ms, now_ms)
        else:
            assert not self.syncing, "a SyncGroup of the generation before would get this one's assignment"
            self._log.members.elect_among(self.joining)
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
            token = self.joining.pop(member.member_id, None)
            if token is not None:
                decision.parked_responses.append(ParkedResponse(token, self.join_response(member.member_id)))
        assert not self.joining, "who waits is a member"

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

    # -- members that go ------------------------------------------------------------------------------------------

    def refuse_all_waiting(self, code: ErrorCode, decision: GroupDecision) -> None:
        """Answer all parked requests with an error, because the group is about to be converted."""
        for member in self._log.members:
            self.refuse_waiting(member, code, member.member_id, decision)

    def remove_member(self, member: ClassicMember, decision: GroupDecision) -> None:
        """Remove a member and answer its parked requests. The caller starts the rebalance.

        Deviation: Apache Kafka leaves a parked SyncGroup unanswered here. Here it is answered, because the client would
        wait until its time-out.
        """
        self.refuse_waiting(member, ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER_ID, decision)
        self._unsynced.discard(member.member_id)
        self._log.members.remove(member.member_id)
        self._forget_synced()

    def refuse_waiting(self, member: ClassicMember, code: ErrorCode, named: str, decision: GroupDecision) -> None:
        """Answer a member's parked requests with an error; `named` is the member id in the JoinGroup response."""
        join_token = self.joining.pop(member.member_id, None)
        if join_token is not None:
            decision.parked_responses.append(
                ParkedResponse(join_token, JoinGroupResponse(error_code=code, member_id=named))
            )
        sync_token = self.syncing.pop(member.member_id, None)
        if sync_token is not None:
            decision.parked_responses.append(ParkedResponse(sync_token, SyncGroupResponse(error_code=code)))

    def _refuse_syncs(self, code: int, decision: GroupDecision, now_ms: int) -> None:
        """Answer all parked SyncGroups with an error code, and renew the sessions of their members."""
        for member_id, token in self.syncing.items():
            decision.parked_responses.append(ParkedResponse(token, SyncGroupResponse(error_code=code)))
            self.renew_session(self._log.members[member_id], now_ms)
        self.syncing.clear()

    def respond_to_syncs(
        self, response_of: Callable[[str], SyncGroupResponse], decision: GroupDecision, now_ms: int
    ) -> None:
        """Answer all parked SyncGroups once the decision's record, the assignment, is committed.

        If the record cannot be appended, they are refused with that error and the group rebalances.
        """
        waiting, self.syncing = self.syncing, {}
        for member_id, token in waiting.items():
            decision.parked_responses.append(ParkedResponse(token, response_of(member_id)))
            self.renew_session(self._log.members[member_id], now_ms)

        def on_failed(code: int) -> list[ParkedResponse]:
            failed = GroupDecision()
            assert not self.syncing, "a SyncGroup came between the decision and its append"
            self.syncing = waiting
            self._refuse_syncs(code, failed, now_ms)
            self.prepare_rebalance("the assignment could not be written", failed, now_ms)
            return failed.parked_responses

        decision.on_failed = on_failed

    def mark_synced(self, member_id: str) -> None:
        """Note that the member has sent SyncGroup in this generation."""
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
        deadlines += self.pending.values()
        return [deadline_ms for deadline_ms in deadlines if deadline_ms is not None]

    def _expire_pending(self, decision: GroupDecision, now_ms: int) -> None:
        late = [member_id for member_id, deadline_ms in self.pending.items() if deadline_ms <= now_ms]
        for member_id in late:
            del self.pending[member_id]
        if late:
            self.maybe_complete_join(decision, now_ms)

    def _expire_sessions(self, decision: GroupDecision, now_ms: int) -> None:
        """Remove members whose session expired. A member with a parked request stays, unless that is its first join."""
        for member in list(self._log.members):
            deadline_ms = member.session_deadline_ms
            if deadline_ms is None or deadline_ms > now_ms or member.member_id not in self._log.members:
                continue
            is_waiting = member.member_id in self.joining or member.member_id in self.syncing
            if is_waiting and not member.is_new:
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
