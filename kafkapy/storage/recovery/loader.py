"""Load a log: complete interrupted work, truncate damage, rebuild indexes and producer state.

After a clean stop the files are trusted. Otherwise every segment from the recovery point on is read, checking each
batch's length, offsets and CRC. The first invalid batch ends the log, and everything after it is deleted. Data below
the recovery point was synced and is not checked; a missing or broken index is rebuilt in any segment.

A segment with offsets too far apart for its indexes is split (segment_split.py), and loading starts again, as in Apache
Kafka. Deviation: Apache Kafka leaves such a segment to its cleaner if the indexes exist. Here it is always split,
because appends to it would fail.

Stricter than Apache Kafka on purpose: the log also ends at a batch whose offsets are not above those before it, and
before a segment that begins above the end of the previous one (after a power failure a new segment's name may be
durable, but not the old one's end). Such a gap is accepted only if the cleaner may have made it, or the log evidently
was compacted: by gaps within a segment, or a gap so wide that the segment had to end there. The cleaner here rewrites
nothing above the checkpointed recovery point; Apache Kafka's may, which its own checkpoint says once its pass is over.
"""

import logging
from collections.abc import Callable
from dataclasses import field
from typing import Final

from kafkapy.config.log import LogConfig
from kafkapy.dataclass import dataclass
from kafkapy.errors import CorruptIndexError
from kafkapy.record.errors import RecordsError
from kafkapy.storage import checkpoint
from kafkapy.storage.errors import CheckpointError
from kafkapy.storage.file_names import (
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_of,
)
from kafkapy.storage.leader_epochs import LeaderEpochs
from kafkapy.storage.producers.replay import rebuild_producers, recall_batches
from kafkapy.storage.producers.snapshots import ProducerSnapshots
from kafkapy.storage.producers.state import ProducerState
from kafkapy.storage.recovery.crash_cleanup import clean_up_after_crash
from kafkapy.storage.recovery.segment_recovery import (
    OffsetOverflowError,
    SegmentRecovery,
    check_has_timestamps,
    check_last_entries,
    reset_indexes,
)
from kafkapy.storage.recovery.segment_split import find_parts, overflows, split
from kafkapy.storage.segment.open_files import FileHandle, OpenFiles
from kafkapy.storage.segment.segment import Segment
from kafkapy.storage.segment.segments import Segments
from kafkapy.types import INT32_MAX, TopicPartition

logger = logging.getLogger("kafkapy.storage")


@dataclass(slots=True)
class LoadedLog:
    """The state that a Log starts with.

    pending_deletions: segments that recovery removed. has_new_names: names in the directory, or its own, may not be
    durable, so that the next flush syncs them. is_new: the directory held no file, so no partition.metadata either.
    """

    segments: Segments
    epochs: LeaderEpochs
    producers: ProducerState
    snapshots: ProducerSnapshots
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    pending_deletions: list[Segment] = field(default_factory=list)
    has_new_names: bool = True
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class LastStop:
    """The facts about a log from the last stop; its offsets come from the checkpoints.

    is_recovered: a recovery process has repaired the files, but not synced them. clean_to: the cleaner's checkpoint, 0
    if it does not name the log; None if the log has no checkpointed recovery point: any segment may be a cleaned one.
    """

    log_start_offset: int = 0
    recovery_point: int = 0
    was_clean: bool = True
    is_recovered: bool = False
    clean_to: int | None = None


NEW_LOG: Final = LastStop()
"""The last stop of a log that is not there yet. One that is there was closed cleanly, and its checkpoints are 0."""


class LogLoader:
    """Loads one log."""

    def __init__(
        self,
        files: OpenFiles,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        last_stop: LastStop,
        *,
        now_ms: int,
        new_producer_state: Callable[[], ProducerState],
    ) -> None:
        self._files = files
        self._disk = files.disk
        self._directory = directory
        self._topic_partition = topic_partition
        self._config = config
        self._now_ms = now_ms
        self._start_checkpoint = last_stop.log_start_offset
        self._recovery_point = last_stop.recovery_point
        self._last_stop = last_stop
        """The argument. _recovery_point and _was_clean change if all segments have to be read."""
        self._was_clean = last_stop.was_clean or last_stop.is_recovered
        self._is_durable = last_stop.was_clean
        self._new_producer_state = new_producer_state
        self._segments = Segments()
        self._snapshots = ProducerSnapshots(self._disk, directory)
        self._epochs = LeaderEpochs()
        self._pending_deletions: list[Segment] = []
        self._base_offsets: list[int] = []
        self._not_split: set[int] = set()
        """Base offsets of segments that overflow because an offset is damaged."""
        self._first_unflushed = 0
        self._last_flushed: int | None = None
        self._was_compacted = False
        self._has_new_names = not last_stop.was_clean

    def load(self) -> LoadedLog:
        """Repair the log's files, whose directory is created if it is missing; return its state. Raises OSError."""
        is_made = self._last_stop is NEW_LOG and self._disk.make_directory(self._directory)
        names = [] if is_made else self._names()
        if not names and self._was_clean and self._is_durable and self._start_checkpoint == 0:
            return self._new_log()
        if clean_up_after_crash(self._files, self._directory, names, self._config, now_ms=self._now_ms):
            self._has_new_names = True
            names = self._names()
        while True:
            try:
                return self._load(names)
            except OffsetOverflowError as overflow:
                self._split(overflow)
                names = self._names()

    def _names(self) -> list[str]:
        try:
            return self._disk.list_directory(self._directory)
        except FileNotFoundError:
            self._disk.make_directory(self._directory)
            return []

    def _new_log(self) -> LoadedLog:
        """Return the state of a log without files and checkpoints, as `_load` would: nothing has to be looked for."""
        segment = Segment.create(self._files, self._directory, 0, self._config, now_ms=self._now_ms)
        self._segments.add(segment)
        producers = self._new_producer_state()
        assert producers.map_end_offset == segment.base_offset == 0, (
            f"{self._directory} begins at {segment.base_offset}"
        )
        return LoadedLog(self._segments, self._epochs, producers, self._snapshots, 0, 0, 0, is_new=True)

    def _load(self, names: list[str]) -> LoadedLog:
        """Load once. Raises OffsetOverflowError; all state loaded so far is then discarded."""
        self._segments, self._epochs, self._was_compacted = Segments(), LeaderEpochs(), False
        if checkpoint.LEADER_EPOCH_FILE in names:
            self._read_epochs()
        self._snapshots.last_offset = 0
        self._snapshots.find(names)
        self._load_segments(set(names))
        if not self._was_clean:
            self._recover_unflushed()
        is_kept = self._drop_all_below_log_start()
        end_offset = self._open_active()
        is_flushed = self._was_clean and self._is_durable and is_kept
        recovery_point = end_offset if is_flushed else min(self._recovery_point, end_offset)
        start_offset = max(self._start_checkpoint, self._segments.first.base_offset)
        self._epochs.clip(start_offset, end_offset)
        assert recovery_point <= end_offset, f"{self._topic_partition}: {recovery_point} of {end_offset} is durable"
        producers = self._load_producers(start_offset, end_offset)
        return LoadedLog(
            self._segments,
            self._epochs,
            producers,
            self._snapshots,
            start_offset,
            end_offset,
            recovery_point,
            self._pending_deletions,
            self._has_new_names,
        )

    def _open_active(self) -> int:
        """Prepare the last segment for appends, or create the first one; return the log end offset."""
        is_created = not len(self._segments)
        if is_created:
            offset = self._start_checkpoint
            self._segments.add(Segment.create(self._files, self._directory, offset, self._config, now_ms=self._now_ms))
            self._has_new_names = True
        active = self._segments.active
        if self._was_clean and active.size and _end_position(active) < active.size:
            logger.warning("Segment %d of %s ends within a batch", active.base_offset, self._topic_partition)
            self._recover_segment(active)  # even after a clean stop: appends must start at a batch's end
        if not is_created:
            active.become_active(self._config.segment_index_bytes)
        end_offset = active.read_next_offset()
        if not self._is_durable:
            for segment in (*self._segments.between(min(self._recovery_point, end_offset), 1 << 63), active):
                segment.mark_not_durable()
        return end_offset

    def _split(self, overflow: OffsetOverflowError) -> None:
        """Split a segment whose offsets do not fit its indexes; if it cannot be split, the next attempt accepts it."""
        segment = overflow.segment
        parts = find_parts(segment, self._base_offset_behind(segment.base_offset))
        is_whole = bool(parts) and parts[-1].end_position == segment.size
        if len(parts) > 1 and (is_whole or not overflow.is_in_doubt):
            logger.info("Caught segment overflow error: %s. Split segment and retry.", overflow)
            split(self._disk, self._directory, segment, parts)
            self._has_new_names = True
            self._pending_deletions.append(segment)
        else:
            logger.warning(
                "Segment %d of %s holds an offset that is damaged", segment.base_offset, self._topic_partition
            )
            self._not_split.add(segment.base_offset)
        for each in (*self._segments, segment):
            each.close()

    def _base_offset_behind(self, base_offset: int) -> int | None:
        """Return the base offset of the next .log file, or None."""
        return next((each for each in self._base_offsets if each > base_offset), None)

    def _read_epochs(self) -> None:
        """Read leader-epoch-checkpoint. If it is damaged, all segments are read to rebuild the epochs."""
        path = f"{self._directory}/{checkpoint.LEADER_EPOCH_FILE}"
        try:
            self._epochs = LeaderEpochs(checkpoint.decode_epochs(self._disk.read_file(path), path))
        except CheckpointError as error:
            logger.warning("%s: %s; reading all segments", self._topic_partition, error)
            self._was_clean = False
            self._recovery_point = 0

    def _load_segments(self, names: set[str]) -> None:
        """Load every .log file with its indexes; rebuild missing or corrupt indexes."""
        base_offsets = self._base_offsets = sorted(offset_of(name) or 0 for name in names if name.endswith(LOG_SUFFIX))
        self._first_unflushed = max((base for base in base_offsets if base <= self._recovery_point), default=0)
        self._last_flushed = max((base for base in base_offsets if base < self._first_unflushed), default=None)
        for name in sorted(names):
            stem, dot, suffix = name.partition(".")
            if dot + suffix in INDEX_SUFFIXES and stem + LOG_SUFFIX not in names:
                logger.warning("Found an orphaned index file %s of %s", name, self._topic_partition)
                self._disk.delete(f"{self._directory}/{name}")
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
            reset_indexes(segment, self._config)  # _recover_unflushed rebuilds them in any case
        elif not ({stem + OFFSET_INDEX_SUFFIX, stem + TIME_INDEX_SUFFIX} <= names and self._has_sound_indexes(segment)):
            logger.warning("Rebuilding the index files of segment %d of %s", base_offset, self._topic_partition)
            self._recover_segment(segment, sync=self._sync)
        elif self._may_overflow(segment) and overflows(segment):
            raise OffsetOverflowError(segment, is_in_doubt=True)
        self._segments.add(segment)

    def _sync(self, handle: FileHandle) -> None:
        handle.file.sync()
        self._disk.sync_directory(self._directory)

    def _may_overflow(self, segment: Segment) -> bool:
        """Return whether, by the next base offset, a segment's offsets may not fit its indexes."""
        behind = self._base_offset_behind(segment.base_offset)
        is_wide = behind is None or behind - segment.base_offset > INT32_MAX + 1
        return is_wide and segment.size > 0 and segment.base_offset not in self._not_split

    def _has_sound_indexes(self, segment: Segment) -> bool:
        """Check the indexes by their sizes and last entries."""
        try:
            segment.offset_index.check(segment.size)
            segment.time_index.check()
            segment.txn_index.check(self._base_offset_behind(segment.base_offset))
            check_last_entries(segment, self._base_offset_behind(segment.base_offset))
            if not self._was_clean:
                check_has_timestamps(segment)
                if segment.base_offset == self._last_flushed:
                    _check_last_time(segment)
        except CorruptIndexError as error:
            logger.warning("Found a corrupted index file of %s: %s", self._topic_partition, error)
            return False
        return True

    def _recover_unflushed(self) -> None:
        """Read the segments from the recovery point on; truncate the log at the first invalid batch."""
        unflushed = self._segments.between(self._recovery_point, 1 << 63)
        end_offset = None
        for done, segment in enumerate(unflushed):
            logger.info(
                "Recovering unflushed segment %d. %d/%d recovered for %s.",
                segment.base_offset,
                done,
                len(unflushed),
                self._topic_partition,
            )
            # a lost tail of the segment before would be a gap that no reader notices: rather lose what follows, too
            if end_offset is not None and not self._follows(segment, unflushed[done - 1], end_offset):
                logger.warning(
                    "Corruption found in %s: segment %d does not follow offset %d, deleting it and all behind it",
                    self._topic_partition,
                    segment.base_offset,
                    end_offset,
                )
                self._schedule_deletion(unflushed[done:])
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
                self._schedule_deletion(unflushed[done + 1 :])
                break

    def _follows(self, segment: Segment, previous: Segment, end_offset: int) -> bool:
        """Return whether a segment may follow one that ends at `end_offset`.

        Deviation: Apache Kafka accepts any gap in a compacted log. Here it is accepted only if the cleaner may have
        made it, because a power failure can keep a segment's name and lose its records.
        """
        if segment.base_offset <= end_offset:
            return segment.base_offset == end_offset
        if self._config.is_compacted:
            return self._may_be_cleaned(segment, previous) or _was_split_off(segment, previous)
        self._was_compacted = self._was_compacted or _was_split_off(segment, previous)
        return self._was_compacted

    def _may_be_cleaned(self, segment: Segment, previous: Segment) -> bool:
        """Return whether the cleaner may have removed the records between two segments.

        A segment that begins below `clean_to` was rewritten as a whole, and synced before it was swapped in.
        """
        last_stop = self._last_stop
        if last_stop.was_clean or last_stop.is_recovered or last_stop.clean_to is None:
            return True  # nothing can be lost, or nothing is known
        return segment.base_offset <= last_stop.recovery_point or previous.base_offset < last_stop.clean_to

    def _recover_segment(self, segment: Segment, sync: Callable[[FileHandle], None] = lambda handle: None) -> int:
        """Read all batches of a segment, rebuild its indexes, truncate at invalid data; return the bytes cut."""
        first = self._segments.first if len(self._segments) else segment
        producers = self._new_producer_state()
        rebuild_producers(
            producers,
            self._snapshots,
            self._segments,
            # a snapshot from before the first segment would bring back transactions that ended in a deleted one
            log_start_offset=max(self._start_checkpoint, min(first.base_offset, segment.base_offset) - 1),
            end_offset=segment.base_offset,
            now_ms=self._now_ms,
            was_clean_shutdown=False,
        )
        may_split = segment.base_offset not in self._not_split
        recovery = SegmentRecovery(segment, self._config, self._epochs, producers, may_split=may_split, sync=sync)
        cut_bytes = recovery.run()
        self._was_compacted = self._was_compacted or recovery.has_gaps
        self._snapshots.write_if_there_is_room(producers)
        return cut_bytes

    def _schedule_deletion(self, segments: list[Segment]) -> None:
        """Remove segments; their files get the suffix .deleted, pending deletion."""
        for segment in segments:
            self._segments.remove(segment)
            segment.rename_suffix("", DELETED_SUFFIX)
            self._snapshots.delete(segment.base_offset)
        if segments:
            self._disk.sync_directory(self._directory)  # or they could reappear after another crash
        self._pending_deletions.extend(segments)

    def _drop_all_below_log_start(self) -> bool:
        """Remove all segments if the log ends below its checkpointed start offset; return whether they were kept."""
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
        self._schedule_deletion(self._segments.all())
        self._epochs.clear()
        self._snapshots.delete_outside(0, 0)
        return False

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
        if not self._is_durable:
            recall_batches(producers, self._segments)
        return producers


def _end_position(segment: Segment) -> int:
    """Return the end position of the last whole batch of a segment."""
    start = segment.offset_index.lookup(segment.offset_index.last_offset, wait=True).position
    return max((batch.end_position for batch in segment.scan(start, wait=True)), default=start)


def _was_split_off(segment: Segment, previous: Segment) -> bool:
    """Return whether the segment's first batch did not fit the previous segment's offset range.

    Then the gap between them is due to compaction, not to a lost tail of the previous segment.
    """
    try:
        first = next(segment.scan(0, wait=True), None)
    except RecordsError:
        return False
    return first is not None and first.last_offset - previous.base_offset > INT32_MAX


def _check_last_time(segment: Segment) -> None:
    """Raise CorruptIndexError if the last time index entry does not have the segment's largest timestamp.

    For the last durable segment: the roll that closed it trimmed its indexes and added that entry. Only the next flush
    makes these changes durable; a power failure before it may leave zeros or no entry.
    """
    last = segment.time_index.last_entry
    position = segment.offset_index.lookup(last.offset, wait=True).position
    latest_ms = max((each.max_timestamp for each in segment.scan(position, wait=True)), default=-1)
    if latest_ms != last.timestamp_ms:
        raise CorruptIndexError(f"{segment.time_index.handle.path}: its last entry is not the latest batch's")
