"""The sessions of members of share and streams groups: soft state, lost with the coordinator.

Those of classic members are in classic/rebalance.py, those of KIP-848 members in consumer/timers.py.

A member that sends no heartbeat for its session time-out is removed. When a new coordinator loads a member from the
log, its session begins again.
"""

from collections.abc import Collection

from kafkapy.group.shared_rules import FENCE_RETRY_MS


class Sessions:
    """The deadlines of the members, by member id."""

    def __init__(self) -> None:
        self._until_ms: dict[str, int] = {}
        self._earliest_ms: int | None = None
        """A lower bound of all deadlines; None if there are none; 0 if members may be without deadlines yet."""

    def deadline_ms(self) -> int | None:
        """Return when to call late_members next (monotonic), None if there are no members. May be too early."""
        return self._earliest_ms

    def touch(self, member_id: str, until_ms: int) -> None:
        """Renew a member's session."""
        self._until_ms[member_id] = until_ms
        if self._earliest_ms is None or until_ms < self._earliest_ms:
            self._earliest_ms = until_ms

    def on_replay(self, member_id: str, *, is_member: bool) -> None:
        """Drop the session of a removed member; that of a new one begins at the next `late_members`."""
        if not is_member:
            self._until_ms.pop(member_id, None)
        elif member_id not in self._until_ms:
            self._earliest_ms = 0

    def late_members(self, member_ids: Collection[str], now_ms: int, timeout_ms: int) -> list[str]:
        """Return the members whose session has expired, the earliest first.

        They are returned again after FENCE_RETRY_MS if they are still members.
        """
        if self._earliest_ms is None or now_ms < self._earliest_ms:
            return []
        earliest_ms = min(self._until_ms.values(), default=now_ms)
        assert earliest_ms >= self._earliest_ms, "a session that ends before the bound would end late"
        deadlines = {member_id: self._until_ms.get(member_id, now_ms + timeout_ms) for member_id in member_ids}
        late = [member_id for member_id, until_ms in deadlines.items() if now_ms >= until_ms]
        self._until_ms = deadlines | dict.fromkeys(late, now_ms + FENCE_RETRY_MS)
        self._earliest_ms = min(self._until_ms.values(), default=None)
        assert self._earliest_ms is not None or not member_ids, "members without deadlines would never expire"
        return sorted(late, key=deadlines.__getitem__)
