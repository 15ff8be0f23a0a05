"""Loading a log: leftovers of interrupted work put right, damage cut off, indexes and producer state rebuilt.

After a clean stop the files are taken as they are. Otherwise every segment from the recovery point on is read: each
batch's length, offsets and CRC. The first that does not hold ends the log, and what follows is deleted. Below the
recovery point all was synced, so it is trusted; a missing or broken index is rebuilt wherever it is.

Stricter than Apache Kafka, by intent: a batch whose offsets do not lie behind those before it ends the log, too, and so
does a segment that begins behind the end of the one before it (after a power cut the name of a new segment may be there
while the end of the old one is not). Only a compacted log may have such gaps, and one that shows that it once was.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from kafkapy.config.log import LogConfig
from kafkapy.errors import CorruptIndexError
from kafkapy.record.batch import (
    CONTROL_FLAG,
    LOG_OVERHEAD_BYTES,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    batch_at,
    crc_is_valid,
    increment_sequence,
    scan_headers,
)
from kafkapy.record.errors import RecordsError
from kafkapy.record.validate import AppendOrigin
from kafkapy.seams import ReadableBuffer
from kafkapy.storage import checkpoint
from kafkapy.storage.errors import CheckpointError
from kafkapy.storage.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    RAFT_SNAPSHOT_DELETED_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_of,
)
from kafkapy.storage.leader_epochs import LeaderEpochs
from kafkapy.storage.open_files import OpenFiles
from kafkapy.storage.producer_snapshots import ProducerSnapshots
from kafkapy.storage.producer_state import ProducerBatch, ProducerState, TransactionMarker
from kafkapy.storage.segment import Segment
from kafkapy.storage.segments import Segments
from kafkapy.storage.time_index import NO_TIMESTAMP, TimestampOffset
from kafkapy.storage.txn_index import AbortedTransaction
from kafkapy.types import TopicPartition

logger = logging.getLogger("kafkapy.storage")

CHUNK_BYTES: Final = 1 << 20
Progress: TypeAlias = Callable[[TopicPartition, int, int], None]
"""Called with the partition, the segments recovered so far, and how many there are to recover."""


class ScannedBatch(NamedTuple):
    """A batch found in a segment: its header, the chunk that holds its bytes, and its position in the segment."""

    header: BatchHeader
    chunk: bytes
    position: int


@dataclass(slots=True)
class LoadedLog:
    """What a log starts from. `doomed` are segments that recovery dropped; their files wait for deletion."""

    segments: Segments
    epochs: LeaderEpochs
    producers: ProducerState
    snapshots: ProducerSnapshots
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    doomed: list[Segment] = field(default_factory=list)


def scan_batches(segment: Segment, start: int, end: int | None = None) -> Iterator[ScannedBatch]:
    """Yield the whole batches from position `start` (a batch's start) to `end`, reading a chunk at a time. Blocks.

    Raises CorruptRecordError where no batch can be.
    """
    end = segment.size if end is None else end
    length = CHUNK_BYTES
    while start < end:
        chunk = segment.log.file.pread(min(length, end - start), start)
        read_to = 0
        for header in scan_headers(chunk):
            read_to = header.position + header.size_bytes
            yield ScannedBatch(header, chunk, start + header.position)
        if read_to == 0:
            length = LOG_OVERHEAD_BYTES + int.from_bytes(chunk[8:12], "big", signed=True)
            if length <= len(chunk) or length > end - start:
                return  # cut short
            continue
        start += read_to
        length = CHUNK_BYTES


def producer_batch(header: BatchHeader, data: ReadableBuffer) -> ProducerBatch | None:
    """Return what producer state takes of a batch with a producer id; None for a marker that was cleaned away.

    `data` holds the batch at header.position. Raises RecordsError where a control batch cannot be read.
    """
    marker = None
    if header.attributes & CONTROL_FLAG:
        marker = read_marker(data, header.position)
        if marker is None:
            return None
    last_sequence = header.base_sequence
    if last_sequence >= 0:
        last_sequence = increment_sequence(last_sequence, header.last_offset - header.base_offset)
    return ProducerBatch(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        last_sequence,
        header.base_offset,
        header.last_offset,
        header.max_timestamp,
        header.attributes & TRANSACTIONAL_FLAG != 0,
        marker,
    )


def read_marker(data: ReadableBuffer, position: int) -> TransactionMarker | None:
    """Return the end of a transaction that a control batch holds, None where its record is gone.

    Key: int16 version, int16 type (0 abort, 1 commit); value: int16 version, int32 coordinator epoch. KIP-98.
    """
    record = next(batch_at(data, position).records(), None)
    if record is None or record.key is None or record.value is None:
        return None
    control_type = int.from_bytes(record.key[2:4], "big", signed=True)
    if control_type not in (0, 1):
        return None
    return TransactionMarker(
        is_abort=control_type == 0,
        coordinator_epoch=int.from_bytes(record.value[2:6], "big", signed=True),
        timestamp_ms=record.timestamp_ms,
    )


class LogLoader:
    """Loads one log. `log_start_offset` and `recovery_point` are what the checkpoints say."""

    def __init__(
        self,
        files: OpenFiles,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        now_ms: int,
        log_start_offset: int,
        recovery_point: int,
        was_clean_shutdown: bool,
        new_producer_state: Callable[[], ProducerState],
        on_progress: Progress | None = None,
    ) -> None:
        self._files = files
        self._disk = files.disk
        self._directory = directory
        self._topic_partition = topic_partition
        self._config = config
        self._now_ms = now_ms
        self._start_checkpoint = log_start_offset
        self._recovery_point = recovery_point
        self._was_clean = was_clean_shutdown
        self._new_producer_state = new_producer_state
        self._on_progress = on_progress
        self._segments = Segments()
        self._snapshots = ProducerSnapshots(self._disk, directory)
        self._epochs = LeaderEpochs()
        self._doomed: list[Segment] = []
        self._first_unflushed = 0
        self._was_compacted = False

    def load(self) -> LoadedLog:
        """Return the log as it is on disk, put right. Raises OSError."""
        names = self._finish_interrupted_work()
        if checkpoint.LEADER_EPOCH_FILE in names:
            self._read_epochs()
        self._snapshots.find(names)
        self._load_segments(set(names))
        if not self._was_clean:
            self._recover_unflushed()
        is_kept = self._drop_all_below_log_start()
        if not len(self._segments):
            self._segments.add(self._create_segment(self._start_checkpoint))
        active = self._segments.active
        active.become_active(self._config.segment_index_bytes)
        end_offset = active.read_next_offset()
        is_flushed = self._was_clean and is_kept
        recovery_point = end_offset if is_flushed else min(self._recovery_point, end_offset)
        start_offset = max(self._start_checkpoint, self._segments.first.base_offset)
        self._epochs.truncate_to(end_offset)
        self._epochs.truncate_from_start(start_offset)
        producers = self._load_producers(start_offset, end_offset)
        return LoadedLog(
            self._segments,
            self._epochs,
            producers,
            self._snapshots,
            start_offset,
            end_offset,
            recovery_point,
            self._doomed,
        )

    def _finish_interrupted_work(self) -> list[str]:
        """Delete what waits for deletion, complete swaps that had everything in place, undo those that had not.

        Return the names that are there then.
        """
        names = self._disk.list_directory(self._directory)
        if not any(name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)) for name in names):
            return names
        cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
        min_cleaned_offset = min((offset_of(name) or 0 for name in cleaned), default=None)
        for name in names:
            is_deleted = name.endswith(DELETED_SUFFIX) and not name.endswith(RAFT_SNAPSHOT_DELETED_SUFFIX)
            if is_deleted or name.endswith(CLEANED_SUFFIX) or self._is_incomplete_swap(name, min_cleaned_offset):
                self._delete(name)
        self._complete_swaps(
            [name for name in self._disk.list_directory(self._directory) if name.endswith(SWAP_SUFFIX)]
        )
        return self._disk.list_directory(self._directory)

    @staticmethod
    def _is_incomplete_swap(name: str, min_cleaned_offset: int | None) -> bool:
        """A swap beside a .cleaned file at or below it belongs to a split that did not get all its parts ready."""
        return (
            min_cleaned_offset is not None
            and name.endswith(SWAP_SUFFIX)
            and (offset_of(name) or 0) >= min_cleaned_offset
        )

    def _complete_swaps(self, swaps: list[str]) -> None:
        """Take swapped segments over: the segments they replace go first, then the suffix does."""
        ranges = [self._offsets_of_swap(name) for name in swaps if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
        if ranges:
            first, end = min(start for start, _ in ranges), max(end for _, end in ranges)
            for name in self._disk.list_directory(self._directory):
                offset = offset_of(name)
                if offset is not None and not name.endswith(SWAP_SUFFIX) and first <= offset < end:
                    logger.info("Deleting %s of %s, which was replaced", name, self._topic_partition)
                    self._delete(name)
        for name in swaps:
            logger.info("Recovering file %s of %s by renaming", name, self._topic_partition)
            path = f"{self._directory}/{name}"
            self._disk.rename(path, path[: -len(SWAP_SUFFIX)])

    def _offsets_of_swap(self, name: str) -> tuple[int, int]:
        """Return base offset and end offset of a .log.swap, by reading it."""
        base_offset = offset_of(name) or 0
        segment = Segment(
            self._files, self._directory, base_offset, self._config, now_ms=self._now_ms, suffix=SWAP_SUFFIX
        )
        segment.size = segment.log.file.size()
        end_offset = base_offset
        for scanned in scan_batches(segment, 0):
            end_offset = scanned.header.last_offset + 1
        segment.log.close()
        return base_offset, end_offset

    def _delete(self, name: str) -> None:
        self._disk.delete(f"{self._directory}/{name}")

    def _read_epochs(self) -> None:
        """Read leader-epoch-checkpoint. Where it is damaged, all segments are read to find the epochs again."""
        path = f"{self._directory}/{checkpoint.LEADER_EPOCH_FILE}"
        try:
            self._epochs = LeaderEpochs(checkpoint.decode_epochs(self._disk.read_file(path), path))
        except CheckpointError as error:
            logger.warning("%s: %s; reading all segments", self._topic_partition, error)
            self._was_clean = False
            self._recovery_point = 0

    def _load_segments(self, names: set[str]) -> None:
        """Load every .log file with its indexes; rebuild those that are missing or cannot be right."""
        base_offsets = [offset_of(name) or 0 for name in names if name.endswith(LOG_SUFFIX)]
        self._first_unflushed = max((base for base in base_offsets if base <= self._recovery_point), default=0)
        for name in sorted(names):
            stem, dot, suffix = name.partition(".")
            if dot + suffix in INDEX_SUFFIXES and stem + LOG_SUFFIX not in names:
                logger.warning("Found an orphaned index file %s of %s", name, self._topic_partition)
                self._delete(name)
            base_offset = offset_of(name)
            if dot + suffix == LOG_SUFFIX and base_offset is not None:
                self._load_segment(stem, base_offset, names)

    def _load_segment(self, stem: str, base_offset: int, names: set[str]) -> None:
        segment = Segment.load(
            self._files,
            self._directory,
            base_offset,
            self._config,
            now_ms=self._disk.modified_ms(f"{self._directory}/{stem}{LOG_SUFFIX}"),
            has_txn_index=stem + TXN_INDEX_SUFFIX in names,
        )
        if not self._was_clean and base_offset >= self._first_unflushed:
            _reset_indexes(segment, self._config)  # _recover_unflushed reads it, whatever they hold
        elif not ({stem + OFFSET_INDEX_SUFFIX, stem + TIME_INDEX_SUFFIX} <= names and self._has_sound_indexes(segment)):
            logger.warning("Rebuilding the index files of segment %d of %s", base_offset, self._topic_partition)
            self._recover_segment(segment)
        self._segments.add(segment)

    def _has_sound_indexes(self, segment: Segment) -> bool:
        """Judge the indexes by their sizes and ends."""
        try:
            segment.offset_index.check(segment.size)
            segment.time_index.check()
            segment.txn_index.check()
        except CorruptIndexError as error:
            logger.warning("Found a corrupted index file of %s: %s", self._topic_partition, error)
            return False
        return True

    def _recover_unflushed(self) -> None:
        """Read the segments from the recovery point on; cut the log at the first batch that does not hold."""
        unflushed = self._segments.between(self._recovery_point, 1 << 63)
        end_offset = None
        for done, segment in enumerate(unflushed):
            self._report(done, len(unflushed))
            if end_offset is not None and not self._follows(segment, end_offset):
                logger.warning(
                    "Corruption found in %s: segment %d does not follow offset %d, deleting it and all behind it",
                    self._topic_partition,
                    segment.base_offset,
                    end_offset,
                )
                self._doom(unflushed[done:])
                break
            cut_bytes = self._recover_segment(segment)
            end_offset = segment.read_next_offset()
            if cut_bytes:
                logger.warning(
                    "Corruption found in segment %d of %s, truncating to offset %d: %d bytes cut",
                    segment.base_offset,
                    self._topic_partition,
                    end_offset,
                    cut_bytes,
                )
                self._doom(unflushed[done + 1 :])
                break
        self._report(len(unflushed), len(unflushed))

    def _follows(self, segment: Segment, end_offset: int) -> bool:
        """Whether a segment may come behind one that ends at `end_offset`."""
        is_gap_fine = self._config.is_compacted or self._was_compacted
        return segment.base_offset == end_offset or (is_gap_fine and segment.base_offset > end_offset)

    def _report(self, done: int, total: int) -> None:
        if self._on_progress is not None:
            self._on_progress(self._topic_partition, done, total)

    def _recover_segment(self, segment: Segment) -> int:
        """Read all batches of a segment, rebuild its indexes, cut what does not hold; return the bytes cut."""
        producers = self._new_producer_state()
        rebuild_producers(
            producers,
            self._snapshots,
            self._segments,
            log_start_offset=self._start_checkpoint,
            end_offset=segment.base_offset,
            now_ms=self._now_ms,
            was_clean_shutdown=False,
        )
        recovery = SegmentRecovery(segment, self._config, self._epochs, producers)
        cut_bytes = recovery.run()
        self._was_compacted = self._was_compacted or recovery.has_gaps
        self._snapshots.maybe_take(producers)
        return cut_bytes

    def _doom(self, segments: list[Segment]) -> None:
        """Drop segments; their files get the suffix .deleted and wait."""
        for segment in segments:
            self._segments.remove(segment)
            segment.rename_suffix("", DELETED_SUFFIX)
            self._snapshots.delete(segment.base_offset)
        self._doomed.extend(segments)

    def _drop_all_below_log_start(self) -> bool:
        """Drop every segment where the log ends before the log start offset; return whether they were kept."""
        if not len(self._segments):
            return False
        active = self._segments.active
        end_offset = active.read_next_offset()
        if end_offset >= self._start_checkpoint:
            return True
        logger.warning(
            "Deleting all segments of %s: the log ends at %d, before its start offset %d",
            self._topic_partition,
            end_offset,
            self._start_checkpoint,
        )
        self._doom(self._segments.all())
        self._epochs.clear()
        self._snapshots.delete_outside(0, 0)
        return False

    def _create_segment(self, base_offset: int) -> Segment:
        return Segment.create(self._files, self._directory, base_offset, self._config, now_ms=self._now_ms)

    def _load_producers(self, start_offset: int, end_offset: int) -> ProducerState:
        producers = self._new_producer_state()
        self._snapshots.last_offset = 0
        self._snapshots.delete_strays({segment.base_offset for segment in self._segments})
        rebuild_producers(
            producers,
            self._snapshots,
            self._segments,
            log_start_offset=start_offset,
            end_offset=end_offset,
            now_ms=self._now_ms,
            was_clean_shutdown=self._was_clean,
        )
        return producers


def _reset_indexes(segment: Segment, config: LogConfig) -> None:
    segment.offset_index.reset(config.segment_index_bytes)
    segment.time_index.reset(config.segment_index_bytes)
    segment.txn_index.reset()


class SegmentRecovery:
    """Reads a segment from its first byte and makes its indexes anew, as an append would have made them.

    has_gaps: offsets are missing between its batches or in them, so it was compacted.
    """

    def __init__(self, segment: Segment, config: LogConfig, epochs: LeaderEpochs, producers: ProducerState) -> None:
        self._segment = segment
        self._config = config
        self._epochs = epochs
        self._producers = producers
        self._largest = TimestampOffset(NO_TIMESTAMP, segment.base_offset)
        self._indexed_to = 0
        self._valid_bytes = 0
        self.has_gaps = False

    def run(self) -> int:
        """Return the bytes that had to be cut off."""
        segment = self._segment
        _reset_indexes(segment, self._config)
        try:
            next_offset = segment.base_offset
            for scanned in scan_batches(segment, 0):
                if not self._holds(scanned, next_offset):
                    break
                self._take(scanned)
                header = scanned.header
                if header.base_offset != next_offset or header.record_count != header.last_offset - next_offset + 1:
                    self.has_gaps = header.magic == 2
                next_offset = header.last_offset + 1
                self._valid_bytes = scanned.position + scanned.header.size_bytes
        except RecordsError as error:
            logger.warning("Found invalid messages in %s at byte %d: %s", segment.log.path, self._valid_bytes, error)
        segment.set_largest(self._largest)
        cut_bytes = segment.truncate_to_position(self._valid_bytes) if self._valid_bytes < segment.size else 0
        if self._largest.timestamp_ms >= 0:
            segment.time_index.maybe_append(*self._largest[:2], use_last_slot=True)
        segment.offset_index.trim()
        segment.time_index.trim()
        segment.bytes_since_index_entry = self._valid_bytes - self._indexed_to
        return cut_bytes

    def _holds(self, scanned: ScannedBatch, next_offset: int) -> bool:
        header = scanned.header
        return (
            next_offset <= header.base_offset <= header.last_offset
            and self._segment.offset_index.can_append(header.last_offset)
            and crc_is_valid(scanned.chunk, header.position, header.size_bytes)
        )

    def _take(self, scanned: ScannedBatch) -> None:
        header = scanned.header
        segment = self._segment
        if header.max_timestamp > self._largest.timestamp_ms:
            self._largest = TimestampOffset(header.max_timestamp, header.last_offset)
        if scanned.position - self._indexed_to > self._config.index_interval_bytes and not segment.offset_index.is_full:
            segment.offset_index.append(header.last_offset, scanned.position)
            segment.time_index.maybe_append(*self._largest[:2], use_last_slot=True)
            self._indexed_to = scanned.position
        latest_epoch = self._epochs.latest_epoch
        if header.leader_epoch >= 0 and (latest_epoch is None or header.leader_epoch > latest_epoch):
            self._epochs.assign(header.leader_epoch, header.base_offset)
        if header.producer_id >= 0:
            batch = producer_batch(header, scanned.chunk)
            for aborted in replay_producer_batch(self._producers, batch):
                segment.txn_index.append(aborted)
        self._producers.map_end_offset = header.last_offset + 1


def replay_producer_batch(producers: ProducerState, batch: ProducerBatch | None) -> list[AbortedTransaction]:
    """Take a batch that is in the log into the state; return the transactions that it aborts."""
    if batch is None:
        return []
    prepared = producers.prepare((batch,), AppendOrigin.REPLICATION)
    producers.commit(prepared)
    aborted = []
    for completed in prepared.completed:
        last_stable_offset = producers.last_stable_offset_after(completed)
        producers.complete(completed)
        if completed.is_aborted:
            aborted.append(AbortedTransaction(*completed[:3], last_stable_offset))
    return aborted


def rebuild_producers(
    producers: ProducerState,
    snapshots: ProducerSnapshots,
    segments: Segments,
    *,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
    was_clean_shutdown: bool,
) -> None:
    """Bring `producers` to `end_offset`: the newest snapshot at or below it, then the batches behind that.

    Snapshots are taken at the last two segments' starts and at the end, so that the next time is short. After a clean
    stop without any snapshot there were no producers.
    """
    active = segments.active if len(segments) else None
    previous = segments.before(active) if active is not None else None
    snapshot_at = {segment.base_offset for segment in (previous, active) if segment is not None}
    if snapshots.latest is None and was_clean_shutdown:
        for offset in sorted({*snapshot_at, end_offset}):
            producers.map_end_offset = offset
            snapshots.maybe_take(producers)
        return
    had_none = producers.is_empty and producers.map_end_offset >= end_offset
    truncate_and_reload(producers, snapshots, log_start_offset, end_offset, now_ms)
    if end_offset > producers.map_end_offset and not had_none:
        for segment in segments.between(producers.map_end_offset, end_offset):
            start_offset = max(segment.base_offset, producers.map_end_offset, log_start_offset)
            producers.map_end_offset = start_offset
            if segment.base_offset in snapshot_at:
                snapshots.maybe_take(producers)
            _replay_segment(producers, segment, start_offset, end_offset)
    producers.map_end_offset = end_offset
    snapshots.maybe_take(producers)


def truncate_and_reload(
    producers: ProducerState, snapshots: ProducerSnapshots, log_start_offset: int, end_offset: int, now_ms: int
) -> None:
    """Drop snapshots outside the log and start from the newest that is left, unless the state is already there."""
    snapshots.delete_outside(log_start_offset, end_offset)
    if end_offset == producers.map_end_offset:
        producers.on_high_watermark(log_start_offset)
        snapshots.last_offset = snapshots.latest if snapshots.latest is not None else log_start_offset
        return
    found = snapshots.read_latest()
    snapshots.last_offset, entries = found if found is not None else (log_start_offset, [])
    producers.load(entries, snapshots.last_offset, now_ms)


def _replay_segment(producers: ProducerState, segment: Segment, start_offset: int, end_offset: int) -> None:
    first = segment.find_batch(start_offset, wait=True)
    if first is None:
        return
    for scanned in scan_batches(segment, first.position):
        if scanned.header.base_offset >= end_offset:
            return
        if scanned.header.producer_id >= 0:
            replay_producer_batch(producers, producer_batch(scanned.header, scanned.chunk))
