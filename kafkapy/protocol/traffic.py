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
        "failed_reauthentications",
        "logins",
        "logins_without_reauthentication",
        "longest_frame",
        "polls",
        "reads",
        "reauthentication_ms",
        "reauthentications",
        "received_bytes",
        "received_frames",
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
        self.logins_without_reauthentication = 0
        """The number of logins of clients that cannot re-authenticate."""
        self.reauthentications = self.failed_reauthentications = 0
        """Re-authentications (KIP-368)."""
        self.reauthentication_ms = RecentValues()
        """How long re-authentications take."""
        self.expired = 0
        """Connections closed because their session expired before a re-authentication."""

    def count_sent(self, frame_bytes: int, count: int) -> None:
        """Count frames that are sent; frame_bytes: of one, without its size prefix."""
        self.sent_frames += count
        if frame_bytes > self.longest_frame:
            self.longest_frame = frame_bytes

    def record_login(self, *, can_reauthenticate: bool) -> None:
        self.logins += 1
        self.logins_without_reauthentication += not can_reauthenticate

    def record_reauthentication(self, took_ms: int, now_ms: int) -> None:
        self.reauthentications += 1
        self.reauthentication_ms.record(took_ms, now_ms)

    def longest_recent_frame(self, now_ms: int) -> float:
        """Return the size of the longest frame sent in the last half minute to minute, NaN if there was none.

        It has the age of the call that found it.
        """
        if self.longest_frame:
            self._longest.record(SIZE_BYTES + self.longest_frame, now_ms)
            self.longest_frame = 0
        return self._longest.read(now_ms)[1]


class OutboundTraffic(ConnectionTraffic):
    """Traffic of connections to other nodes: sent frames are requests, received ones responses."""

    __slots__ = ("closed", "opened")

    def __init__(self) -> None:
        super().__init__()
        self.opened = self.closed = 0
