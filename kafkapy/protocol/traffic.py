"""Counts of connections: of those of one listener at one processor. Only with an admin listener."""

from typing import Final

from kafkapy.recent import RecentValues

SIZE_BYTES: Final = 4
"""In front of each frame."""


class ConnectionTraffic:
    """Counts that only grow. Bytes are those of the wire: with TLS encrypted, handshakes included."""

    __slots__ = (
        "_longest",
        "expired",
        "failed_logins",
        "failed_renewals",
        "logins",
        "logins_without_renewal",
        "longest_frame",
        "polls",
        "reads",
        "received_bytes",
        "received_frames",
        "renewal_ms",
        "renewals",
        "sent_bytes",
        "sent_frames",
        "writes",
    )

    def __init__(self) -> None:
        self.received_bytes = self.sent_bytes = 0
        self.reads = self.writes = 0
        """Calls that received or sent something."""
        self.polls = 0
        """All such calls, also those that had nothing to receive or no room to send."""
        self.received_frames = self.sent_frames = 0
        """A server's requests and responses."""
        self.longest_frame = 0
        """The size of the longest frame sent since the last `longest_recent_frame`, without its size prefix."""
        self._longest = RecentValues()
        self.logins = self.failed_logins = 0
        self.logins_without_renewal = 0
        """Of clients that cannot re-authenticate."""
        self.renewals = self.failed_renewals = 0
        """Re-authentications (KIP-368)."""
        self.renewal_ms = RecentValues()
        """How long re-authentications take."""
        self.expired = 0
        """Connections closed because their session was not renewed."""

    def count_sent(self, frame_bytes: int, count: int) -> None:
        """Count frames that are sent; frame_bytes: of one, without its size prefix."""
        self.sent_frames += count
        if frame_bytes > self.longest_frame:
            self.longest_frame = frame_bytes

    def record_login(self, *, can_renew: bool) -> None:
        self.logins += 1
        self.logins_without_renewal += not can_renew

    def record_renewal(self, took_ms: int, now_ms: int) -> None:
        self.renewals += 1
        self.renewal_ms.record(took_ms, now_ms)

    def longest_recent_frame(self, now_ms: int) -> float:
        """Return the size of the longest frame sent in the last half minute to minute, NaN if there was none.

        It has the age of the call that found it.
        """
        if self.longest_frame:
            self._longest.record(SIZE_BYTES + self.longest_frame, now_ms)
            self.longest_frame = 0
        return self._longest.read(now_ms)[1]


class OutboundTraffic(ConnectionTraffic):
    """Of connections to other nodes: sent frames are requests, received ones responses."""

    __slots__ = ("closed", "opened")

    def __init__(self) -> None:
        super().__init__()
        self.opened = self.closed = 0
