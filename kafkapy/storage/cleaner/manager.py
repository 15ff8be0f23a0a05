"""What the broker does around a pass of the cleaner: choosing the log, saying what to do, swapping in what comes back.

A log in use goes on while a pass reads its files. So nothing that comes back is taken on trust: a group is swapped in
only where the very segments that it was made of are still the log's, untruncated; else it is dropped and the log is
cleaned another time. A partition whose cleaning fails is set aside until the next start, and said so; its records are
served as they are. A disk that fails takes its directory offline, as anywhere; a full one lets the pass wait.
"""

import errno
import logging
from collections.abc import Container, Sequence
from typing import Any, Final

from kafkapy.config.log_defaults import LogDefaults
from kafkapy.dataclass import dataclass
from kafkapy.seams import Disk
from kafkapy.storage.cleaner.plan import (
    CleanedSegment,
    CleaningPlan,
    LogState,
    LogToClean,
    SegmentState,
    log_to_clean,
    needs_timestamps,
)
from kafkapy.storage.file_names import CLEANED_SUFFIX
from kafkapy.storage.log.log import Log
from kafkapy.storage.log.upkeep import swap_in_cleaned
from kafkapy.storage.manager.log_manager import LogManager
from kafkapy.storage.segment.segment import Segment
from kafkapy.types import TopicPartition, Uuid

logger = logging.getLogger("kafkapy.storage.cleaner.cleaning_pass")

MAX_LOST_PASSES: Final = 3
"""So often a helper process may die over a log before that log is taken to be the reason."""


@dataclass(slots=True)
class Cleaning:
    """A pass under way, as the broker sees it. `segments` are those of the log when it began, by base offset."""

    log: Log
    to_clean: LogToClean
    plan: CleaningPlan
    segments: dict[int, Segment]
    truncation_count: int
    worker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningReport:
    """What a pass has done. bytes_before and bytes_after: of the segments that were written anew.

    It is logged in one line, where Apache Kafka writes ten (a deviation).
    """

    topic_partition: TopicPartition
    first_dirty_offset: int
    clean_to: int
    bytes_before: int
    bytes_after: int
    records_read: int
    records_kept: int
    records_without_key: int
    indexed_bytes: int
    map_utilization: float
    duration_ms: int

    def __str__(self) -> str:
        seconds = max(self.duration_ms, 1) / 1000
        return (
            f"cleaned log {self.topic_partition} (dirty section = [{self.first_dirty_offset}, {self.clean_to}]): "
            f"{self.bytes_before:,} bytes with {self.records_read:,} records became {self.bytes_after:,} bytes with "
            f"{self.records_kept:,} records in {seconds:.1f} s ({self.bytes_before / seconds / 1e6:.1f} MB/s, "
            f"{self.records_read / seconds:,.0f} records/s), offset map {100 * self.map_utilization:.1f}% full"
        )


@dataclass(slots=True)
class _Trouble:
    """What passes over a partition came to, until one is finished; another topic of that name has none of it."""

    topic_id: Uuid | None
    lost_passes: int = 0
    reason: str | None = None
    """Why it is set aside, if it is."""


class CleanerManager:
    """Chooses what is cleaned next, and swaps in what a pass has written. Plain calls on the event loop's thread."""

    def __init__(self, log_manager: LogManager, disk: Disk) -> None:
        self._log_manager = log_manager
        self._disk = disk
        self._troubles: dict[TopicPartition, _Trouble] = {}
        """The partitions of which the last pass failed: others go first."""
        self.reports: dict[int, CleaningReport] = {}
        """Of the last pass of each worker, the last of all at the end."""
        self.overdue_ms: dict[int, int] = {}
        """Of the log that was due for longest, by max.compaction.lag.ms, when a worker was last given one to clean."""
        self.max_dirty_ratio = 0.0
        """Of the dirtiest log when one was last looked for."""
        self.looked_at_ms = 0
        """When one was last looked for."""

    @property
    def logs_set_aside(self) -> list[Log]:
        logs = [self._log_manager.get_log(each) for each in self._troubles]
        return [log for log in logs if log is not None and self._reason(log) is not None]

    @property
    def uncleanable(self) -> dict[TopicPartition, str]:
        """The partitions that are set aside, and why."""
        return {log.topic_partition: self._reason(log) or "" for log in self.logs_set_aside}

    def _reason(self, log: Log) -> str | None:
        trouble = self._trouble_of(log)
        return trouble.reason if trouble is not None else None

    def _trouble_of(self, log: Log) -> _Trouble | None:
        """Return what the log's partition has, in whichever directory it was."""
        trouble = self._troubles.get(log.topic_partition)
        return trouble if trouble is not None and trouble.topic_id == log.topic_id else None

    def _note_trouble(self, log: Log) -> _Trouble:
        trouble = self._trouble_of(log)
        if trouble is None:
            trouble = _Trouble(log.topic_id)
            if self._is_hosted(log.topic_partition, log.topic_id):
                self._troubles[log.topic_partition] = trouble
        return trouble

    def _is_hosted(self, topic_partition: TopicPartition, topic_id: Uuid | None) -> bool:
        """Whether a partition is still here, and not another of its name."""
        log = self._log_manager.get_log(topic_partition)
        return log is not None and log.topic_id == topic_id

    def _forget_deleted(self) -> None:
        gone = [each for each, trouble in self._troubles.items() if not self._is_hosted(each, trouble.topic_id)]
        for topic_partition in gone:
            del self._troubles[topic_partition]

    def compacted_logs(self, at_work: Container[TopicPartition] = ()) -> list[Log]:
        """Return the logs that are to be looked at, without those at work.

        One that moves to another directory waits until it is there.
        """
        self._forget_deleted()
        aside = self.uncleanable
        moving = self._log_manager.future_logs
        return [
            log
            for each, log in self._log_manager.logs.items()
            if log.config.is_compacted
            and each not in aside
            and each not in at_work
            and each not in moving
            and not log.is_offline
        ]

    # Choosing

    def assess(self, log: Log, now_ms: int) -> LogToClean | None:
        """Return what a pass over the log would do; None where it is empty or cannot be looked at."""
        try:
            to_clean = log_to_clean(_state_of(log), now_ms)
        except OSError as error:
            log.log_dir.failure(error, f"looking at {log.topic_partition} for the cleaner")
            return None
        if to_clean.is_reset:
            self._note_reset(log, to_clean.first_dirty_offset)
        return to_clean if to_clean.clean_bytes + to_clean.dirty_bytes > 0 else None

    def _note_reset(self, log: Log, first_dirty_offset: int) -> None:
        assert log.clean_to is not None, "what is not known is not reset"
        if log.clean_to > log.log_end_offset:
            logger.warning(
                "The last checkpoint dirty offset for partition %s is %d, which is larger than the log end offset %d. "
                "Resetting to the log start offset %d.",
                log.topic_partition,
                log.clean_to,
                log.log_end_offset,
                first_dirty_offset,
            )
        elif not log.config.is_deleted_by_retention:
            logger.warning(
                "Resetting first dirty offset of %s to log start offset %d "
                "since the checkpointed offset %d is invalid.",
                log.topic_partition,
                first_dirty_offset,
                log.clean_to,
            )
        log.note_cleaned(first_dirty_offset)

    def choose(self, assessed: Sequence[tuple[Log, LogToClean]], worker_id: int = 0) -> tuple[Log, LogToClean] | None:
        """Return the dirtiest of the logs that are dirty enough."""
        self.max_dirty_ratio = max((to_clean.dirty_ratio for _, to_clean in assessed), default=0.0)
        due = [each for each in assessed if each[1].is_due(each[0].config.min_cleanable_dirty_ratio)]
        if due:
            self.overdue_ms[worker_id] = max(to_clean.overdue_ms for _, to_clean in assessed)
        return max(due, key=lambda each: (self._trouble_of(each[0]) is None, each[1].dirty_ratio), default=None)

    # A pass

    def begin(self, log: Log, to_clean: LogToClean, settings: LogDefaults, now_ms: int, worker_id: int = 0) -> Cleaning:
        """Return the pass to be done over a log, with a worker's share of the buffers.

        Raises CorruptIndexError; ApiError, StorageError where the aborted transactions cannot be read.
        """
        worker_count = settings.log_cleaner_threads
        segments = [segment for segment in log.segments if segment.base_offset < to_clean.first_uncleanable_offset]
        start_offset, end_offset = segments[0].base_offset, to_clean.first_uncleanable_offset
        config = log.config
        try:
            aborted = log.aborted_transactions(start_offset, end_offset)
        except OSError as error:
            raise log.log_dir.failure(error, f"cleaning {log.topic_partition}") from error
        plan = CleaningPlan(
            directory=log.directory,
            segments=[(segment.base_offset, segment.size) for segment in segments],
            first_dirty_offset=to_clean.first_dirty_offset,
            end_offset=end_offset,
            now_ms=now_ms,
            aborted=aborted,
            last_records=[
                (entry.producer_id, entry.last_offset if entry.batches else None, entry.producer_epoch)
                for entry in log.producer_state.producers.values()
                if entry.last_offset < end_offset
            ],
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            dedupe_buffer_bytes=settings.log_cleaner_dedupe_buffer_size // worker_count,
            load_factor=settings.log_cleaner_io_buffer_load_factor,
            io_buffer_bytes=settings.log_cleaner_io_buffer_size // worker_count,
        )
        by_offset = {segment.base_offset: segment for segment in segments}
        return Cleaning(log, to_clean, plan, by_offset, log.truncation_count, worker_id)

    def is_current(self, cleaning: Cleaning) -> bool:
        """Return whether the log is still there, and still what the pass has read."""
        log = cleaning.log
        return (
            self._log_manager.get_log(log.topic_partition) is log
            and log.topic_partition not in self._log_manager.future_logs
            and not log.is_offline
            and log.config.is_compacted
            and log.directory == cleaning.plan.directory
            and log.truncation_count == cleaning.truncation_count
        )

    def swap_in(self, cleaning: Cleaning, cleaned: CleanedSegment, now_ms: int) -> bool:
        """Replace a group by what became of it; return whether its segments were still there. Raises as that does."""
        log = cleaning.log
        replaced = [cleaning.segments[base_offset] for base_offset in cleaned.replaced]
        present = {segment.base_offset: segment for segment in log.segments}
        if not self.is_current(cleaning) or any(present.get(old.base_offset) is not old for old in replaced):
            self.drop_leftovers(cleaning)
            return False
        swap_in_cleaned(log, cleaned.base_offset, replaced, has_txn_index=cleaned.has_txn_index, now_ms=now_ms)
        return True

    def finish(self, cleaning: Cleaning, facts: dict[str, Any], duration_ms: int) -> CleaningReport:
        """Take note of a pass that was done to its end; its checkpoint is the caller's to write."""
        cleaning.log.note_cleaned(facts["clean_to"])
        self._troubles.pop(cleaning.log.topic_partition, None)
        self.reports.pop(cleaning.worker_id, None)
        self.reports[cleaning.worker_id] = report = CleaningReport(
            topic_partition=cleaning.log.topic_partition,
            first_dirty_offset=cleaning.to_clean.first_dirty_offset,
            clean_to=facts["clean_to"],
            bytes_before=facts["bytes_read"],
            bytes_after=facts["bytes_written"],
            records_read=facts["records_read"],
            records_kept=facts["records_kept"],
            records_without_key=facts["records_without_key"],
            indexed_bytes=facts["indexed_bytes"],
            map_utilization=facts["map_utilization"],
            duration_ms=duration_ms,
        )
        return report

    def forget_reports(self) -> None:
        """Begin to tell anew: there are other workers."""
        self.reports.clear()
        self.overdue_ms.clear()

    # What can go wrong

    def fail(self, cleaning: Cleaning, message: str, error_number: int) -> None:
        """Take note of a pass that came to a bad end. error_number: of the system's error, 0 where there was none."""
        self.drop_leftovers(cleaning)
        log = cleaning.log
        if not self.is_current(cleaning):
            return  # it was truncated or deleted under the pass, which read what was no longer there
        if error_number == errno.ENOENT and not self._has_all_segments(cleaning):
            return  # retention took a segment away under the pass
        if error_number and error_number != errno.ENOENT:
            self._note_trouble(log)
            log.log_dir.failure(OSError(error_number, message), f"cleaning {log.topic_partition}")
            return
        self.set_aside(log, message)

    def _has_all_segments(self, cleaning: Cleaning) -> bool:
        present = {id(segment) for segment in cleaning.log.segments}
        return all(id(old) in present for old in cleaning.segments.values())

    def postpone(self, log: Log) -> None:
        """Take note of a pass that could not be begun, or not go on, for want of something: others go first."""
        self._note_trouble(log)

    def helper_lost(self, cleaning: Cleaning, message: str) -> None:
        """Take note that the helper process died over a pass: tried again, but not for ever."""
        self.drop_leftovers(cleaning)
        log = cleaning.log
        trouble = self._note_trouble(log)
        trouble.lost_passes += 1
        logger.warning(
            "The cleaning of %s was lost with its process, %d times now: %s", log, trouble.lost_passes, message
        )
        if trouble.lost_passes >= MAX_LOST_PASSES:
            self.set_aside(log, message)

    def set_aside(self, log: Log, reason: str) -> None:
        """Clean this log no more until the next start."""
        self._note_trouble(log).reason = reason
        logger.error(
            "Cleaning of %s in dir %s failed; marking its partition as uncleanable: %s",
            log.topic_partition,
            log.log_dir.path,
            reason,
        )

    def drop_leftovers(self, cleaning: Cleaning) -> None:
        """Delete the .cleaned files of a pass that does not go on; those of a deleted log go with its directory.

        Where another topic has the name by now, the last step may have written into its directory.
        """
        log = self._log_manager.get_log(cleaning.log.topic_partition)
        if log is None or log.directory != cleaning.plan.directory or log.is_offline:
            return
        try:
            for name in self._disk.list_directory(log.directory):
                if name.endswith(CLEANED_SUFFIX):
                    self._disk.delete(f"{log.directory}/{name}")
        except OSError as error:
            log.log_dir.failure(error, f"deleting what the cleaner left of {log.topic_partition}")


def _state_of(log: Log) -> LogState:
    """Return the log as the choice sees it. Reads times only where a lag asks for them. Raises OSError."""
    reads_times = needs_timestamps(log.config)
    return LogState(
        [
            SegmentState(
                segment.base_offset,
                segment.size,
                log.local_log.largest_timestamp_ms(segment) if reads_times else -1,
                segment.first_timestamp if reads_times else -1,
            )
            for segment in log.segments
        ],
        log.log_start_offset,
        log.log_end_offset,
        log.last_stable_offset,
        log.recovery_point,
        log.clean_to,
        log.config,
    )
