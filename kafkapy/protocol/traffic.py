"""Counts of connections: of those of one listener at one processor. Only with an admin listener."""


class ConnectionTraffic:
    """Counts that only grow. Bytes are those of the wire: with TLS encrypted, handshakes included."""

    __slots__ = (
        "expired",
        "failed_logins",
        "failed_renewals",
        "logins",
        "reads",
        "received_bytes",
        "renewals",
        "requests",
        "responses",
        "sent_bytes",
        "writes",
    )

    def __init__(self) -> None:
        self.received_bytes = self.sent_bytes = 0
        self.reads = self.writes = 0
        """Calls that received or sent something."""
        self.requests = self.responses = 0
        """Received requests, and those of them that got a response."""
        self.logins = self.failed_logins = 0
        self.renewals = self.failed_renewals = 0
        """Re-authentications (KIP-368)."""
        self.expired = 0
        """Connections closed because their session was not renewed."""
