"""Recognizes other protocols (HTTP, TLS, SSH) by their first four bytes, where Kafka's protocol has the frame size."""

from typing import Final

HTTP_METHODS: Final = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")
TLS_HANDSHAKE: Final = b"\x16\x03"
"""A TLS record: handshake, version 3.x."""
SSH: Final = b"SSH-"


def foreign_protocol(size: int) -> str | None:
    """Return the protocol whose first four bytes are this frame size (int32), None if it may be Kafka's protocol."""
    first = (size & 0xFFFFFFFF).to_bytes(4, "big")
    if first in HTTP_METHODS:
        return "HTTP"
    if first.startswith(TLS_HANDSHAKE):
        return "TLS"
    return "SSH" if first == SSH else None


def describe_size(size: int, max_frame_bytes: int) -> str:
    """Return the error message for a frame size out of bounds."""
    spoken = foreign_protocol(size)
    reason = f"frame size {size} is not within 0 and {max_frame_bytes}"
    return reason if spoken is None else f"the client speaks {spoken} to a port of Kafka's plain protocol ({reason})"
