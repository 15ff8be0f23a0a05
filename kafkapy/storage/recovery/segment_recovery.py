"""Recover a segment: validate its batches from the first byte and rebuild its indexes as appends would.

A killed broker must read everything not yet durable before it serves clients. So the loop over batches does little for
each: one unpack of the header, one CRC, no objects. Rare cases (messages of magic 0 and 1, markers, a producer out of
sequence, damage) take the slower, careful path.
"""

import logging
from collections.abc import Callable
from typing import Final

from kafkapy.config.log import LogConfig
from kafkapy.errors import CorruptIndexError, KafkapyError
from kafkapy.record.batch import (
    ATTRIBUTES_POSITION,
    BATCH_HEADER,
    CONTROL_FLAG,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)
from kafkapy.record.batches import has_valid_crc, scan_headers
from kafkapy.record.crc import crc32c
from kafkapy.record.errors import RecordsError
from kafkapy.storage.leader_epochs import LeaderEpochs
from kafkapy.storage.log_dir import NO_SPACE
from kafkapy.storage.producers.replay import producer_batch, replay_producer_batch
from kafkapy.storage.producers.state import ProducerState
from kafkapy.storage.segment import offset_index, time_index
from kafkapy.storage.segment.open_files import FileHandle
from kafkapy.storage.segment.segment import Segment
from kafkapy.storage.segment.time_index import TimestampOffset
from kafkapy.types import INT32_MAX

logger = logging.getLogger("kafkapy.storage")

CHUNK_BYTES: Final = 4 << 20
SPECIAL_FLAGS: Final = CONTROL_FLAG | TRANSACTIONAL_FLAG


class OffsetOverflowError(KafkapyError):
    """A segment holds an offset too far from its base offset for its indexes. Loading splits it (segment_split.py).

    is_in_doubt: its indexes look valid; it is then split only if all of its batches are valid.
    """

    def __init__(self, segment: Segment, *, is_in_doubt: bool = False) -> None:
        super().__init__(f"Detected offset overflow in segment {segment}")
        self.segment = segment
        self.is_in_doubt = is_in_doubt


def reset_indexes(segment: Segment, config: LogConfig) -> None:
    segment.time_index.reset(config.segment_index_bytes)
    segment.offset_index.reset(config.segment_index_bytes)
    segment.txn_index.reset()


def check_has_timestamps(segment: Segment) -> None:
    """Raise CorruptIndexError if an inactive segment has timestamps, but its time index has no entry.

    This is the state after an interrupted SegmentRecovery. Its other indexes may look valid but lack entries; without
    the entry of an aborted transaction, that transaction's records would be read as committed.
    """
    index = segment.time_index
    if index.last_entry.timestamp_ms > 0 or not segment.size:
        return
    try:
        first = next(segment.scan(0, wait=True), None)
    except RecordsError:
        return  # damaged data: rebuilding the index does not help
    if first is not None and first.max_timestamp > index.last_entry.timestamp_ms:
        raise CorruptIndexError(f"{index.handle.path}: it has no entry of the segment's timestamps")


def check_last_entries(segment: Segment, end_offset: int | None) -> None:
    """Raise CorruptIndexError if an index has entries beyond its segment. end_offset: the next segment's base offset.

    In the last segment (end_offset None) the last entries must match batches of the .log file. Deviation: Apache Kafka
    trusts these entries. Here they are checked, because it could else neither append nor stop cleanly. If the log
    itself cannot be read, this returns, and the caller finds the damage.
    """
    offsets, times = segment.offset_index, segment.time_index
    if end_offset is None:
        try:
            end_offset = _checked_end_offset(segment)
        except RecordsError as error:
            if _has_whole_batches(segment):
                raise CorruptIndexError(
                    f"{offsets.handle.path}: no batch at the last entry: {error.message}"
                ) from error
            return
    for index, last_offset in ((offsets, offsets.last_offset), (times, times.last_entry.offset)):
        if index.entry_count and last_offset >= end_offset:
            raise CorruptIndexError(f"{index.handle.path}: offset {last_offset} in a segment that ends at {end_offset}")


def _checked_end_offset(segment: Segment) -> int:
    """Return the last segment's end offset. Raises CorruptIndexError if its last index entries match no batch."""
    last = segment.offset_index.last_entry
    tail = list(segment.scan(last.position, wait=True))
    if segment.offset_index.entry_count and not (tail and segment.base_offset <= tail[0].last_offset <= last.offset):
        raise CorruptIndexError(f"{segment.offset_index.handle.path}: {last} is the entry of no batch")
    latest = segment.time_index.last_entry
    if segment.time_index.entry_count:
        batch = segment.find_batch(latest.offset, wait=True)
        if batch is None or batch.max_timestamp != latest.timestamp_ms:
            raise CorruptIndexError(f"{segment.time_index.handle.path}: {latest} is the entry of no batch")
    return tail[-1].last_offset + 1 if tail else segment.base_offset


def _has_whole_batches(segment: Segment) -> bool:
    """Return whether the whole segment consists of batches, judged by their headers."""
    try:
        return max((batch.end_position for batch in segment.scan(0, wait=True)), default=0) == segment.size
    except RecordsError:
        return False


class SegmentRecovery:
    """Validates a segment from its first byte and rebuilds its indexes, as appends would have written them.

    The time index is written last. After a crash before that, it lacks the segment's timestamps, which
    check_has_timestamps detects. `sync` decides what is made durable at each step.

    has_gaps: offsets are missing between or within its batches, so it was compacted.
    """

    def __init__(
        self,
        segment: Segment,
        config: LogConfig,
        epochs: LeaderEpochs,
        producers: ProducerState,
        *,
        may_split: bool = True,
        sync: Callable[[FileHandle], None] = lambda handle: None,
    ) -> None:
        """may_split: whether an offset that does not fit the indexes raises OffsetOverflowError or counts as damage.

        sync: makes an index durable; needed if the next start would trust this segment's indexes.
        """
        self._may_split = may_split
        self._sync = sync
        self._segment = segment
        self._config = config
        self._epochs = epochs
        self._producers = producers
        self._largest = TimestampOffset(NO_TIMESTAMP, segment.base_offset)
        self._indexed_to = 0
        self._valid_bytes = 0
        self._next_offset = segment.base_offset
        self._offset_entries = bytearray()
        self._time_entries = bytearray()
        self._last_indexed_ms = NO_TIMESTAMP
        self.has_gaps = False

    def run(self) -> int:
        """Recover the segment; return the bytes cut. Raises OffsetOverflowError; the indexes are then incomplete."""
        segment = self._segment
        segment.time_index.reset(self._config.segment_index_bytes)
        self._sync(segment.time_index.handle)
        segment.offset_index.reset(self._config.segment_index_bytes)
        segment.txn_index.reset()
        self._read_all()
        self._write_offset_entries()
        segment.set_largest_timestamp(self._largest)
        cut_bytes = self._cut() if self._valid_bytes < segment.size else 0
        segment.offset_index.trim()
        self._sync(segment.offset_index.handle)
        if segment.txn_index.exists:
            self._sync(segment.txn_index.handle)
        self._write_time_index()
        self._sync(segment.time_index.handle)
        segment.bytes_since_index_entry = self._valid_bytes - self._indexed_to
        return cut_bytes

    def _cut(self) -> int:
        """Truncate the invalid data durably: after another crash it could otherwise reappear after newer appends."""
        cut_bytes = self._segment.truncate_to_position(self._valid_bytes)
        self._segment.log.file.sync()
        return cut_bytes

    # Reading

    def _read_all(self) -> None:
        """Read batches to the end, or up to the first invalid one."""
        log, size = self._segment.log, self._segment.size
        length = CHUNK_BYTES
        while self._valid_bytes < size:
            start = self._valid_bytes
            chunk = log.file.pread(min(length, size - start), start)  # reopened if the cache closed it for an index
            if not self._scan_plain(chunk):
                return
            if self._valid_bytes == start:
                batch_bytes = LOG_OVERHEAD_BYTES + int.from_bytes(chunk[8:12], "big", signed=True)
                if batch_bytes > len(chunk) and batch_bytes <= size - start:
                    length = batch_bytes  # larger than what was read
                    continue
                if not self._scan_carefully(chunk):
                    return
            length = CHUNK_BYTES
            self._write_offset_entries()

    def _scan_plain(self, chunk: bytes) -> bool:
        """Process batches of magic 2 up to the first other or incomplete one; return False at an invalid one."""
        # One piece: a gigabyte of small batches has millions, and what they change stays in local variables. Its parts,
        # a batch: is it valid; its producer; the indexes' entries; its leader epoch; gaps.
        view = memoryview(chunk)
        unpack_from = BATCH_HEADER.unpack_from
        size = len(chunk)
        chunk_start = self._valid_bytes
        at = 0
        next_offset = self._next_offset
        max_offset = self._segment.base_offset + INT32_MAX
        latest_epoch = self._epochs.latest_epoch
        epoch = -1 if latest_epoch is None else latest_epoch
        largest_ms, _, _ = self._largest
        interval = self._config.index_interval_bytes
        indexed_to = self._indexed_to - chunk_start
        producers = self._producers.producers
        has_gaps = self.has_gaps
        last_start = size - HEADER_BYTES
        while at <= last_start:
            (
                base_offset, length, leader_epoch, magic, crc, attributes, delta, _, max_ms, producer_id,
                producer_epoch, sequence, count,
            ) = unpack_from(chunk, at)  # fmt: skip
            end = at + length + LOG_OVERHEAD_BYTES
            if magic != 2 or length < HEADER_BYTES - LOG_OVERHEAD_BYTES or end > size:
                break
            last_offset = base_offset + delta
            if not next_offset <= base_offset <= last_offset or crc32c(view[at + ATTRIBUTES_POSITION : end]) != crc:
                return self._stop(chunk_start + at, next_offset)
            if last_offset > max_offset:
                self._overflow()
                return self._stop(chunk_start + at, next_offset)
            if producer_id >= 0:
                entry = producers.get(producer_id)
                if (
                    entry is not None
                    and producer_epoch == entry.producer_epoch
                    and attributes & SPECIAL_FLAGS == (TRANSACTIONAL_FLAG if entry.transaction_first_offset >= 0 else 0)
                ):
                    last_sequence = (sequence + delta) & INT32_MAX if sequence >= 0 else sequence
                    entry.add_batch(last_sequence, last_offset, delta, max_ms)
                else:
                    header = BatchHeader(
                        at, end - at, base_offset, last_offset, leader_epoch, magic, crc, attributes, 0, max_ms,
                        producer_id, producer_epoch, sequence, count,
                    )  # fmt: skip
                    if not self._scan_producer(header, chunk):
                        return self._stop(chunk_start + at, next_offset)
            if max_ms > largest_ms:
                largest_ms = max_ms
                self._largest = TimestampOffset(max_ms, last_offset)
            if at - indexed_to > interval:
                self._add_entries(last_offset, chunk_start + at)
                indexed_to = at
            if leader_epoch > epoch:
                self._epochs.assign(leader_epoch, base_offset)
                epoch = leader_epoch
            if base_offset != next_offset or count != delta + 1:
                has_gaps = True
            next_offset = last_offset + 1
            at = end
        self.has_gaps = has_gaps
        return self._stop(chunk_start + at, next_offset, holds=True)

    def _stop(self, valid_bytes: int, next_offset: int, *, holds: bool = False) -> bool:
        self._valid_bytes = valid_bytes
        self._next_offset = next_offset
        self._producers.record_end_offset(next_offset)
        return holds

    def _scan_carefully(self, chunk: bytes) -> bool:
        """Process the messages of magic 0 and 1 at the start of a chunk; return False if there is no valid one."""
        chunk_start = self._valid_bytes
        try:
            for header in scan_headers(chunk):
                if header.magic == 2:
                    break
                if not self._holds(header, chunk):
                    return False
                self._scan_old(header, chunk_start + header.position)
        except RecordsError as error:
            self._warn(error)
            return False
        return self._valid_bytes > chunk_start

    def _warn(self, error: RecordsError) -> None:
        path = self._segment.log.path
        logger.warning("Found invalid messages in %s at byte %d: %s", path, self._valid_bytes, error)

    def _scan_old(self, header: BatchHeader, position: int) -> None:
        if header.max_timestamp > self._largest.timestamp_ms:
            self._largest = TimestampOffset(header.max_timestamp, header.last_offset)
        if position - self._indexed_to > self._config.index_interval_bytes:
            self._add_entries(header.last_offset, position)
        self._stop(position + header.size_bytes, header.last_offset + 1)

    def _holds(self, header: BatchHeader, chunk: bytes) -> bool:
        is_ordered = self._next_offset <= header.base_offset <= header.last_offset
        if not (is_ordered and has_valid_crc(chunk, header.position, header.size_bytes)):
            return False
        if not self._segment.offset_index.can_append(header.last_offset):
            self._overflow()
            return False
        return True

    def _overflow(self) -> None:
        if self._may_split:
            raise OffsetOverflowError(self._segment)

    def _scan_producer(self, header: BatchHeader, chunk: bytes) -> bool:
        """Replay a batch with a producer id; return False for a control batch that cannot be parsed."""
        try:
            batch = producer_batch(header, chunk)
        except RecordsError as error:
            self._warn(error)
            return False
        for aborted in replay_producer_batch(self._producers, batch):
            self._segment.txn_index.append(aborted)
        return True

    # Indexes

    def _add_entries(self, last_offset: int, position: int) -> None:
        """Add index entries for the batch at `position`: written once per chunk, those of the time index at the end."""
        base_offset = self._segment.base_offset
        self._offset_entries += offset_index.ENTRY.pack(last_offset - base_offset, position)
        largest_ms, largest_offset, _ = self._largest
        if largest_ms > self._last_indexed_ms:
            self._time_entries += time_index.ENTRY.pack(largest_ms, largest_offset - base_offset)
            self._last_indexed_ms = largest_ms
        self._indexed_to = position

    def _write_offset_entries(self) -> None:
        entries, self._offset_entries = self._offset_entries, bytearray()
        self._if_there_is_room(lambda: self._segment.offset_index.append_entries(entries))

    def _write_time_index(self) -> None:
        index = self._segment.time_index
        self._if_there_is_room(lambda: index.append_entries(self._time_entries))
        if self._largest.timestamp_ms >= 0:
            index.maybe_append(*self._largest[:2], use_last_slot=True)
        if not self._if_there_is_room(index.trim):
            index.truncate_to_entries(index.entry_count - 1)  # the entry just added, still buffered
            index.trim()

    def _if_there_is_room(self, write: Callable[[], object]) -> bool:
        """Write index entries unless the disk is full; return whether it did. Fewer entries are slower, but correct."""
        try:
            write()
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            logger.warning("No space left for the indexes of %s; lookups in it are slower", self._segment.log.path)
            return False
        return True
