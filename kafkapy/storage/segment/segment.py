"""A segment: a file of whole record batches, its two sparse indexes, and its index of aborted transactions.

`.log` holds batches back to back in wire format, with base offset and leader epoch filled in. Invariants: `size` is the
end of the last whole batch written; positions in the indexes are starts of batches; last offsets increase from batch to
batch and differ from the base offset by at most 2**31 - 1.

Reads that would block raise NeedsWarming; with `wait` they block instead.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from kafkapy.config.log import LogConfig
from kafkapy.errors import CorruptIndexError
from kafkapy.named_tuple import NamedTuple
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
from kafkapy.storage.log_dir import NO_SPACE
from kafkapy.storage.segment.offset_index import OffsetIndex
from kafkapy.storage.segment.open_files import FileHandle, OpenFiles
from kafkapy.storage.segment.time_index import TimeIndex, TimestampOffset
from kafkapy.storage.segment.txn_index import AbortedTransaction, TransactionIndex
from kafkapy.types import INT32_MAX

SCAN_WINDOW_BYTES: Final = 4096 + HEADER_BYTES
"""How much a scan reads at once: the default distance between two index entries, plus the next header."""


class BatchInfo(Protocol):
    """The facts about each batch that `append` needs (kafkapy.record.validate.BatchSpan)."""

    @property
    def size_bytes(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...


class BatchPosition(NamedTuple):
    """A batch's position and the header fields that scans use. For magic 0 and 1, base offset = last offset."""

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
    """The files of one segment. `created_ms` replaces the first record's timestamp if that has none."""

    __slots__ = (
        "_first_timestamp",
        "_largest_timestamp",
        "_may_exceed_size",
        "base_offset",
        "bytes_since_index_entry",
        "created_ms",
        "index_interval_bytes",
        "index_room",
        "is_index_full",
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
        """Set the file names only; use `create` or `load` to make a segment."""
        assert base_offset >= 0, f"a segment at {base_offset}"
        self.base_offset = base_offset
        stem = segment_file(directory, base_offset, "")
        self.log = FileHandle(files, stem + LOG_SUFFIX + suffix)
        self.offset_index = OffsetIndex(files, stem + OFFSET_INDEX_SUFFIX + suffix, base_offset)
        self.time_index = TimeIndex(files, stem + TIME_INDEX_SUFFIX + suffix, base_offset)
        self.txn_index = TransactionIndex(files, stem + TXN_INDEX_SUFFIX + suffix, base_offset, exists=False)
        self.index_interval_bytes = config.index_interval_bytes
        self.roll_jitter_ms = 0
        self.created_ms = now_ms
        self.size = 0
        self.bytes_since_index_entry = 0
        self.is_index_full = False
        self.index_room = 0
        """Entries that both indexes of an active segment can still take, at least: exact whenever it reaches 0."""
        self._largest_timestamp: TimestampOffset | None = None
        self._first_timestamp: int | None = None
        self._may_exceed_size = False
        """Whether the .log file may be longer than `size`."""

    @classmethod
    def create(
        cls, files: OpenFiles, directory: str, base_offset: int, config: LogConfig, *, now_ms: int, suffix: str = ""
    ) -> "Segment":
        """Create an empty segment. Raises OSError."""
        segment = cls(files, directory, base_offset, config, now_ms=now_ms, suffix=suffix)
        file = segment.log.create()
        if config.preallocate:
            segment._may_exceed_size = True
            file.truncate(config.segment_bytes)
        segment.offset_index.reset(config.segment_index_bytes)
        segment.time_index.reset(config.segment_index_bytes)
        segment._largest_timestamp = TimestampOffset(NO_TIMESTAMP, base_offset)
        segment._update_index_room()
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
        """Load a segment from existing files, reading only the size of the .log file. Raises OSError."""
        segment = cls(files, directory, base_offset, config, now_ms=now_ms, suffix=suffix)
        segment.size = segment.log.size()
        path = segment.txn_index.handle.path
        segment.txn_index = TransactionIndex(files, path, base_offset, exists=has_txn_index)
        return segment

    def append(
        self,
        buffers: Sequence[ReadableBuffer],
        size_bytes: int,
        batches: Sequence[BatchInfo],
        aborted: Sequence[AbortedTransaction] = (),
    ) -> None:
        """Write batches at the end, and add index entries for some of them. The last offsets must fit the indexes.

        A batch gets an entry in both indexes if more than index.interval.bytes were written since the last entry.

        aborted: the transactions whose abort markers are among the batches. Without its entry in the index of aborted
        transactions, readers would take the records of one for committed. Raises OSError, CorruptIndexError (of that
        index); the segment is then unchanged.

        Deviation: Apache Kafka fails if the indexes become full amid the batches. Here the rest of them gets no
        entries, and the next append rolls, because a follower that has fetched such batches would stop following.
        """
        position = self.size
        index_entries = -1
        try:
            self.log.file.pwrite(buffers, position)
            for batch in batches:
                largest = self._largest_timestamp
                if largest is None or batch.max_timestamp > largest.timestamp_ms or not self.size:
                    self._record_timestamp(batch.max_timestamp, batch.last_offset)
                if self.bytes_since_index_entry > self.index_interval_bytes and not self.is_index_full:
                    # The counts before this append: the indexes are truncated to them if it fails.
                    if index_entries < 0:
                        index_entries, time_entries = self.offset_index.entry_count, self.time_index.entry_count
                    self._append_index_entries(batch.last_offset, position)
                batch_bytes = batch.size_bytes
                position += batch_bytes
                self.bytes_since_index_entry += batch_bytes
            if aborted:
                self.txn_index.append(*aborted)
        except (OSError, CorruptIndexError):
            self._undo_append(index_entries, time_entries if index_entries >= 0 else -1)
            raise
        assert position == self.size + size_bytes, "the batches of an append are its bytes"
        self.size = position

    def _append_index_entries(self, last_offset: int, position: int) -> None:
        largest = self._largest_timestamp or self.largest_timestamp
        self.offset_index.append(last_offset, position)
        failpoint("log.index.between")
        self.time_index.maybe_append(largest.timestamp_ms, largest.offset)
        self.bytes_since_index_entry = 0
        self.index_room -= 1  # the time index may have got none
        if self.index_room <= 0:
            self._update_index_room()

    def _undo_append(self, offset_entries: int, time_entries: int) -> None:
        """Truncate what a failed append may have written. If that fails too, recovery truncates it."""
        assert (offset_entries < 0) == (time_entries < 0), "entries were added to both indexes, or to none"
        self._may_exceed_size = True
        self._largest_timestamp = None  # may include unwritten records: read again when needed
        if self.size == 0:
            self._first_timestamp = None
        try:
            self.log.file.truncate(self.size)
            if offset_entries >= 0:
                self.offset_index.truncate_to_entries(offset_entries)
                self.time_index.truncate_to_entries(time_entries)
            self._largest_timestamp = self._read_largest_timestamp()
        except OSError:
            return

    def _record_timestamp(self, max_timestamp: int, last_offset: int) -> None:
        if max_timestamp > (self._largest_timestamp or self.largest_timestamp).timestamp_ms:
            self._largest_timestamp = TimestampOffset(max_timestamp, last_offset)
        if self._first_timestamp is None and self.size == 0:
            self._first_timestamp = max_timestamp

    def _update_index_room(self) -> None:
        """Set how many entries both indexes can take, and whether one of them is full."""
        self.index_room = room = min(self.offset_index.room, self.time_index.room)
        self.is_index_full = room <= 0

    @property
    def largest_timestamp(self) -> TimestampOffset:
        """The largest timestamp and its batch's last offset; in a loaded segment, the last entry of the time index."""
        if self._largest_timestamp is None:
            self._largest_timestamp = self.time_index.last_entry
        return self._largest_timestamp

    @property
    def first_timestamp(self) -> int:
        """The first batch's max timestamp, -1 if it has none: the start for time-based rolling. May block."""
        if self._first_timestamp is None:
            first = next(self.scan(0, wait=True), None)
            if first is None:
                return NO_TIMESTAMP
            self._first_timestamp = first.max_timestamp
        return self._first_timestamp

    def has_room(self, size_bytes: int, max_timestamp: int, last_offset: int, segment_bytes: int, roll_ms: int) -> bool:
        """Return whether an append needs no new segment; if not, should_roll decides."""
        first_timestamp = self._first_timestamp
        return (
            self.size <= segment_bytes - size_bytes
            and not self.is_index_full
            and last_offset - self.base_offset <= INT32_MAX
            and first_timestamp is not None
            and first_timestamp >= 0
            and max_timestamp - first_timestamp <= roll_ms - self.roll_jitter_ms
        )

    def should_roll(
        self, config: LogConfig, *, size_bytes: int, max_timestamp: int, last_offset: int, now_ms: int, roll_ms: int
    ) -> bool:
        """Return whether an append of `size_bytes` needs a new segment: by size, time, full index or offset range."""
        if self.size > config.segment_bytes - size_bytes or self.is_index_full:
            return True
        if last_offset - self.base_offset > INT32_MAX:
            return True
        if self.size == 0:
            return False
        first_timestamp = self._first_timestamp
        if first_timestamp is not None and first_timestamp >= 0:  # as waited_ms
            return max_timestamp - first_timestamp > roll_ms - self.roll_jitter_ms
        return self.waited_ms(now_ms, max_timestamp) > roll_ms - self.roll_jitter_ms

    def waited_ms(self, now_ms: int, max_timestamp: int) -> int:
        """Return the ms from the first batch's timestamp to max_timestamp; without timestamps, the segment's age."""
        first_timestamp = self._first_timestamp
        if first_timestamp is None:
            first_timestamp = self.first_timestamp
        return max_timestamp - first_timestamp if first_timestamp >= 0 else now_ms - self.created_ms

    def scan(self, position: int, end: int | None = None, *, wait: bool = False) -> Iterator[BatchPosition]:
        """Yield the whole batches from `position` (a batch's start) to `end`, reading only headers.

        Raises CorruptRecordError for an invalid length or magic; NeedsWarming unless `wait`.
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
        """Return the first batch whose last offset is at or above `offset`, or None."""
        start = self.offset_index.lookup(offset, wait=wait).position
        for batch in self.scan(start, wait=wait):
            if batch.last_offset >= offset:
                return batch
        return None

    def batches_within(self, position: int, limit: int, *, wait: bool = False) -> tuple[int, int]:
        """Return (end position, next offset) of the whole batches from `position` that end at or before `limit`.

        The end is `position` if the first batch is larger. next offset: base offset of the following batch, -1 if
        unknown.
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
        """Return the last offset + 1, or the base offset if the segment is empty. Blocks."""
        next_offset = self.base_offset
        if self.size == 0:  # as each new log's: no index to read
            return next_offset
        for batch in self.scan(self.offset_index.lookup(self.offset_index.last_offset, wait=True).position, wait=True):
            next_offset = batch.last_offset + 1
        return next_offset

    def truncate_to(self, offset: int, *, max_index_bytes: int, now_ms: int) -> int:
        """Remove the batch that contains `offset` and all later ones; return the bytes cut. Blocks. Raises OSError."""
        batch = self.find_batch(offset, wait=True)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self.offset_index.resize(max_index_bytes)
        self.time_index.resize(max_index_bytes)
        cut_bytes = 0 if batch is None else self.truncate_to_position(batch.position)
        if self.size == 0:
            self.created_ms = now_ms
            self._first_timestamp = None
        self.bytes_since_index_entry = 0
        self._largest_timestamp = self._read_largest_timestamp()
        self._update_index_room()
        return cut_bytes

    def truncate_to_position(self, position: int) -> int:
        """Truncate the .log file at `position`; regions that extend beyond it become empty. Return the bytes cut."""
        assert 0 <= position <= self.size, f"{self} is cut at byte {position}"
        cut_bytes = self.size - position
        self.log.cut_regions(position)
        self.log.file.truncate(position)
        self.log.mark_written()
        self.size = position
        return cut_bytes

    def _read_largest_timestamp(self) -> TimestampOffset:
        """Find the largest timestamp from the last time index entry and the batches after it. Blocks."""
        largest = self.time_index.last_entry
        for batch in self.scan(self.offset_index.lookup(largest.offset, wait=True).position, wait=True):
            if batch.max_timestamp > largest.timestamp_ms:
                largest = TimestampOffset(batch.max_timestamp, batch.last_offset)
        return largest

    def become_active(self, max_index_bytes: int) -> None:
        """Prepare a loaded segment for appends: set how many entries its indexes take.

        Its largest timestamp is the time index's last entry, written by a clean stop or by recovery.
        """
        self.offset_index.resize(max_index_bytes)
        self.time_index.resize(max_index_bytes)
        self._update_index_room()

    def become_inactive(self) -> None:
        """End appends: add the last time index entry, trim the files to their content. Raises OSError."""
        largest = self.largest_timestamp
        if largest.timestamp_ms >= 0:
            self.time_index.maybe_append(largest.timestamp_ms, largest.offset, use_last_slot=True)
        self.offset_index.trim()
        self.time_index.trim()
        if self._may_exceed_size:
            self.log.file.truncate(self.size)
            self.log.mark_written()
            self._may_exceed_size = False

    def write_index_entries(self) -> None:
        """Write the buffered index entries, so that the next flush syncs them. Raises OSError, except without space.

        Below the recovery point a start does not check the indexes: lost entries would make lookups slow for ever.
        """
        try:
            self.offset_index.write_buffered()
            self.time_index.write_buffered()
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise

    def mark_not_durable(self) -> None:
        """Mark all files for the next flush: another process, or one that crashed, wrote them."""
        for handle in self.handles():
            handle.mark_written()

    def set_largest_timestamp(self, largest: TimestampOffset) -> None:
        """Set the largest timestamp, which recovery found while reading all batches."""
        self._largest_timestamp = largest
        self._first_timestamp = None
        self._update_index_room()

    def handles(self) -> list[FileHandle]:
        """Return the handles of the files that exist, the log last."""
        handles = [self.offset_index.handle, self.time_index.handle]
        if self.txn_index.exists:
            handles.append(self.txn_index.handle)
        handles.append(self.log)
        return handles

    def rename_suffix(self, old: str, new: str) -> None:
        """Replace the suffix of all files, for example by .deleted. After an error, call it again to finish."""
        for handle in self.handles():
            if new and handle.path.endswith(new):
                continue
            assert handle.path.endswith(old)
            handle.rename(handle.path[: len(handle.path) - len(old)] + new)

    def delete(self) -> None:
        """Delete the files; pinned regions stay readable until they are released."""
        for handle in self.handles():
            handle.delete()

    def let_go(self) -> None:
        """Close the files, which the caller unlinks; pinned regions stay readable until they are released."""
        for handle in self.handles():
            handle.let_go()

    def close(self) -> None:
        """Close the files; the next access opens them again."""
        for handle in self.handles():
            handle.close()

    def __repr__(self) -> str:
        return f"Segment(base_offset={self.base_offset}, size={self.size})"


def _parse_header(window: bytes, at: int, position: int) -> BatchPosition | None:
    """Parse a header of magic 2; None if it is not one."""
    if len(window) - at < HEADER_BYTES:
        return None
    base_offset, length, _, magic, _, _, delta, _, max_timestamp, *_ = BATCH_HEADER.unpack_from(window, at)
    if magic != 2 or length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
        return None
    return BatchPosition(position, length + LOG_OVERHEAD_BYTES, base_offset, base_offset + delta, max_timestamp, 2)


def _parse_legacy_header(window: bytes, at: int, position: int) -> BatchPosition:
    """Parse the header of a message of magic 0 or 1. Raises CorruptRecordError if it is not one either."""
    header = window[at : at + 26]
    length = int.from_bytes(header[8:12], "big", signed=True)
    magic = header[16] if len(header) > 16 else -1
    if length < MIN_MESSAGE_BYTES or magic not in (0, 1):
        raise CorruptRecordError(f"no batch at byte {position} of a segment: length {length}, magic {magic}")
    offset = int.from_bytes(header[:8], "big", signed=True)
    timestamp = int.from_bytes(header[18:26], "big", signed=True) if magic == 1 else NO_TIMESTAMP
    return BatchPosition(position, length + LOG_OVERHEAD_BYTES, offset, offset, timestamp, magic)
