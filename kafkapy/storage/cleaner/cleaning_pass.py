"""A cleaning pass over one log: index the dirty section, then rewrite segments with the records to keep.

It reads the log's files and writes `<base offset>.{log,index,timeindex,txnindex}.cleaned` in the same directory,
complete and synced; it changes no file of the log. The log's owner swaps in each finished group (maintenance.py). So a
pass can run in the helper process (steps.py), away from the log. Its input is a CleaningPlan. The owner may drop it
between two steps: the next pass or start deletes its files.

If the offset map is full before the dirty section ends, the pass ends at the last indexed offset (`clean_to`), and the
next pass continues there.

All groups are filtered by the same offset map and may be swapped in one by one: a record is dropped because of a newer
one with the same key, which is kept even if the following groups are not swapped in.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, Final

from kafkapy.config.log import LogConfig
from kafkapy.named_tuple import NamedTuple
from kafkapy.record.batch import LOG_OVERHEAD_BYTES, RecordBatch
from kafkapy.record.batches import batches
from kafkapy.record.columns import RecordColumns, record_columns
from kafkapy.record.errors import CorruptRecordError
from kafkapy.seams import Disk, File, failpoint
from kafkapy.storage.cleaner.batch_filter import BatchFilter, KeptBatch, LastRecord
from kafkapy.storage.cleaner.offset_map import OffsetIndexer, OffsetMap
from kafkapy.storage.cleaner.plan import CleanedSegment, CleaningPlan, SegmentSizes, group_segments
from kafkapy.storage.cleaner.retained_offsets import NO_KEY, TOMBSTONE, RetainedOffsets
from kafkapy.storage.cleaner.transactions import CleanedTransactions
from kafkapy.storage.file_names import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    segment_file,
)
from kafkapy.storage.segment.offset_index import OffsetIndex
from kafkapy.storage.segment.open_files import OpenFiles
from kafkapy.storage.segment.segment import Segment
from kafkapy.storage.segment.txn_index import AbortedTransaction
from kafkapy.types import INT32_MAX

MIN_CHUNK_BYTES: Final = 4096
NO_MORE_ENTRIES: Final = 1 << 62
RETAINED_SHARE: Final = 8
"""The marks take 1/8 of log.cleaner.dedupe.buffer.size in addition: 16 MiB by default, one byte per offset."""


class Progress(NamedTuple):
    """The result of a step: the bytes read and written, and the group that it finished, if any."""

    io_bytes: int
    cleaned: CleanedSegment | None = None


class CleaningPass:
    """One pass over one log, in steps. Iterate over `run`; the counters are valid at any time."""

    def __init__(self, disk: Disk, plan: CleaningPlan) -> None:
        self.plan = plan
        self.bytes_read = 0
        self.bytes_written = 0
        self.indexed_bytes = 0
        self.records_read = 0
        self.records_kept = 0
        self.records_without_key = 0
        self.offset_map = OffsetMap(
            plan.dedupe_buffer_bytes,
            load_factor=plan.load_factor,
            needed_entries=plan.end_offset - plan.first_dirty_offset,
        )
        self._retained = RetainedOffsets(
            plan.first_dirty_offset, plan.end_offset, max_bytes=plan.dedupe_buffer_bytes // RETAINED_SHARE
        )
        self._disk = disk
        self._files = OpenFiles(disk)
        self._config = LogConfig(
            segment_bytes=plan.segment_bytes,
            segment_index_bytes=plan.segment_index_bytes,
            index_interval_bytes=plan.index_interval_bytes,
        )
        self._sizes = dict(plan.segments)
        self._aborted = [AbortedTransaction(*entry) for entry in plan.aborted]
        self._last_records = {
            producer_id: LastRecord(last_data_offset, producer_epoch)
            for producer_id, last_data_offset, producer_epoch in plan.last_records
        }

    @property
    def clean_to(self) -> int:
        """The log is clean below this offset after the pass; valid when the dirty section has been indexed."""
        return self.offset_map.latest_offset + 1

    def facts(self) -> dict[str, Any]:
        """Return the values for the report, JSON-serializable."""
        return {
            "clean_to": self.clean_to,
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "indexed_bytes": self.indexed_bytes,
            "records_read": self.records_read,
            "records_kept": self.records_kept,
            "records_without_key": self.records_without_key,
            "map_utilization": self.offset_map.utilization,
        }

    def run(self) -> Iterator[Progress]:
        """Run the pass step by step. Raises OSError, RecordsError, CorruptIndexError; the pass is then over."""
        yield from self._index_dirty_section()
        self._retained.mark_kept(self.offset_map)
        if self.clean_to <= 0:
            return
        groups = group_segments(
            [self._sizes_of(base_offset) for base_offset in self._sizes if base_offset < self.clean_to],
            max_bytes=self.plan.segment_bytes,
            max_index_bytes=self.plan.segment_index_bytes,
            end_offset=self.plan.end_offset,
        )
        batch_filter, transactions = self._new_filter()
        legacy_horizon_ms = self._legacy_horizon_ms()
        for group in groups:
            base_offsets = [segment.base_offset for segment in group]
            yield from self._clean(base_offsets, batch_filter, transactions, legacy_horizon_ms)

    # Indexing

    def _index_dirty_section(self) -> Iterator[Progress]:
        """Put the last offset of each key into the map, from the first dirty offset to the end, or until it is full."""
        plan = self.plan
        transactions = CleanedTransactions(
            entry for entry in self._aborted if entry.last_offset >= plan.first_dirty_offset
        )
        indexer = OffsetIndexer(self.offset_map)
        base_offsets = list(self._sizes)
        for base_offset, end_offset in zip(base_offsets, [*base_offsets[1:], plan.end_offset], strict=True):
            if end_offset <= plan.first_dirty_offset:
                continue
            for chunk in self._chunks(base_offset, self._position_of_first_dirty(base_offset)):
                is_full = any(self._index(batch, indexer, transactions) for batch in batches(chunk))
                self.indexed_bytes += len(chunk)
                yield Progress(len(chunk))
                if is_full:
                    return
            indexer.flush()
            # Compaction may have removed the segment's last offsets: no batch has them.
            self.offset_map.latest_offset = end_offset - 1

    def _position_of_first_dirty(self, base_offset: int) -> int:
        if base_offset >= self.plan.first_dirty_offset:
            return 0
        index = OffsetIndex(
            self._files, segment_file(self.plan.directory, base_offset, OFFSET_INDEX_SUFFIX), base_offset
        )
        try:
            return index.lookup(self.plan.first_dirty_offset, wait=True).position
        finally:
            index.handle.close()

    def _index(self, batch: RecordBatch, indexer: OffsetIndexer, transactions: CleanedTransactions) -> bool:
        """Add a batch of the dirty section to the map; return whether the map is full.

        A damaged batch is an error: records that it seems to supersede would be dropped from earlier groups.
        """
        if not batch.has_valid_crc():
            raise CorruptRecordError(f"the CRC of the batch at offset {batch.last_offset} does not fit")
        is_skipped = batch.magic == 2 and (transactions.may_discard(batch) or batch.is_control)
        if batch.last_offset < self.plan.first_dirty_offset:
            return False
        if is_skipped:
            self.offset_map.latest_offset = max(self.offset_map.latest_offset, batch.last_offset)
            return False
        keys, offsets = self._keys_and_offsets(batch)
        if indexer.add(keys, offsets):
            return True
        self.offset_map.latest_offset = batch.last_offset
        return False

    def _keys_and_offsets(self, batch: RecordBatch) -> tuple[list[bytes], Sequence[int]]:
        """Return the keys in a batch and their offsets, without records that have no key or are not dirty."""
        if batch.magic == 2:
            if batch.record_count == 0:
                return [], []
            columns = record_columns(batch.records_payload(), batch.record_count)
            offsets = _offsets_of(batch, columns)
            self._mark_special_records(batch, columns, offsets)
            if batch.base_offset >= self.plan.first_dirty_offset and None not in columns.keys:
                return columns.keys, offsets  # type: ignore[return-value]  # none of them is None
            found: Iterable[tuple[bytes | None, int]] = zip(columns.keys, offsets, strict=True)
        else:
            records = list(batch.records())
            found = zip([record.key for record in records], (record.offset for record in records), strict=True)
        dirty = [(key, at) for key, at in found if key is not None and at >= self.plan.first_dirty_offset]
        return [key for key, _ in dirty], [at for _, at in dirty]

    def _mark_special_records(self, batch: RecordBatch, columns: RecordColumns, offsets: Sequence[int]) -> None:
        """Mark tombstones and records without a key; set has_disorder if offsets do not ascend."""
        if batch.record_count == batch.next_offset - batch.base_offset and not isinstance(offsets, range):
            self._retained.has_disorder = True
        if columns.null_values:
            self._retained.mark((offsets[index] for index in columns.null_values), TOMBSTONE)
        if None in columns.keys:
            without_key = (offset for key, offset in zip(columns.keys, offsets, strict=True) if key is None)
            self._retained.mark(without_key, NO_KEY)

    # Writing

    def _new_filter(self) -> tuple[BatchFilter, CleanedTransactions]:
        transactions = CleanedTransactions(self._aborted)
        batch_filter = BatchFilter(
            self.offset_map,
            self._retained,
            transactions,
            last_records=self._last_records,
            end_offset=self.plan.end_offset,
            now_ms=self.plan.now_ms,
            delete_retention_ms=self.plan.delete_retention_ms,
        )
        return batch_filter, transactions

    def _clean(
        self, group: list[int], batch_filter: BatchFilter, transactions: CleanedTransactions, legacy_horizon_ms: int
    ) -> Iterator[Progress]:
        """Write the retained records of a group into one segment."""
        plan = self.plan
        assert group == sorted(group), f"segments {group} are read in order"
        assert group[-1] < plan.end_offset, f"segments {group} of a pass up to {plan.end_offset}"
        # A pass that was killed may have left files of the same names.
        delete_cleaned_files(self._disk, plan.directory, group[0])
        cleaned = Segment.create(
            self._files, plan.directory, group[0], self._config, now_ms=plan.now_ms, suffix=CLEANED_SUFFIX
        )
        with closing(cleaned):
            for base_offset in group:
                # Batches of magic 0 and 1 have no field for a delete horizon: their tombstones go by the age of their
                # segment.
                batch_filter.keeps_legacy_tombstones = self._modified_ms(base_offset) > legacy_horizon_ms
                for chunk in self._chunks(base_offset, 0):
                    kept = [each for each in map(batch_filter.keep, batches(chunk)) if each is not None]
                    written_bytes = _append(cleaned, kept)
                    while transactions.retained:
                        cleaned.txn_index.append(transactions.retained.pop(0))
                    batch_filter.trim()
                    self._count(batch_filter, len(chunk), written_bytes)
                    yield Progress(len(chunk) + written_bytes)
            self._finish(cleaned, self._modified_ms(group[-1]))
            result = CleanedSegment(group[0], group, cleaned.size, cleaned.txn_index.exists)
        failpoint("cleaner.group.written")
        yield Progress(0, result)

    def _count(self, batch_filter: BatchFilter, read_bytes: int, written_bytes: int) -> None:
        self.bytes_read += read_bytes
        self.bytes_written += written_bytes
        assert batch_filter.records_kept <= batch_filter.records_read, "records are removed, never added"
        assert written_bytes >= 0, f"{written_bytes} bytes were written"
        self.records_read = batch_filter.records_read
        self.records_kept = batch_filter.records_kept
        self.records_without_key = batch_filter.records_without_key

    def _finish(self, cleaned: Segment, modified_ms: int) -> None:
        """Sync the files and set the modification time, that of the newest replaced segment."""
        cleaned.become_inactive()
        for handle in cleaned.handles():
            handle.file.sync()
        self._disk.set_modified_ms(cleaned.log.path, modified_ms)
        self._disk.sync_directory(self.plan.directory)

    # The log's files

    def _legacy_horizon_ms(self) -> int:
        """Return the time (ms): segments last modified at or before it lose their tombstones of magic 0 and 1.

        Call it before a group is swapped in: the swap may replace the file whose modification time it reads.
        """
        clean = [base_offset for base_offset in self._sizes if base_offset < self.plan.first_dirty_offset]
        return self._modified_ms(clean[-1]) - self.plan.delete_retention_ms if clean else 0

    def _path(self, base_offset: int, suffix: str = LOG_SUFFIX) -> str:
        return segment_file(self.plan.directory, base_offset, suffix)

    def _modified_ms(self, base_offset: int) -> int:
        return self._disk.modified_ms(self._path(base_offset))

    def _sizes_of(self, base_offset: int) -> SegmentSizes:
        index_bytes = []
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            file = self._disk.open(self._path(base_offset, suffix), writable=False)
            with closing(file):
                index_bytes.append(file.size())
        return SegmentSizes(base_offset, self._sizes[base_offset], *index_bytes)

    def _chunks(self, base_offset: int, position: int) -> Iterator[memoryview]:
        """Yield a segment's whole batches from `position` on, about io_buffer_bytes at a time."""
        end = self._sizes[base_offset]
        if position >= end:
            return
        file = self._disk.open(self._path(base_offset), writable=False)
        with closing(file):
            while position < end:
                chunk = _read_whole_batches(file, position, end, max(self.plan.io_buffer_bytes, MIN_CHUNK_BYTES))
                yield chunk
                position += len(chunk)


def _offsets_of(batch: RecordBatch, columns: RecordColumns) -> Sequence[int]:
    """Return the offset of each record; a range if they follow each other from the batch's base offset on."""
    base_offset, deltas = batch.base_offset, columns.offset_deltas
    if deltas == list(range(len(deltas))):
        return range(base_offset, base_offset + len(deltas))
    return [base_offset + delta for delta in deltas]


def _read_whole_batches(file: File, position: int, end: int, chunk_bytes: int) -> memoryview:
    """Read as many whole batches as fit chunk_bytes, at least one. Raises CorruptRecordError for an invalid length."""
    data = file.pread(min(chunk_bytes, end - position), position)
    whole = _whole_bytes(data)
    if whole == 0:
        size_bytes = LOG_OVERHEAD_BYTES + int.from_bytes(data[8:12], "big", signed=True)
        if not len(data) < size_bytes <= end - position:
            raise CorruptRecordError(f"a batch of {size_bytes} bytes at byte {position} of {file.path}")
        data = file.pread(size_bytes, position)
        whole = _whole_bytes(data)
        if whole == 0:
            raise CorruptRecordError(f"{file.path} ends within the batch at byte {position}")
    return memoryview(data)[:whole]


def _whole_bytes(data: bytes) -> int:
    """Return the end position of the last whole batch in `data`."""
    position = 0
    while len(data) - position >= LOG_OVERHEAD_BYTES:
        length = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
        if length <= 0 or position + LOG_OVERHEAD_BYTES + length > len(data):
            break
        position += LOG_OVERHEAD_BYTES + length
    return position


def _append(segment: Segment, kept: list[KeptBatch]) -> int:
    """Append batches; return their size in bytes. When an index is full, no more entries are added.

    Raises CorruptRecordError if an offset does not fit the segment's indexes. Loading has split segments with such a
    wide range (segment_split.py), so the offset is damaged: no checksum covers it.
    """
    if not kept:
        return 0
    if kept[-1].last_offset - segment.base_offset > INT32_MAX:
        raise CorruptRecordError(f"offset {kept[-1].last_offset} does not fit a segment from {segment.base_offset} on")
    free_entries = segment.offset_index.max_entries - segment.offset_index.entry_count
    if free_entries > len(kept) + 1 or segment.index_interval_bytes == NO_MORE_ENTRIES:
        size_bytes = sum(batch.size_bytes for batch in kept)
        segment.append([batch.data for batch in kept], size_bytes, kept)
        return size_bytes
    for batch in kept:
        if segment.is_index_full:
            segment.index_interval_bytes = NO_MORE_ENTRIES
        segment.append([batch.data], batch.size_bytes, [batch])
    return sum(batch.size_bytes for batch in kept)


def delete_cleaned_files(disk: Disk, directory: str, base_offset: int) -> None:
    """Delete the .cleaned files that an earlier pass left for this base offset."""
    for suffix in SEGMENT_SUFFIXES:
        disk.delete(segment_file(directory, base_offset, suffix) + CLEANED_SUFFIX)
