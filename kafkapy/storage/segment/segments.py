"""The segments of a log in order, found by offset. The last one is active: appends go there."""

from bisect import bisect_right
from collections.abc import Iterator

from kafkapy.storage.segment.segment import Segment


class Segments:
    """A log's segments, sorted by base offset. An open log has at least one.

    active: the last one; for logs, which have one. Not a property, as each append asks for it three times.
    """

    __slots__ = ("_base_offsets", "_segments", "active")

    active: Segment

    def __init__(self) -> None:
        self._base_offsets: list[int] = []
        self._segments: list[Segment] = []

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __contains__(self, base_offset: object) -> bool:
        return base_offset in self._base_offsets

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def all(self) -> list[Segment]:
        """Return a copy of the list."""
        return list(self._segments)

    def add(self, segment: Segment) -> None:
        """Add a segment; it replaces one with the same base offset."""
        slot = bisect_right(self._base_offsets, segment.base_offset)
        if slot and self._base_offsets[slot - 1] == segment.base_offset:
            assert self._segments[slot - 1] is not segment, f"{segment} is added twice"
            self._segments[slot - 1] = segment
        else:
            self._base_offsets.insert(slot, segment.base_offset)
            self._segments.insert(slot, segment)
        self.active = self._segments[-1]

    def remove(self, segment: Segment) -> None:
        slot = self._segments.index(segment)
        assert self._base_offsets[slot] == segment.base_offset, f"{segment} is listed at {self._base_offsets[slot]}"
        del self._segments[slot], self._base_offsets[slot]
        if self._segments:
            self.active = self._segments[-1]

    def floor(self, offset: int) -> Segment | None:
        """Return the last segment whose base offset is at or below `offset`."""
        slot = bisect_right(self._base_offsets, offset) - 1
        return self._segments[slot] if slot >= 0 else None

    def after(self, segment: Segment) -> Segment | None:
        """Return the segment after this one, or None. `segment` itself need not be in the log."""
        slot = bisect_right(self._base_offsets, segment.base_offset)
        return self._segments[slot] if slot < len(self._segments) else None

    def before(self, segment: Segment) -> Segment | None:
        """Return the segment before this one, or None."""
        slot = bisect_right(self._base_offsets, segment.base_offset - 1) - 1
        return self._segments[slot] if slot >= 0 else None

    def between(self, start_offset: int, end_offset: int) -> list[Segment]:
        """Return the segments that may hold offsets in [start_offset, end_offset)."""
        first = max(bisect_right(self._base_offsets, start_offset) - 1, 0)
        last = bisect_right(self._base_offsets, end_offset - 1)
        return self._segments[first:last]

    def end_offset_of(self, segment: Segment, log_end_offset: int) -> int:
        """Return the base offset of the next segment, or the log end offset for the last segment."""
        following = self.after(segment)
        return following.base_offset if following is not None else log_end_offset
