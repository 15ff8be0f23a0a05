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

MAX_COALESCED_FRAME_BYTES: Final = 132 * 1024
"""Requests to one partition above this size (a batch of 128 KiB) are not served together, which would save little."""

MAX_JOINED_FRAME_BYTES: Final = 1024 * 1024 + 4096
"""The same for any request: a producer's max.request.size, 1 MiB unless set, and what is not counted in it."""

LONE_FRAMES: Final = 15
"""So many frames above MAX_COALESCED_FRAME_BYTES are not joined after one that was joined in vain, by a copy more."""


class JoinedFrames:
    """Decides for one connection which partial frames are joined with what follows them, to be served together.

    A large frame is, if the last one that was tried had been served so: whether it can be shows only in its parts.
    """

    __slots__ = ("_key", "_lone_frames", "_max_bytes")

    def __init__(self, key: bytes) -> None:
        """`key`: the first bytes of a frame that may be joined."""
        self._key = key
        self._lone_frames = 0
        self._max_bytes = MAX_JOINED_FRAME_BYTES

    def begin(self, size_bytes: int) -> None:
        """Decide how the next partial frame is received."""
        self._max_bytes = MAX_JOINED_FRAME_BYTES
        if size_bytes > MAX_COALESCED_FRAME_BYTES and self._lone_frames:
            self._lone_frames -= 1
            self._max_bytes = MAX_COALESCED_FRAME_BYTES

    def has(self, partial: "PartialFrame") -> bool:
        """Return whether the current partial frame is joined with what follows it."""
        return partial.size_bytes <= self._max_bytes and partial.starts_with(self._key)

    def on_served_alone(self, size_bytes: int) -> None:
        """Record that a frame which might have been served together with others was not."""
        if size_bytes > MAX_COALESCED_FRAME_BYTES:
            self._lone_frames = LONE_FRAMES


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
