"""A deadline over several calls of a blocking socket: a server that sends a byte now and then cannot exceed it.

A socket's own time-out begins again with each call. (A TLS handshake is one call.)
"""

import socket
import time
from typing import Final

TIMEOUT_S: Final = 10.0
"""For a request of a command, and for a connection with its login."""
RECEIVE_BYTES: Final = 1 << 20
"""At most so much is received at once, whatever size a server announces."""


def deadline_in(timeout_s: float) -> float:
    return time.monotonic() + timeout_s


def arm(connection: socket.socket, deadline_s: float) -> None:
    """Limit the socket's next call to the time until the deadline. Raises TimeoutError when it has passed."""
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    connection.settimeout(left_s)


def receive(connection: socket.socket, count: int, deadline_s: float) -> bytes:
    """Receive so many bytes. Raises TimeoutError at the deadline, ConnectionError if the connection ends, OSError."""
    data = bytearray()
    while len(data) < count:
        arm(connection, deadline_s)
        received = connection.recv(min(count - len(data), RECEIVE_BYTES))
        if not received:
            raise ConnectionError("the broker closed the connection")
        data += received
    return bytes(data)
