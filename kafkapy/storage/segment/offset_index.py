"""The offset index: which position in the segment holds which offset, an entry at least every index.interval.bytes.

`.index`, 8 bytes an entry, big-endian: int32 last offset of a batch, relative to the segment's base offset, int32
position of that batch's first byte. Strictly rising in both. With base offset 50:

    00000003 00001000    the batch whose last offset is 53 starts at byte 4096
"""

import struct
from typing import Final, NamedTuple

from kafkapy.errors import CorruptIndexError
from kafkapy.record.batch import MAX_INT32
from kafkapy.storage.segment.sparse_index import SparseIndex

ENTRY: Final = struct.Struct(">ii")
_INT32: Final = struct.Struct(">i")


class OffsetPosition(NamedTuple):
    """An offset, and the position of the batch that holds it."""

    offset: int
    position: int


class OffsetIndex(SparseIndex):
    """One segment's offset index: appended to with the log, searched by offset. Offsets in and out are absolute."""

    __slots__ = ("_last_offset",)

    _last_offset: int

    ENTRY_BYTES = ENTRY.size

    @property
    def last_offset(self) -> int:
        """The offset of the last entry, the base offset where there is none."""
        if self.entry_count and self._last_offset < 0:
            self._last_offset = self._entry_at(self.entry_count - 1).offset
        return self._last_offset if self._entry_count else self.base_offset

    @property
    def last_entry(self) -> OffsetPosition:
        """The last entry, (base offset, 0) if there is none. Blocks."""
        return self._entry_at(self.entry_count - 1) if self.entry_count else OffsetPosition(self.base_offset, 0)

    def _forget_last(self) -> None:
        self._last_offset = -1

    def check(self, log_size: int) -> None:
        """Raise CorruptIndexError where the entries cannot be right, judged by their number and the last one."""
        if not self.entry_count:
            return
        last = self.last_entry
        if last.offset < self.base_offset:
            raise CorruptIndexError(f"{self.handle.path}: last offset {last.offset} is below the base offset")
        if not 0 < last.position < log_size:
            raise CorruptIndexError(f"{self.handle.path}: last position {last.position} is not in the log's {log_size}")

    def can_append(self, offset: int) -> bool:
        """Return whether the offset fits into an entry, that is, into this segment."""
        return 0 <= offset - self.base_offset <= MAX_INT32

    def append(self, offset: int, position: int) -> None:
        """Add an entry. The index must not be full, the offset above the last."""
        assert not self.is_full, f"append to a full index {self.handle.path}"
        assert self.entry_count == 0 or offset > self.last_offset, f"{offset} is not above {self.last_offset}"
        self._add_entry(ENTRY.pack(offset - self.base_offset, position))
        self._last_offset = offset

    def lookup(self, offset: int, *, wait: bool = False) -> OffsetPosition:
        """Return the last entry at or before `offset`; (base offset, 0) where there is none.

        Raises NeedsWarming where that would block and `wait` is not given.
        """
        slot = self.floor_slot(offset - self.base_offset, _relative_offset_at, wait=wait)
        return self._entry_at(slot, wait=wait) if slot >= 0 else OffsetPosition(self.base_offset, 0)

    def lookup_position(self, position: int, *, wait: bool = False) -> int:
        """Return the position of the last entry at or before `position`, 0 where there is none."""
        slot = self.floor_slot(position, _position_at, wait=wait)
        return self._entry_at(slot, wait=wait).position if slot >= 0 else 0

    def truncate_to(self, offset: int) -> None:
        """Drop entries at and above `offset`."""
        self.truncate_to_entries(self.floor_slot(offset - 1 - self.base_offset, _relative_offset_at, wait=True) + 1)

    def _entry_at(self, slot: int, *, wait: bool = True) -> OffsetPosition:
        relative_offset, position = ENTRY.unpack(self.read_entry(slot, wait=wait))
        return OffsetPosition(self.base_offset + relative_offset, position)


def _relative_offset_at(entries: bytes, position: int) -> int:
    value: int = _INT32.unpack_from(entries, position)[0]
    return value


def _position_at(entries: bytes, position: int) -> int:
    value: int = _INT32.unpack_from(entries, position + 4)[0]
    return value
