"""A segment: a file of whole record batches, its two sparse indexes, and its aborted transactions.

`.log` holds batches back to back as they were on the wire, base offset and leader epoch patched in. Invariants: `size`
is the end of the last whole batch that was written; positions in the indexes are starts of batches; last offsets rise
from batch to batch and differ from the base offset by at most 2**31 - 1.

Reads that may not block raise NeedsWarming; where `wait` is given they block.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from kafkapy.config.log import LogConfig
from kafkapy.record.batch import BATCH_HEADER, HEADER_BYTES, LOG_OVERHEAD_BYTES, MIN_MESSAGE_BYTES, NO_TIMESTAMP
from kafkapy.record.errors import CorruptRecordError
from kafkapy.seams import ReadableBuffer, failpoint
from kafkapy.storage.errors import NeedsWarming
from kafkapy.storage.file_names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file,
)
from kafkapy.storage.segment.offset_index import OffsetIndex
from kafkapy.storage.segment.open_files import FileHandle, OpenFiles
from kafkapy.storage.segment.time_index import TimeIndex, TimestampOffset
from kafkapy.storage.segment.txn_index import TransactionIndex

SCAN_WINDOW_BYTES: Final = 4096 + HEADER_BYTES
"""What a scan reads at once: the usual distance between two index entries, and the header behind it."""


class BatchInfo(Protocol):
    """What an append says of each batch (kafkapy.record.validate.BatchSpan)."""

    @property
    def size_bytes(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...


class BatchPosition(NamedTuple):
    """Where a batch is, and what a scan wants to know of it. Messages of magic 0, 1: base offset = last offset."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    magic: int

    @property
    def end_position(self) -> int:
        return self.position + self.size_bytes


class Segment:
    """The files of one segment. `created_ms` stands for the first record's timestamp where there is none."""

    __slots__ = (
        "_first_timestamp",
        "_largest",
        "base_offset",
        "bytes_since_index_entry",
        "created_ms",
        "index_interval_bytes",
        "is_index_full",
        "is_index_nearly_full",
        "log",
        "offset_index",
        "roll_jitter_ms",
        "size",
        "time_index",
        "txn_index",
    )

    def __init__(
        self, files: OpenFiles, directory: str, base_offset: int, config: LogConfig, *, now_ms: int, suffix: str = ""
    ) -> None:
        """Name the files; `create` or `load` says whether they are there."""
        self.base_offset = base_offset
        self.log = FileHandle(files, segment_file(directory, base_offset, LOG_SUFFIX) + suffix)
        self.offset_index = OffsetIndex(
            files, segment_file(directory, base_offset, OFFSET_INDEX_SUFFIX) + suffix, base_offset
        )
        self.time_index = TimeIndex(
            files, segment_file(directory, base_offset, TIME_INDEX_SUFFIX) + suffix, base_offset
        )
        txn_path = segment_file(directory, base_offset, TXN_INDEX_SUFFIX) + suffix
        self.txn_index = TransactionIndex(files, txn_path, base_offset, exists=False)
        self.index_interval_bytes = config.index_interval_bytes
        self.roll_jitter_ms = 0
        self.created_ms = now_ms
        self.size = 0
        self.bytes_since_index_entry = 0
        self.is_index_full = False
        self.is_index_nearly_full = False
        """Whether the next entry may be the last, or there is room for none."""
        self._largest: TimestampOffset | None = None
        self._first_timestamp: int | None = None

    @classmethod
    def create(
        cls, files: OpenFiles, directory: str, base_offset: int, config: LogConfig, *, now_ms: int, suffix: str = ""
    ) -> "Segment":
        """Make an empty segment. Raises OSError."""
        segment = cls(files, directory, base_offset, config, now_ms=now_ms, suffix=suffix)
        file = segment.log.create()
        if config.preallocate:
            file.truncate(config.segment_bytes)
        segment.offset_index.create(config.segment_index_bytes)
        segment.time_index.create(config.segment_index_bytes)
        segment._largest = TimestampOffset(NO_TIMESTAMP, base_offset)
        segment._note_full()
        return segment

    @classmethod
    def load(
        cls,
        files: OpenFiles,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        now_ms: int,
        has_txn_index: bool,
        suffix: str = "",
    ) -> "Segment":
        """Take the files that are there as they are; only the log's size is looked at. Raises OSError."""
        segment = cls(files, directory, base_offset, config, now_ms=now_ms, suffix=suffix)
        segment.size = segment.log.file.size()
        path = segment.txn_index.handle.path
        segment.txn_index = TransactionIndex(files, path, base_offset, exists=has_txn_index)
        return segment

    def append(self, buffers: Sequence[ReadableBuffer], size_bytes: int, batches: Sequence[BatchInfo]) -> None:
        """Write batches at the end, and the index entries that are due. The last offsets must fit.

        Raises OSError; then the segment is as it was before.
        """
        position = self.size
        index_entries = -1
        try:
            self.log.file.pwrite(buffers, position)
            for batch in batches:
                self._note_timestamp(batch.max_timestamp, batch.last_offset)
                if self.bytes_since_index_entry > self.index_interval_bytes:
                    if index_entries < 0:
                        index_entries, time_entries = self.offset_index.entry_count, self.time_index.entry_count
                    self._append_index_entries(batch.last_offset, position)
                batch_bytes = batch.size_bytes
                position += batch_bytes
                self.bytes_since_index_entry += batch_bytes
        except OSError:
            self._take_back_append(index_entries, time_entries if index_entries >= 0 else -1)
            raise
        assert position == self.size + size_bytes, "the batches of an append are its bytes"
        self.size = position

    def _append_index_entries(self, last_offset: int, position: int) -> None:
        largest = self.largest
        self.offset_index.append(last_offset, position)
        failpoint("log.index.between")
        self.time_index.maybe_append(largest.timestamp_ms, largest.offset)
        self.bytes_since_index_entry = 0
        self._note_full()

    def _take_back_append(self, offset_entries: int, time_entries: int) -> None:
        """Cut what a failed append may have written; what cannot be cut now is found and cut by recovery."""
        self._largest = None  # read again when needed: it may count records that were not written
        if self.size == 0:
            self._first_timestamp = None
        try:
            self.log.file.truncate(self.size)
            if offset_entries >= 0:
                self.offset_index.truncate_to_entries(offset_entries)
                self.time_index.truncate_to_entries(time_entries)
            self._largest = self._read_largest()
        except OSError:
            return

    def _note_timestamp(self, max_timestamp: int, last_offset: int) -> None:
        if max_timestamp > self.largest.timestamp_ms:
            self._largest = TimestampOffset(max_timestamp, last_offset)
        if self._first_timestamp is None and self.size == 0:
            self._first_timestamp = max_timestamp

    def _note_full(self) -> None:
        room = min(self.offset_index.room, self.time_index.room)
        self.is_index_full = room <= 0
        self.is_index_nearly_full = room <= 1

    @property
    def largest(self) -> TimestampOffset:
        """The largest timestamp and the last offset of its batch; of a loaded segment, its time index's last entry."""
        if self._largest is None:
            self._largest = self.time_index.last_entry
        return self._largest

    @property
    def first_timestamp(self) -> int:
        """The first batch's max timestamp, -1 where there is none: what time-based rolling counts from. May block."""
        if self._first_timestamp is None:
            first = next(self.scan(0, wait=True), None)
            if first is None:
                return NO_TIMESTAMP
            self._first_timestamp = first.max_timestamp
        return self._first_timestamp

    def should_roll(
        self, config: LogConfig, *, size_bytes: int, max_timestamp: int, last_offset: int, now_ms: int, roll_ms: int
    ) -> bool:
        """Return whether an append of `size_bytes` needs a new segment: by bytes, time, full index, offset span."""
        if self.size > config.segment_bytes - size_bytes or self.is_index_full:
            return True
        if last_offset - self.base_offset > 0x7FFFFFFF:
            return True
        if self.size == 0:
            return False
        return self.waited_ms(now_ms, max_timestamp) > roll_ms - self.roll_jitter_ms

    def waited_ms(self, now_ms: int, max_timestamp: int) -> int:
        """Return the span between the first batch and a coming one; the segment's age where records have no time."""
        first_timestamp = self._first_timestamp
        if first_timestamp is None:
            first_timestamp = self.first_timestamp
        return max_timestamp - first_timestamp if first_timestamp >= 0 else now_ms - self.created_ms

    def scan(self, position: int, end: int | None = None, *, wait: bool = False) -> Iterator[BatchPosition]:
        """Yield the batches from `position` (a batch's start) up to `end`, by their headers.

        Raises CorruptRecordError where a length cannot be, NeedsWarming unless `wait`.
        """
        end = self.size if end is None else end
        window = b""
        window_start = position
        while position < end:
            at = position - window_start
            if at + HEADER_BYTES > len(window):
                window = self._read_window(position, end, wait=wait)
                window_start, at = position, 0
            batch = _parse_header(window, at, position)
            if batch is None:
                batch = _parse_legacy_header(window, at, position)
            if batch.position + batch.size_bytes > end:
                return
            yield batch
            position = batch.position + batch.size_bytes

    def _read_window(self, position: int, end: int, *, wait: bool) -> bytes:
        length = min(SCAN_WINDOW_BYTES, end - position)
        file = self.log.file
        if wait:
            return file.pread(length, position)
        data = file.pread_nowait(length, position)
        if data is None:
            raise NeedsWarming(file, position, length)
        return data

    def find_batch(self, offset: int, *, wait: bool = False) -> BatchPosition | None:
        """Return the first batch whose last offset is at or above `offset`, None where there is none."""
        start = self.offset_index.lookup(offset, wait=wait).position
        for batch in self.scan(start, wait=wait):
            if batch.last_offset >= offset:
                return batch
        return None

    def batches_within(self, position: int, limit: int, *, wait: bool = False) -> tuple[int, int]:
        """Return the end of the last whole batch that starts at or after `position` and ends at or before `limit`.

        And the base offset of the batch that follows it, -1 where that is not known. The end is `position` where the
        first batch is larger.
        """
        start = max(position, self.offset_index.lookup_position(limit, wait=wait))
        for batch in self.scan(start, wait=wait):
            if batch.end_position > limit:
                return batch.position, batch.base_offset if batch.magic == 2 else -1
        return self.size, -1

    def read_batch(self, batch: BatchPosition, *, wait: bool = False) -> bytes:
        """Return a batch's bytes. Raises NeedsWarming unless `wait`."""
        file = self.log.file
        if wait:
            return file.pread(batch.size_bytes, batch.position)
        data = file.pread_nowait(batch.size_bytes, batch.position)
        if data is None:
            raise NeedsWarming(file, batch.position, batch.size_bytes)
        return data

    def read_next_offset(self) -> int:
        """Return the offset behind the last record, the base offset when empty. Blocks."""
        next_offset = self.base_offset
        for batch in self.scan(self.offset_index.lookup(self.offset_index.last_offset, wait=True).position, wait=True):
            next_offset = batch.last_offset + 1
        return next_offset

    def truncate_to(self, offset: int, *, max_index_bytes: int, now_ms: int) -> int:
        """Cut the batch that holds `offset` and all behind it; return the bytes cut. Blocks. Raises OSError."""
        batch = self.find_batch(offset, wait=True)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self.offset_index.preallocate(max_index_bytes)
        self.time_index.preallocate(max_index_bytes)
        cut_bytes = 0 if batch is None else self.truncate_to_position(batch.position)
        if self.size == 0:
            self.created_ms = now_ms
            self._first_timestamp = None
        self.bytes_since_index_entry = 0
        self._largest = self._read_largest()
        self._note_full()
        return cut_bytes

    def truncate_to_position(self, position: int) -> int:
        """Cut the log file at `position`; regions that reach beyond become empty. Return the bytes cut."""
        cut_bytes = self.size - position
        self.log.cut_regions(position)
        self.log.file.truncate(position)
        self.size = position
        return cut_bytes

    def _read_largest(self) -> TimestampOffset:
        """Find the largest timestamp again: the last time index entry, and the batches behind it. Blocks."""
        largest = self.time_index.last_entry
        for batch in self.scan(self.offset_index.lookup(largest.offset, wait=True).position, wait=True):
            if batch.max_timestamp > largest.timestamp_ms:
                largest = TimestampOffset(batch.max_timestamp, batch.last_offset)
        return largest

    def become_active(self, max_index_bytes: int) -> None:
        """Make a loaded segment ready for appends: indexes of full size.

        The largest timestamp is the time index's last entry: a clean stop and recovery both put it there.
        """
        self.offset_index.preallocate(max_index_bytes)
        self.time_index.preallocate(max_index_bytes)
        self._note_full()

    def become_inactive(self) -> None:
        """Close for appends: the last time index entry, files trimmed to what they hold. Raises OSError."""
        largest = self.largest
        if largest.timestamp_ms >= 0:
            self.time_index.maybe_append(largest.timestamp_ms, largest.offset, use_last_slot=True)
        self.offset_index.trim()
        self.time_index.trim()
        if self.log.file.size() > self.size:
            self.log.file.truncate(self.size)

    def set_largest(self, largest: TimestampOffset) -> None:
        """Tell what recovery found while it read all batches."""
        self._largest = largest
        self._first_timestamp = None
        self._note_full()

    def handles(self) -> list[FileHandle]:
        """Return the handles of the files that exist, the log last."""
        handles = [self.offset_index.handle, self.time_index.handle]
        if self.txn_index.exists:
            handles.append(self.txn_index.handle)
        handles.append(self.log)
        return handles

    def rename_suffix(self, old: str, new: str) -> None:
        """Replace the suffix of all files, as when they wait for deletion. What broke off may be called again."""
        for handle in self.handles():
            if new and handle.path.endswith(new):
                continue
            assert handle.path.endswith(old)
            handle.rename(handle.path[: len(handle.path) - len(old)] + new)

    def delete(self) -> None:
        """Delete the files; one that is being sent stays readable until it is released."""
        for handle in self.handles():
            handle.delete()

    def let_go(self) -> None:
        """Close the files, which somebody else deletes; one that is being sent stays readable until it is released."""
        for handle in self.handles():
            handle.let_go()

    def close(self) -> None:
        """Close the files as they are; the next touch opens them again."""
        for handle in self.handles():
            handle.close()

    def __repr__(self) -> str:
        return f"Segment(base_offset={self.base_offset}, size={self.size})"


def _parse_header(window: bytes, at: int, position: int) -> BatchPosition | None:
    """Read a header of magic 2; None where something else stands there."""
    if len(window) - at < HEADER_BYTES:
        return None
    base_offset, length, _, magic, _, _, delta, _, max_timestamp, *_ = BATCH_HEADER.unpack_from(window, at)
    if magic != 2 or length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
        return None
    return BatchPosition(position, length + LOG_OVERHEAD_BYTES, base_offset, base_offset + delta, max_timestamp, 2)


def _parse_legacy_header(window: bytes, at: int, position: int) -> BatchPosition:
    """Read the header of a message of magic 0 or 1. Raises CorruptRecordError where that is none either."""
    header = window[at : at + 26]
    length = int.from_bytes(header[8:12], "big", signed=True)
    magic = header[16] if len(header) > 16 else -1
    if length < MIN_MESSAGE_BYTES or magic not in (0, 1):
        raise CorruptRecordError(f"no batch at byte {position} of a segment: length {length}, magic {magic}")
    offset = int.from_bytes(header[:8], "big", signed=True)
    timestamp = int.from_bytes(header[18:26], "big", signed=True) if magic == 1 else NO_TIMESTAMP
    return BatchPosition(position, length + LOG_OVERHEAD_BYTES, offset, offset, timestamp, magic)
