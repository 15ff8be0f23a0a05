"""The deadlines of a KIP-848 group's members: soft state, lost with the coordinator.

Each member has a session. A member of the consumer protocol that must revoke partitions has its rebalance time-out to
leave its epoch. A classic member has the same time-out to join after it was required to, and to send SyncGroup after it
has joined; its session time-out is that of its JoinGroup. A member that misses a deadline is removed.

When a new coordinator loads a member from the log, its session (with the group's session time-out, for classic members
too until their next request) and its time to revoke begin again, as in Apache Kafka.
"""

from kafkapy.group.consumer.member import ConsumerMember, MemberState
from kafkapy.group.consumer.state import ConsumerGroupLog
from kafkapy.group.settings import GroupSettings
from kafkapy.group.shared_rules import FENCE_RETRY_MS


class ConsumerTimers:
    """The deadlines of the members of a group."""

    def __init__(self, log: ConsumerGroupLog, settings: GroupSettings) -> None:
        self._log = log
        self._settings = settings
        self._sessions: dict[str, int] = {}
        self._rebalances: dict[str, tuple[int, int]] = {}
        """By member id: the epoch that the member must leave, and the deadline for that."""
        self._joins: dict[str, int] = {}
        self._syncs: dict[str, int] = {}
        self._earliest_deadline_ms: int | None = None
        """A lower bound of all deadlines; None if there are none; 0 if members may be without deadlines yet."""

    def deadline_ms(self) -> int | None:
        """Return when to look for late members (monotonic), None if there are no deadlines. May be too early."""
        return self._earliest_deadline_ms

    # -- starting and stopping ------------------------------------------------------------------------------------

    def touch_session(self, member_id: str, now_ms: int, timeout_ms: int | None = None) -> None:
        """Renew the member's session, by default with the group's session time-out."""
        if timeout_ms is None:
            timeout_ms = self._settings.consumer_session_timeout_ms(self._log.group_id)
        self._sessions[member_id] = self._tracked(now_ms + timeout_ms)

    def start_rebalance_timer(self, member: ConsumerMember, now_ms: int) -> None:
        """Give the member its rebalance time-out to leave its current epoch."""
        assert member.state is MemberState.UNREVOKED_PARTITIONS, f"{member.member_id} has nothing to revoke"
        until_ms = self._tracked(now_ms + member.rebalance_timeout_ms)
        self._rebalances[member.member_id] = member.member_epoch, until_ms

    def stop_rebalance_timer(self, member_id: str) -> None:
        self._rebalances.pop(member_id, None)

    def expect_join(self, member: ConsumerMember, now_ms: int) -> None:
        """Start the join time-out of a classic member that must join again, unless it is already running."""
        assert member.uses_classic_protocol, f"{member.member_id} never sends JoinGroup"
        if member.member_id not in self._joins:
            self._joins[member.member_id] = self._tracked(now_ms + member.rebalance_timeout_ms)

    def on_join(self, member_id: str, now_ms: int, *, session_timeout_ms: int, rebalance_timeout_ms: int) -> None:
        """Record that a classic member has joined; start its time-out to send SyncGroup."""
        self._joins.pop(member_id, None)
        self.touch_session(member_id, now_ms, session_timeout_ms)
        self._syncs[member_id] = self._tracked(now_ms + rebalance_timeout_ms)

    def on_sync(self, member: ConsumerMember, now_ms: int) -> None:
        """Record that a classic member has sent SyncGroup: its time-out ends."""
        self._syncs.pop(member.member_id, None)
        self.touch_session(member.member_id, now_ms, member.classic_session_timeout_ms)

    def _tracked(self, deadline_ms: int) -> int:
        """Include a deadline in the earliest one, and return it."""
        earliest_ms = self._earliest_deadline_ms
        self._earliest_deadline_ms = deadline_ms if earliest_ms is None else min(earliest_ms, deadline_ms)
        return deadline_ms

    # -- looking --------------------------------------------------------------------------------------------------

    def late_members(self, now_ms: int) -> list[ConsumerMember]:
        """Return the members that missed a deadline, and again after FENCE_RETRY_MS if they are still members."""
        if self._earliest_deadline_ms is None or now_ms < self._earliest_deadline_ms:
            return []
        assert min(self._sessions.values(), default=now_ms) >= self._earliest_deadline_ms, "a session would end late"
        self._forget_strangers()
        members = self._log.members
        for member in members.values():
            self._start_timers(member, now_ms)
        late = [member for member in members.values() if self._is_late(member, now_ms)]
        for member in late:
            self._forget_deadlines(member.member_id)
            self._sessions[member.member_id] = now_ms + FENCE_RETRY_MS
        assert self._sessions.keys() == members.keys(), "a member without a session would never expire"
        deadlines = [*self._sessions.values(), *self._joins.values(), *self._syncs.values()]
        deadlines += [until_ms for _, until_ms in self._rebalances.values()]
        self._earliest_deadline_ms = min(deadlines, default=None)
        return late

    def _forget_strangers(self) -> None:
        """Drop deadlines of members that are not in the log, and deadlines that have been met or do not apply now."""
        members = self._log.members
        self._sessions = {member_id: until for member_id, until in self._sessions.items() if member_id in members}
        self._rebalances = {
            member_id: (epoch, until_ms)
            for member_id, (epoch, until_ms) in self._rebalances.items()
            if (member := members.get(member_id)) is not None
            and member.state is MemberState.UNREVOKED_PARTITIONS
            and member.member_epoch == epoch
        }
        self._joins = {member_id: until for member_id, until in self._joins.items() if self._is_classic(member_id)}
        self._syncs = {member_id: until for member_id, until in self._syncs.items() if self._is_classic(member_id)}

    def _is_classic(self, member_id: str) -> bool:
        member = self._log.members.get(member_id)
        return member is not None and member.uses_classic_protocol

    def _start_timers(self, member: ConsumerMember, now_ms: int) -> None:
        """Start the timers of a member from the log that has none yet."""
        if member.member_id in self._sessions:
            return
        self.touch_session(member.member_id, now_ms)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self.start_rebalance_timer(member, now_ms)

    def _is_late(self, member: ConsumerMember, now_ms: int) -> bool:
        member_id = member.member_id
        rebalance = self._rebalances.get(member_id)
        deadlines = (self._sessions.get(member_id), self._joins.get(member_id), self._syncs.get(member_id))
        is_late = any(deadline_ms is not None and now_ms >= deadline_ms for deadline_ms in deadlines)
        return is_late or (rebalance is not None and now_ms >= rebalance[1])

    def _forget_deadlines(self, member_id: str) -> None:
        for deadlines in (self._sessions, self._rebalances, self._joins, self._syncs):
            deadlines.pop(member_id, None)

    # -- members --------------------------------------------------------------------------------------------------

    def on_replay(self, member_id: str) -> None:
        """Update deadlines after a record of the member: drop a removed member's, schedule those of a new member."""
        if member_id not in self._log.members:
            self._forget_deadlines(member_id)
        elif member_id not in self._sessions:
            self._earliest_deadline_ms = 0
