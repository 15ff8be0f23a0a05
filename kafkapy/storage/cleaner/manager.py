"""The broker's side of log cleaning: choose the log, plan a pass, swap in the cleaned segments.

A log stays in service while a pass reads its files, so results are verified: a cleaned group is swapped in only if the
segments it was made from are still in the log, untruncated. Otherwise it is dropped, and the log is cleaned later. A
partition whose cleaning fails is logged as uncleanable and set aside until the next start, but still served. A disk
failure takes the directory offline, as elsewhere; if the disk is full, the pass is postponed.
"""

import errno
import logging
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkapy.config.log_defaults import LogDefaults
from kafkapy.dataclass import dataclass
from kafkapy.seams import Disk
from kafkapy.storage.file_names import CLEANED_SUFFIX
from kafkapy.storage.log.log import Log
from kafkapy.storage.log.lookup import aborted_transactions
from kafkapy.storage.log.maintenance import swap_in_cleaned
from kafkapy.storage.manager.log_manager import LogManager
from kafkapy.storage.segment.segment import Segment
from kafkapy.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from kafkapy.storage.cleaner.plan import CleanedSegment, CleaningPlan, LogState, LogToClean

logger = logging.getLogger("kafkapy.storage.cleaner.cleaning_pass")

MAX_LOST_PASSES: Final = 3
"""After this many passes over a log ended with the death of the helper process, the log is set aside."""


@dataclass(slots=True)
class Cleaning:
    """A pass in progress, as the broker sees it. `segments`: those to be read, by base offset, as of its start."""

    log: Log
    to_clean: "LogToClean"
    plan: "CleaningPlan"
    segments: dict[int, Segment]
    truncation_count: int
    worker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningReport:
    """The result of a pass. bytes_before and bytes_after: total size of the rewritten segments.

    Deviation: Apache Kafka logs it in ten lines. Here it is one, because logs are searched by line.
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
class _Failures:
    """Failures of a partition's passes since its last complete one. Does not apply to another topic of that name."""

    topic_id: Uuid | None
    lost_passes: int = 0
    reason: str | None = None
    """Why the partition is set aside; None if it is not."""


class CleanerManager:
    """Chooses the log to clean next and swaps in the result of a pass. For the event loop's thread only."""

    def __init__(self, log_manager: LogManager, disk: Disk) -> None:
        self._log_manager = log_manager
        self._disk = disk
        self._failures: dict[TopicPartition, _Failures] = {}
        """The partitions whose last pass failed: others are cleaned first."""
        self.reports: dict[int, CleaningReport] = {}
        """The last report by worker id; the newest is the last item."""
        self.overdue_ms: dict[int, int] = {}
        """By worker id: the longest delay beyond max.compaction.lag.ms of any log, when the worker last got a log."""
        self.max_dirty_ratio = 0.0
        """The dirty ratio of the dirtiest log at the last choice."""
        self.last_check_ms = 0
        """The time of the last choice."""
        self.io_bytes = 0
        """What the cleaner has read and written."""

    def record_io(self, size_bytes: int) -> None:
        self.io_bytes += size_bytes

    @property
    def logs_set_aside(self) -> list[Log]:
        logs = [self._log_manager.get_log(each) for each in self._failures]
        return [log for log in logs if log is not None and self._reason(log) is not None]

    @property
    def uncleanable(self) -> dict[TopicPartition, str]:
        """The partitions that are set aside, and why."""
        return {log.topic_partition: self._reason(log) or "" for log in self.logs_set_aside}

    def _reason(self, log: Log) -> str | None:
        failures = self._failures_of(log)
        return failures.reason if failures is not None else None

    def _failures_of(self, log: Log) -> _Failures | None:
        """Return the failures of the log's partition, in any log directory, or None."""
        failures = self._failures.get(log.topic_partition)
        return failures if failures is not None and failures.topic_id == log.topic_id else None

    def _failures_for_update(self, log: Log) -> _Failures:
        failures = self._failures_of(log)
        if failures is None:
            failures = _Failures(log.topic_id)
            if self._is_hosted(log.topic_partition, log.topic_id):
                self._failures[log.topic_partition] = failures
        return failures

    def _is_hosted(self, topic_partition: TopicPartition, topic_id: Uuid | None) -> bool:
        """Return whether the partition of this topic id is still on this broker."""
        log = self._log_manager.get_log(topic_partition)
        return log is not None and log.topic_id == topic_id

    def _forget_deleted(self) -> None:
        gone = [each for each, failures in self._failures.items() if not self._is_hosted(each, failures.topic_id)]
        for topic_partition in gone:
            del self._failures[topic_partition]

    def compacted_logs(self, at_work: Container[TopicPartition] = (), among: Iterable[Log] | None = None) -> list[Log]:
        """Return the compacted logs that may be cleaned now; at_work: partitions being cleaned.

        among: logs in service, all if None. A log being moved to another directory is left out until the move is
        complete.
        """
        self._forget_deleted()
        aside = self.uncleanable
        moving = self._log_manager.future_logs
        return [
            log
            for log in (self._log_manager.logs.values() if among is None else among)
            if log.config.is_compacted
            and log.topic_partition not in aside
            and log.topic_partition not in at_work
            and log.topic_partition not in moving
            and not log.is_offline
        ]

    # Choosing

    def assess(self, log: Log, now_ms: int) -> "LogToClean | None":
        """Return the extent of a pass over the log; None if there is nothing to clean, or the disk fails."""
        from kafkapy.storage.cleaner.plan import log_to_clean

        try:
            to_clean = log_to_clean(_state_of(log), now_ms)
        except OSError as error:
            log.log_dir.handle_os_error(error, f"looking at {log.topic_partition} for the cleaner")
            return None
        if to_clean.is_reset:
            self._log_reset(log, to_clean.first_dirty_offset)
        return to_clean if to_clean.clean_bytes + to_clean.dirty_bytes > 0 else None

    def _log_reset(self, log: Log, first_dirty_offset: int) -> None:
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
        log.on_cleaned(first_dirty_offset)

    def choose(
        self, assessed: "Sequence[tuple[Log, LogToClean]]", worker_id: int = 0
    ) -> "tuple[Log, LogToClean] | None":
        """Return the dirtiest log that is due for cleaning, those without a failed pass first; None if none is due."""
        self.max_dirty_ratio = max((to_clean.dirty_ratio for _, to_clean in assessed), default=0.0)
        due = [each for each in assessed if each[1].is_due(each[0].config.min_cleanable_dirty_ratio)]
        if due:
            self.overdue_ms[worker_id] = max(to_clean.overdue_ms for _, to_clean in assessed)
        return max(due, key=lambda each: (self._failures_of(each[0]) is None, each[1].dirty_ratio), default=None)

    # A pass

    def begin(
        self, log: Log, to_clean: "LogToClean", settings: LogDefaults, now_ms: int, worker_id: int = 0
    ) -> Cleaning:
        """Plan a pass over a log, with a worker's share of the buffers.

        Raises CorruptIndexError, ApiError or StorageError if the aborted transactions cannot be read.
        """
        from kafkapy.storage.cleaner.plan import CleaningPlan

        worker_count = settings.log_cleaner_threads
        segments = [segment for segment in log.segments if segment.base_offset < to_clean.first_uncleanable_offset]
        start_offset, end_offset = segments[0].base_offset, to_clean.first_uncleanable_offset
        config = log.config
        try:
            aborted = aborted_transactions(log, start_offset, end_offset)
        except OSError as error:
            raise log.log_dir.handle_os_error(error, f"cleaning {log.topic_partition}") from error
        plan = CleaningPlan(
            directory=log.directory,
            segments=[(segment.base_offset, segment.size) for segment in segments],
            first_dirty_offset=to_clean.first_dirty_offset,
            end_offset=end_offset,
            now_ms=now_ms,
            aborted=aborted,
            # kept though superseded: the next start reads from them which sequence number is each producer's next
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
        """Return whether the log is still in service, compacted, and not truncated since the pass began."""
        log = cleaning.log
        return (
            self._log_manager.get_log(log.topic_partition) is log
            and log.topic_partition not in self._log_manager.future_logs
            and not log.is_offline
            and log.config.is_compacted
            and log.directory == cleaning.plan.directory
            and log.truncation_count == cleaning.truncation_count
        )

    def swap_in(self, cleaning: Cleaning, cleaned: "CleanedSegment", now_ms: int) -> bool:
        """Replace a group by its cleaned segment, if the group is still in the log; return whether it was.

        Raises as maintenance.swap_in_cleaned.
        """
        log = cleaning.log
        replaced = [cleaning.segments[base_offset] for base_offset in cleaned.replaced]
        present = {segment.base_offset: segment for segment in log.segments}
        if not self.is_current(cleaning) or any(present.get(old.base_offset) is not old for old in replaced):
            self.drop_leftovers(cleaning)
            return False
        durable = self._log_manager.directory_of(log).durable_recovery_point(log.topic_partition)
        # recovery takes what is missing above the recovery point on disk for lost (storage/recovery/loader.py)
        assert durable >= cleaning.plan.end_offset, f"{log} is swapped in above {durable}, its recovery point on disk"
        swap_in_cleaned(log, cleaned.base_offset, replaced, has_txn_index=cleaned.has_txn_index, now_ms=now_ms)
        return True

    def finish(self, cleaning: Cleaning, facts: dict[str, Any], duration_ms: int) -> CleaningReport:
        """Record a complete pass and return its report; the caller writes the checkpoint."""
        cleaning.log.on_cleaned(facts["clean_to"])
        self._failures.pop(cleaning.log.topic_partition, None)
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
        """Clear the reports after the number of workers changed."""
        self.reports.clear()
        self.overdue_ms.clear()

    # Failures

    def fail(self, cleaning: Cleaning, message: str, error_number: int) -> None:
        """Handle a failed pass. error_number: the errno of an OSError, 0 for other errors."""
        self.drop_leftovers(cleaning)
        log = cleaning.log
        if not self.is_current(cleaning):
            return  # the log was truncated or deleted during the pass
        if error_number == errno.ENOENT and not self._has_all_segments(cleaning):
            return  # retention deleted a segment during the pass
        if error_number and error_number != errno.ENOENT:
            self._failures_for_update(log)
            log.log_dir.handle_os_error(OSError(error_number, message), f"cleaning {log.topic_partition}")
            return
        self.set_aside(log, message)

    def _has_all_segments(self, cleaning: Cleaning) -> bool:
        present = {id(segment) for segment in cleaning.log.segments}
        return all(id(old) in present for old in cleaning.segments.values())

    def postpone(self, log: Log) -> None:
        """Record a pass that a shortage prevented or stopped: other logs are cleaned first."""
        self._failures_for_update(log)

    def helper_lost(self, cleaning: Cleaning, message: str) -> None:
        """Record that the helper process died during a pass; after MAX_LOST_PASSES set the log aside."""
        self.drop_leftovers(cleaning)
        log = cleaning.log
        failures = self._failures_for_update(log)
        failures.lost_passes += 1
        logger.warning(
            "The helper process that cleaned %s ended unexpectedly, %d times so far: %s",
            log.topic_partition,
            failures.lost_passes,
            message,
        )
        if failures.lost_passes >= MAX_LOST_PASSES:
            self.set_aside(log, message)

    def set_aside(self, log: Log, reason: str) -> None:
        """Exclude the log from cleaning until the next start."""
        self._failures_for_update(log).reason = reason
        logger.error(
            "Cleaning of %s in dir %s failed; marking its partition as uncleanable: %s",
            log.topic_partition,
            log.log_dir.path,
            reason,
        )

    def drop_leftovers(self, cleaning: Cleaning) -> None:
        """Delete the .cleaned files of an abandoned pass; those of a deleted log are deleted with its directory.

        Also if another topic has the name now: the last step may have written into its directory.
        """
        log = self._log_manager.get_log(cleaning.log.topic_partition)
        if log is None or log.directory != cleaning.plan.directory or log.is_offline:
            return
        try:
            for name in self._disk.list_directory(log.directory):
                if name.endswith(CLEANED_SUFFIX):
                    self._disk.delete(f"{log.directory}/{name}")
        except OSError as error:
            log.log_dir.handle_os_error(error, f"deleting what the cleaner left of {log.topic_partition}")


def _state_of(log: Log) -> "LogState":
    """Return the log's LogState, with timestamps only if a compaction lag is configured. Raises OSError."""
    from kafkapy.storage.cleaner.plan import LogState, SegmentState, needs_timestamps

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
