"""A partially received frame: first a list of parts, later one buffer of the frame's size.

Memory follows the received bytes, never the size prefix. Up to half of the frame is kept in the received parts. Then
the buffer is allocated, and the missing bytes are received directly into it, because joining would copy the frame, and
the allocator returns parts of 100 KiB to the system again and again. A frame above MAX_WHOLE_BYTES has no such buffer,
because allocating it would hold the loop: its parts are joined from time to time.
"""

from typing import Final

PREFIX_BYTES: Final = 4
"""The size prefix of a frame; it is kept with the frame."""

KEY_BYTES: Final = 2
"""The first part has at least this many bytes of the frame, if it is so long: those of the api key."""

MIN_PART_BYTES: Final = 4 * 1024
"""Received parts of a frame that are smaller are joined at once, so that a byte at a time costs no object each."""

MAX_WHOLE_BYTES: Final = 2 * 1024 * 1024
"""The largest frame with a buffer of its size: zero-filling it and copying half of it take a third of a millisecond.
Of a larger frame, this many bytes are joined at once."""


class PartialFrame:
    """The received bytes of one frame, size prefix included: in `parts`, until there is a buffer."""

    __slots__ = ("_buffer", "_unjoined_bytes", "missing_bytes", "parts", "size_bytes")

    def __init__(self, size_bytes: int, first: bytes) -> None:
        """`size_bytes`: the size of the whole frame, as its prefix says. `first`: the prefix and what follows it."""
        self.size_bytes = size_bytes
        self.missing_bytes = size_bytes + PREFIX_BYTES - len(first)
        self.parts: list[bytes | bytearray] = [first]
        self._unjoined_bytes = 0
        self._buffer: bytearray | None = None

    def starts_with(self, api_key: bytes) -> bool:
        """Return whether these are the first bytes of the frame after its size. False once there is a buffer."""
        return bool(self.parts) and self.parts[0].startswith(api_key, PREFIX_BYTES)

    def add(self, part: bytes) -> None:
        """Add received bytes. Small parts are joined at once, those of a very large frame from time to time."""
        self.missing_bytes -= len(part)
        assert self.missing_bytes >= 0, "more than the frame lacks"
        if self._buffer is not None:
            at = len(self._buffer) - self.missing_bytes
            self._buffer[at - len(part) : at] = part
            return
        parts = self.parts
        last = parts[-1]
        if len(last) < PREFIX_BYTES + KEY_BYTES:
            parts[-1] = last + part
        elif len(part) >= MIN_PART_BYTES:
            parts.append(part)
        elif isinstance(last, bytearray):
            last += part
        else:
            parts.append(bytearray(part))
        self._unjoined_bytes += len(part)
        if self._unjoined_bytes > MAX_WHOLE_BYTES:
            self._join()

    def _join(self) -> None:
        """Append the other parts to the first. Doing so for each part would move the first again and again."""
        first, *rest = self.parts
        if not isinstance(first, bytearray):
            first = bytearray(first)
        first += b"".join(rest)
        self.parts = [first]
        self._unjoined_bytes = 0

    def room(self) -> memoryview | None:
        """Return the place of the missing bytes, which are to be received into it and reported to `received`.

        None if there is no buffer yet: less than half of the frame has come, or it is a very large one.
        """
        buffer = self._buffer
        if buffer is None:
            if self.missing_bytes > self.size_bytes // 2 or self.size_bytes > MAX_WHOLE_BYTES:
                return None
            buffer = self._buffer = self._new_buffer()
        return memoryview(buffer)[len(buffer) - self.missing_bytes :]

    def _new_buffer(self) -> bytearray:
        """Return the buffer with the received bytes, and drop the parts."""
        buffer = bytearray(PREFIX_BYTES + self.size_bytes)
        at = 0
        for part in self.parts:
            buffer[at : at + len(part)] = part
            at += len(part)
        self.parts = []
        return buffer

    def received(self, count: int) -> None:
        """Take the first `count` bytes of `room`, which were received."""
        self.missing_bytes -= count

    def whole(self) -> memoryview:
        """Return the frame, which is complete, without its prefix."""
        assert not self.missing_bytes, f"{self.missing_bytes} bytes are missing"
        frame = self._buffer
        if frame is None:
            if self.size_bytes > MAX_WHOLE_BYTES:  # a copy would hold the loop, and the memory of the frame twice
                self._join()
                first = self.parts[0]
                assert isinstance(first, bytearray)
                frame = first
            else:
                frame = bytearray().join(self.parts)
        return memoryview(frame)[PREFIX_BYTES:]
