"""The time index: maps a timestamp to an offset up to which no record is newer. KIP-33.

`.timeindex`, 12 bytes per entry, big-endian: int64 the largest timestamp so far in ms, int32 the last offset of the
batch that has it, relative to the segment's base offset. Timestamps strictly increase, offsets never decrease. Entries
are added together with those of the offset index; when the segment rolls or closes, one more holds its largest
timestamp. With base offset 50:

    0000018BCFE56800 00000003    up to offset 53 no record is newer than 1,700,000,000,000
"""

import struct
from typing import Final

from kafkapy.errors import CorruptIndexError
from kafkapy.named_tuple import NamedTuple
from kafkapy.record.batch import NO_TIMESTAMP
from kafkapy.storage.segment.sparse_index import SparseIndex

ENTRY: Final = struct.Struct(">qi")
_unpack_timestamp: Final = struct.Struct(">q").unpack_from
_unpack_relative_offset: Final = struct.Struct(">8xi").unpack_from


class TimestampOffset(NamedTuple):
    """A timestamp and the offset that has it; leader_epoch is -1 if unknown."""

    timestamp_ms: int
    offset: int
    leader_epoch: int = -1


class TimeIndex(SparseIndex):
    """One segment's time index. Arguments and results are absolute offsets."""

    __slots__ = ("_last_entry",)

    _last_entry: TimestampOffset | None

    ENTRY_BYTES = ENTRY.size

    @property
    def is_full(self) -> bool:
        """One slot is reserved for the entry that a roll adds."""
        return self.entry_count >= self.max_entries - 1

    @property
    def room(self) -> int:
        return self.max_entries - self.entry_count - 1

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry, or (-1, base offset) if there is none. May block."""
        if self._entry_count < 0 or self._last_entry is None:
            count = self.entry_count
            self._last_entry = self._entry_at(count - 1) if count else TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return self._last_entry

    def _forget_last(self) -> None:
        self._last_entry = None

    def check(self) -> None:
        """Raise CorruptIndexError if the first and last entries are inconsistent."""
        if not self.entry_count:
            return
        if self.last_entry.timestamp_ms < self._entry_at(0).timestamp_ms:
            raise CorruptIndexError(f"{self.handle.path}: the last timestamp is below the first")
        if self.last_entry.offset < self.base_offset:
            raise CorruptIndexError(
                f"{self.handle.path}: last offset {self.last_entry.offset} is below the base offset"
            )

    def maybe_append(self, timestamp_ms: int, offset: int, *, use_last_slot: bool = False) -> bool:
        """Add an entry if the timestamp is above the last one's; return whether it was added."""
        count = self._entry_count if self._entry_count >= 0 else self.entry_count  # known: the usual case, no call
        assert use_last_slot or count < self.max_entries - 1, f"append to a full index {self.handle.path}"
        last = self._last_entry or self.last_entry
        if timestamp_ms <= last.timestamp_ms:
            return False
        assert count == 0 or offset >= last.offset, f"offset {offset} is below the last, {last.offset}"
        assert offset >= self.base_offset, f"offset {offset} is below the base offset {self.base_offset}"
        self._add_entry(ENTRY.pack(timestamp_ms, offset - self.base_offset))
        self._last_entry = TimestampOffset(timestamp_ms, offset)
        return True

    def lookup(self, timestamp_ms: int, *, wait: bool = False) -> TimestampOffset:
        """Return the last entry at or before `timestamp_ms`, or (-1, base offset) if none is.

        Raises NeedsWarming if it would block, unless `wait`.
        """
        slot, entry = self.floor_entry(timestamp_ms, _unpack_timestamp, wait=wait)
        return self._decode(entry) if slot >= 0 else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Remove the entries at and above `offset`."""
        slot, _ = self.floor_entry(offset - 1 - self.base_offset, _unpack_relative_offset, wait=True)
        self.truncate_to_entries(slot + 1)

    def _entry_at(self, slot: int) -> TimestampOffset:
        return self._decode(self.read_entry(slot, wait=True))

    def _decode(self, entry: bytes) -> TimestampOffset:
        timestamp_ms, relative_offset = ENTRY.unpack(entry)
        return TimestampOffset(timestamp_ms, self.base_offset + relative_offset)
