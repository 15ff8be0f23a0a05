"""The deadlines of a streams group: soft state, lost with the coordinator.

Each member has a session. A member that must revoke tasks has its rebalance time-out to leave its epoch. A group
without members waits for more before its first assignment (group.streams.initial.rebalance.delay.ms). A new coordinator
does not wait, and starts sessions and rebalance time-outs again, as in Apache Kafka.
"""

from kafkapy.group.sessions import Sessions
from kafkapy.group.shared_rules import FENCE_RETRY_MS
from kafkapy.group.streams.member import StreamsMember
from kafkapy.group.streams.state import StreamsGroupLog
from kafkapy.group.streams.tasks import MemberState


class StreamsTimers:
    """The deadlines of one group."""

    def __init__(self, log: StreamsGroupLog) -> None:
        self.sessions = Sessions()
        self.initial_delay_until_ms: int | None = None
        self._log = log
        self._rebalances: dict[str, tuple[int, int]] = {}
        """By member id: the epoch that the member must leave, and the deadline for that."""

    def deadline_ms(self) -> int | None:
        """Return when something may be due (monotonic), None if nothing is pending."""
        if not self._rebalances and self.initial_delay_until_ms is None:  # nearly always, after each heartbeat
            return self.sessions.deadline_ms()
        deadlines = [until_ms for _, until_ms in self._rebalances.values()]
        deadlines += [each for each in (self.sessions.deadline_ms(), self.initial_delay_until_ms) if each is not None]
        return min(deadlines, default=None)

    # -- the first assignment -------------------------------------------------------------------------------------

    def start_initial_delay(self, until_ms: int) -> None:
        """Start the delay, unless it is running."""
        if self.initial_delay_until_ms is None:
            self.initial_delay_until_ms = until_ms

    @property
    def is_delayed(self) -> bool:
        return self.initial_delay_until_ms is not None

    def maybe_end_initial_delay(self, now_ms: int) -> bool:
        """End the delay if its time is over; return whether it did."""
        if self.initial_delay_until_ms is None or now_ms < self.initial_delay_until_ms:
            return False
        self.initial_delay_until_ms = None
        return True

    # -- members --------------------------------------------------------------------------------------------------

    def on_reconciled(self, member: StreamsMember, now_ms: int) -> None:
        """Start the rebalance time-out of a member that must revoke tasks after a change of its assignment."""
        if member.state is MemberState.UNREVOKED_TASKS:
            self._rebalances[member.member_id] = member.member_epoch, now_ms + member.rebalance_timeout_ms
        else:
            self._rebalances.pop(member.member_id, None)

    def on_replay(self, member_id: str) -> None:
        """Update the deadlines after a record of a member: remove those of a removed one, start those of a new one."""
        member = self._log.members.get(member_id)
        self.sessions.on_replay(member_id, is_member=member is not None)
        if member is None:
            self._rebalances.pop(member_id, None)

    def on_loaded(self, now_ms: int) -> None:
        """Start the rebalance time-outs of all members that must revoke tasks."""
        for member in self._log.members.values():
            self.on_reconciled(member, now_ms)

    def late_members(self, now_ms: int, session_timeout_ms: int) -> list[str]:
        """Return the members that missed a deadline, and again after FENCE_RETRY_MS if they are still members."""
        members = self._log.members
        late = dict.fromkeys(self.sessions.late_members(members, now_ms, session_timeout_ms))
        for member_id, (epoch, until_ms) in list(self._rebalances.items()):
            member = members.get(member_id)
            if member is None or member.member_epoch != epoch:
                del self._rebalances[member_id]
            elif now_ms >= until_ms:
                late[member_id] = None
                self._rebalances[member_id] = epoch, now_ms + FENCE_RETRY_MS
        return list(late)
