"""A frame of which a part was received. The parts are joined when it is complete."""

from typing import Final

LEAST_PART_BYTES: Final = 4 * 1024
"""Received parts of a frame that are smaller are joined at once, so that a byte at a time costs no object each."""

MOST_UNJOINED_BYTES: Final = 2 * 1024 * 1024
"""More received parts of a frame are joined before it is complete: half a millisecond. A frame of message.max.bytes is
joined once. Appending each part to one bytearray would move it again and again: the parts of several connections lie
between each other, so that it cannot grow in its place."""

KEY_BYTES: Final = 2
"""The first part has at least this many bytes, if there are: those of the request's api key."""


class PartialFrame:
    """The received parts of one frame. The first is a bytearray, to which the others may be joined."""

    __slots__ = ("missing_bytes", "parts", "size_bytes")

    def __init__(self, size_bytes: int, first: bytearray) -> None:
        """`size_bytes` is the size of the whole frame, of which `first` was received."""
        self.size_bytes = size_bytes
        self.missing_bytes = size_bytes - len(first)
        self.parts: list[bytes | bytearray] = [first]

    def add(self, part: bytes) -> None:
        """Add received bytes.

        They are joined now if they are few, as each object costs memory, or if what joining holds the loop for would
        otherwise grow with the frame.
        """
        parts = self.parts
        is_few = len(part) < LEAST_PART_BYTES or self.size_bytes - self.missing_bytes < KEY_BYTES
        self.missing_bytes -= len(part)
        assert self.missing_bytes >= 0, "more than the frame lacks"
        if not is_few:
            parts.append(part)
        elif isinstance(last := parts[-1], bytearray):
            last += part
        else:
            parts.append(bytearray(part))
        first = parts[0]
        if self.size_bytes - self.missing_bytes - len(first) > MOST_UNJOINED_BYTES:
            assert isinstance(first, bytearray), "it is that of the constructor"
            first += b"".join(parts[1:])
            del parts[1:]

    def joined(self) -> bytearray:
        """Return the frame, which is complete."""
        assert not self.missing_bytes, f"{self.missing_bytes} bytes are missing"
        frame, *rest = self.parts
        assert isinstance(frame, bytearray), "it is that of the constructor"
        if len(frame) > MOST_UNJOINED_BYTES:  # a copy would hold the loop, and the memory of the frame twice
            frame += b"".join(rest)
        elif rest:
            frame = bytearray().join(self.parts)
        return frame
