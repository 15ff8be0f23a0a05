"""Which records of a log's dirty part stay, a byte an offset: what the offset map says, asked once and not by key.

Of the dirty part every record is in the offset map, so one stays exactly if the map holds its own offset. Once the map
is complete, its offsets are marked here; a batch is then judged by counting bytes. One that stays whole is copied, one
that goes whole is skipped, and neither is inflated or walked. What is marked while the map is filled: tombstones, which
may need a delete horizon, and records without a key, which are reported.

At most `max_bytes` offsets are covered; batches behind them, or beyond what the map covers, are judged by their keys.
"""

from collections.abc import Iterable
from itertools import compress
from typing import Final, NamedTuple

from kafkapy.record.batch import RecordBatch
from kafkapy.storage.cleaner.offset_map import OffsetMap

STAYS: Final = 1
TOMBSTONE: Final = 2
NO_KEY: Final = 4
_STAYS_ALONE: Final = bytes(mark == STAYS for mark in range(256))


class Verdict(NamedTuple):
    """On a batch: how many of its records stay, of those how many are tombstones, how many have no key."""

    kept: int
    kept_tombstones: int
    without_key: int


class Survivors:
    """Marks for the offsets from `first_offset` on. Complete after `take`."""

    __slots__ = ("_end_offset", "_first_offset", "_marks", "has_disorder")

    def __init__(self, first_offset: int, end_offset: int, *, max_bytes: int) -> None:
        self._first_offset = first_offset
        self._marks = bytearray(max(min(end_offset - first_offset, max_bytes), 0))
        self._end_offset = first_offset
        self.has_disorder = False
        """Whether a batch was met with a record at each of its offsets, but not in their order."""

    def note(self, offsets: Iterable[int], mark: int) -> None:
        """Mark tombstones, or records without a key. Offsets that are not covered are left out."""
        first_offset, marks = self._first_offset, self._marks
        for offset in offsets:
            if 0 <= offset - first_offset < len(marks):
                marks[offset - first_offset] |= mark

    def take(self, offset_map: OffsetMap) -> None:
        """Mark what the map holds; all up to its latest offset that is covered can be judged from now on."""
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
        """Judge a batch that is covered."""
        start, end = batch.base_offset - self._first_offset, batch.last_offset + 1 - self._first_offset
        count = self._marks.count
        tombstones = count(STAYS | TOMBSTONE, start, end)
        return Verdict(count(STAYS, start, end) + tombstones, tombstones, count(NO_KEY, start, end))

    def values_of_sequence(self, batch: RecordBatch) -> list[int]:
        """Return which records stay of a batch that is covered, keeps no tombstone and has a record at each offset.

        They must be in the order of their offsets: see has_disorder.
        """
        start, end = batch.base_offset - self._first_offset, batch.last_offset + 1 - self._first_offset
        return list(compress(range(end - start), self._marks[start:end].translate(_STAYS_ALONE)))

    def indexes(self, batch: RecordBatch, offset_deltas: list[int]) -> list[int]:
        """Return which records of a batch that is covered stay."""
        start, marks = batch.base_offset - self._first_offset, self._marks
        return [index for index, delta in enumerate(offset_deltas) if marks[start + delta] & STAYS]
