"""A follower's progress as its leader sees it: offsets and times of its fetches. Pure.

KIP-16 (a follower lags by time, not by messages), KIP-227 (incremental sessions omit partitions without new data).
"""

from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.replication.partition_read import UNKNOWN_OFFSET

NEVER_MS: Final = -(1 << 62)


@dataclass(slots=True, eq=False)
class SessionTimes:
    """The times of the last fetches of a follower's session."""

    last_fetch_ms: int = NEVER_MS


@dataclass(slots=True)
class FollowerState:
    """A follower's progress, as its fetches show it; unknown until the first one."""

    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    last_fetch_ms: int = NEVER_MS
    leader_end_offset: int = UNKNOWN_OFFSET
    """The leader's log end offset at the last fetch."""
    caught_up_ms: int = NEVER_MS
    """When it last had everything that the leader had: the time of a fetch, or of the one before it."""
    broker_epoch: int | None = None
    """The broker epoch in its last fetch; None before the first."""
    session: SessionTimes | None = None
    """The fetch session of a follower that has the whole log, while the log does not grow.

    Each fetch of the session then counts as a fetch of this partition, though it does not name it.
    """

    def record_fetch(self, *, fetch_offset: int, leader_end_offset: int, now_ms: int) -> None:
        """Record a fetch from fetch_offset, received while the leader's log ended at leader_end_offset."""
        if fetch_offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif 0 <= self.leader_end_offset <= fetch_offset:
            self.caught_up_ms = max(self.caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.leader_end_offset = max(leader_end_offset, self.leader_end_offset)
        self.last_fetch_ms = now_ms

    def begin_leader_epoch(self, now_ms: int, leader_end_offset: int, *, is_in_sync: bool) -> None:
        """Start a new epoch of the same leader: keep the follower's offsets, restart the lag timer if it is in sync."""
        self.session = None
        self.leader_end_offset = leader_end_offset
        self.caught_up_ms = self.last_fetch_ms = now_ms if is_in_sync else NEVER_MS

    def is_caught_up(self, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """Return whether the follower has everything that the leader has, or had it within max_lag_ms."""
        caught_up_ms = self.caught_up_ms if self.session is None else self.session.last_fetch_ms
        return self.log_end_offset == leader_end_offset or now_ms - caught_up_ms <= max_lag_ms

    def join_session(self, session: SessionTimes) -> None:
        """Track a follower that has the whole log by its session, whose fetches omit the partition until it changes."""
        self.session = session

    def leave_session(self, session: SessionTimes) -> None:
        """Stop tracking by the session: the log changed, or the session dropped the partition.

        The follower was caught up at the session's last fetch.
        """
        if self.session is session:
            self.session = None
            self.caught_up_ms = max(self.caught_up_ms, session.last_fetch_ms)
            self.last_fetch_ms = max(self.last_fetch_ms, session.last_fetch_ms)
