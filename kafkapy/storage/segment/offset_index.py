"""The offset index: maps offsets to positions in the segment, with about one entry per index.interval.bytes.

`.index`, 8 bytes per entry, big-endian: int32 last offset of a batch, relative to the segment's base offset, int32
position of that batch's first byte. Both strictly increase. With base offset 50:

    00000003 00001000    the batch whose last offset is 53 starts at byte 4096
"""

import struct
from typing import Final

from kafkapy.errors import CorruptIndexError
from kafkapy.named_tuple import NamedTuple
from kafkapy.storage.segment.sparse_index import SparseIndex
from kafkapy.types import INT32_MAX

ENTRY: Final = struct.Struct(">ii")
_unpack_relative_offset: Final = struct.Struct(">i").unpack_from
_unpack_position: Final = struct.Struct(">4xi").unpack_from


class OffsetPosition(NamedTuple):
    """An offset and the position of the batch that contains it."""

    offset: int
    position: int


class OffsetIndex(SparseIndex):
    """One segment's offset index. Arguments and results are absolute offsets."""

    __slots__ = ("_last_offset",)

    _last_offset: int

    ENTRY_BYTES = ENTRY.size

    @property
    def last_offset(self) -> int:
        """The offset of the last entry, or the base offset if there is none."""
        if self.entry_count and self._last_offset < 0:
            self._last_offset = self._entry_at(self.entry_count - 1).offset
        return self._last_offset if self._entry_count else self.base_offset

    @property
    def last_entry(self) -> OffsetPosition:
        """The last entry, or (base offset, 0) if there is none. Blocks."""
        return self._entry_at(self.entry_count - 1) if self.entry_count else OffsetPosition(self.base_offset, 0)

    def _forget_last(self) -> None:
        self._last_offset = -1

    def check(self, log_size: int) -> None:
        """Raise CorruptIndexError if the last entry's offset or position is invalid. log_size: of the .log file."""
        if not self.entry_count:
            return
        last = self.last_entry
        if last.offset < self.base_offset:
            raise CorruptIndexError(f"{self.handle.path}: last offset {last.offset} is below the base offset")
        if not 0 < last.position < log_size:
            raise CorruptIndexError(f"{self.handle.path}: last position {last.position} is not in the log's {log_size}")

    def can_append(self, offset: int) -> bool:
        """Return whether the offset fits an entry, and so this segment."""
        return 0 <= offset - self.base_offset <= INT32_MAX

    def append(self, offset: int, position: int) -> None:
        """Add an entry. The index must not be full, the offset above the last."""
        count = self._entry_count if self._entry_count >= 0 else self.entry_count  # known: the usual case, no call
        assert count < self.max_entries, f"append to a full index {self.handle.path}"
        if count:
            last_offset = self._last_offset if self._last_offset >= 0 else self.last_offset
            assert offset > last_offset, f"{offset} is not above {last_offset}"
        relative_offset = offset - self.base_offset
        assert 0 <= relative_offset <= INT32_MAX, f"{offset} does not fit an index from {self.base_offset}"
        self._add_entry(ENTRY.pack(relative_offset, position))
        self._last_offset = offset

    def lookup(self, offset: int, *, wait: bool = False) -> OffsetPosition:
        """Return the last entry at or before `offset`, or (base offset, 0).

        Raises NeedsWarming if it would block, unless `wait`.
        """
        slot, entry = self.floor_entry(offset - self.base_offset, _unpack_relative_offset, wait=wait)
        return self._decode(entry) if slot >= 0 else OffsetPosition(self.base_offset, 0)

    def lookup_position(self, position: int, *, wait: bool = False) -> int:
        """Return the position of the last entry at or before `position`, or 0."""
        slot, entry = self.floor_entry(position, _unpack_position, wait=wait)
        return ENTRY.unpack(entry)[1] if slot >= 0 else 0

    def truncate_to(self, offset: int) -> None:
        """Remove the entries at and above `offset`."""
        slot, _ = self.floor_entry(offset - 1 - self.base_offset, _unpack_relative_offset, wait=True)
        self.truncate_to_entries(slot + 1)

    def _entry_at(self, slot: int) -> OffsetPosition:
        return self._decode(self.read_entry(slot, wait=True))

    def _decode(self, entry: bytes) -> OffsetPosition:
        relative_offset, position = ENTRY.unpack(entry)
        return OffsetPosition(self.base_offset + relative_offset, position)
