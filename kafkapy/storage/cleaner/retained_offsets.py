"""One byte per offset of the dirty section: does the cleaner keep the record?

Every keyed record of the dirty section is in the offset map, so a record is kept exactly if the map holds its offset.
When the map is complete, its offsets are marked here, and a batch is judged by counting bytes. A batch kept or dropped
as a whole is neither decompressed nor parsed. Marked while the map is filled: tombstones, which may need a delete
horizon, and records without a key, which are counted for the report.

At most `max_bytes` offsets are covered, up to the map's latest offset; records of other batches are judged by key.
"""

from collections.abc import Iterable
from itertools import compress
from typing import Final

from kafkapy.named_tuple import NamedTuple
from kafkapy.record.batch import RecordBatch
from kafkapy.storage.cleaner.offset_map import OffsetMap

STAYS: Final = 1
TOMBSTONE: Final = 2
NO_KEY: Final = 4
_STAYS_ALONE: Final = bytes(mark == STAYS for mark in range(256))


class Verdict(NamedTuple):
    """Numbers of a batch's records: kept, kept tombstones (included in kept), and records without a key."""

    kept: int
    kept_tombstones: int
    without_key: int


class RetainedOffsets:
    """The marks for offsets from `first_offset` on. Complete after `mark_kept`."""

    __slots__ = ("_end_offset", "_first_offset", "_marks", "has_disorder")

    def __init__(self, first_offset: int, end_offset: int, *, max_bytes: int) -> None:
        self._first_offset = first_offset
        self._marks = bytearray(max(min(end_offset - first_offset, max_bytes), 0))
        self._end_offset = first_offset
        self.has_disorder = False
        """Whether some batch has a record at each of its offsets, but not in ascending order."""

    def mark(self, offsets: Iterable[int], mark: int) -> None:
        """Mark tombstones, or records without a key. Offsets that are not covered are ignored."""
        first_offset, marks = self._first_offset, self._marks
        for offset in offsets:
            if 0 <= offset - first_offset < len(marks):
                marks[offset - first_offset] |= mark

    def mark_kept(self, offset_map: OffsetMap) -> None:
        """Mark the offsets in the map; then all covered offsets up to its latest offset can be judged."""
        first_offset, marks, size = self._first_offset, self._marks, len(self._marks)
        for offsets in offset_map.offsets():
            for offset in offsets:
                if offset - first_offset < size:
                    marks[offset - first_offset] |= STAYS
        self._end_offset = min(first_offset + size, offset_map.latest_offset + 1)

    def covers(self, batch: RecordBatch) -> bool:
        """Return whether all records of a batch (magic 2) can be judged."""
        return batch.base_offset >= self._first_offset and batch.last_offset < self._end_offset

    def judge(self, batch: RecordBatch) -> Verdict:
        """Count the records of a covered batch."""
        start, end = batch.base_offset - self._first_offset, batch.last_offset + 1 - self._first_offset
        count = self._marks.count
        tombstones = count(STAYS | TOMBSTONE, start, end)
        return Verdict(count(STAYS, start, end) + tombstones, tombstones, count(NO_KEY, start, end))

    def values_of_sequence(self, batch: RecordBatch) -> list[int]:
        """Return the indexes of the kept records of a covered batch without kept tombstones, a record at each offset.

        The records must be in ascending order of offsets: see has_disorder.
        """
        start, end = batch.base_offset - self._first_offset, batch.last_offset + 1 - self._first_offset
        return list(compress(range(end - start), self._marks[start:end].translate(_STAYS_ALONE)))

    def indexes(self, batch: RecordBatch, offset_deltas: list[int]) -> list[int]:
        """Return the indexes of the kept records of a covered batch."""
        start, marks = batch.base_offset - self._first_offset, self._marks
        return [index for index, delta in enumerate(offset_deltas) if marks[start + delta] & STAYS]
