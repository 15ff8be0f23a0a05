"""Make a log durable without blocking the event loop: collect what to sync here, then sync it on a worker.

Deviation: Apache Kafka's LogFlushRateAndTimeMs counts each segment of a flush. Here a flush of several segments counts
once, because they are synced together.
"""

import errno
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkapy.errors import ApiError, StorageError
from kafkapy.seams import failpoint
from kafkapy.storage.errors import KAFKA_STORAGE_ERROR
from kafkapy.storage.log_dir import NO_DESCRIPTORS, NO_SPACE
from kafkapy.storage.segment.open_files import FileHandle

if TYPE_CHECKING:
    from kafkapy.storage.log.log import Log

logger = logging.getLogger("kafkapy.storage")


class Flush:
    """A flush of one log up to `end_offset`. Created by `prepare_flush`; a log has one at a time, `flush_under_way`.

    `run` syncs the files on any thread, then makes the calls in `others`. Afterwards, also after a failure, `complete`
    runs on the loop's thread: it moves the recovery point and releases the files. If a sync fails, run raises
    StorageError and the directory goes offline: written data may be lost, and a retried fsync would not report that.
    Two failures are retried by the next flush instead (ApiError KAFKA_STORAGE_ERROR): no space for the small files that
    `others` write, and a log directory that was renamed in the meantime.
    """

    def __init__(self, log: "Log", end_offset: int, handles: list[FileHandle]) -> None:
        self.log = log
        self.end_offset = end_offset
        self.truncation_count = log.truncation_count
        self.failure = ""
        """The error of a failed sync, for the log line."""
        self.is_done = False
        self.has_no_room = False
        self.directory = log.local_log.directory
        self.has_lost_names = False
        """Whether a file was not found: the log's directory may have been renamed in the meantime."""
        self.on_complete: list[Callable[[], None]] = []
        """Callbacks that `complete` calls, for callers that wait to flush the log next."""
        self._took_us: int | None = None
        """How long the syncs took, if that is counted."""
        self._handles = handles
        self.others: list[Callable[[], None]] = []
        for handle in handles:
            handle.pin(self)  # before any is opened: opening one file may close another
        try:
            self._files = [handle.file for handle in handles]
        except OSError:
            self._release()
            raise
        log.on_flush_begun(self)

    @property
    def has_work(self) -> bool:
        """Whether `run` has anything to do: if not, it may be called without a worker."""
        return bool(self._files or self.others)

    def run(self) -> None:
        """Sync the files, then run `others`. Blocks. Raises StorageError, ApiError KAFKA_STORAGE_ERROR."""
        assert not self.is_done, f"{self.log} is flushed twice by one flush"
        doing = f"flush of {self.log.topic_partition}"
        is_counted = self.log.log_dir.on_flushed is not None
        began_ns = time.perf_counter_ns() if is_counted else 0
        try:
            for file in self._files:
                file.sync()
            if is_counted:
                self._took_us = (time.perf_counter_ns() - began_ns) // 1000
        except OSError as error:
            self.failure = f": {error}"
            raise StorageError(self.log.log_dir.path, f"{doing}: {error}") from error
        failpoint("log.flush.after_files")
        try:
            for call in self.others:
                # These calls open files by name. After a rename the name may be that of another, new log.
                self._check_names()
                call()
        except OSError as error:
            self.failure = f": {error}"
            self.has_lost_names = isinstance(error, FileNotFoundError)
            self.has_no_room = error.errno in (*NO_SPACE, *NO_DESCRIPTORS)
            if self.has_no_room or self.has_lost_names:
                raise ApiError(KAFKA_STORAGE_ERROR, f"{doing}: {error}") from error
            raise StorageError(self.log.log_dir.path, f"{doing}: {error}") from error
        self.is_done = True

    def _check_names(self) -> None:
        """Raise FileNotFoundError if the log's directory was renamed: a new log may already use the old name."""
        if self.directory != self.log.directory:
            raise FileNotFoundError(errno.ENOENT, f"renamed to {self.log.directory}", self.directory)

    def complete(self, now_ms: int) -> None:
        """Apply the result of `run`: move the recovery point, unless the log was truncated in the meantime.

        After a failed flush the directory goes offline; without space, or after a rename, the next flush retries.
        """
        self._release()
        log = self.log
        on_flushed = log.log_dir.on_flushed
        if self._took_us is not None and on_flushed is not None:
            on_flushed(self._took_us)
        if self.has_no_room or (self.has_lost_names and self.directory != log.directory):
            log.local_log.forget_syncs(log.leader_epochs)
            return
        if not self.is_done:
            log.log_dir.go_offline(f"flush of {log.topic_partition}{self.failure or ' failed'}")
            return
        is_current = self.truncation_count == log.truncation_count
        assert not is_current or self.end_offset <= log.log_end_offset, f"{log} was flushed to {self.end_offset}"
        log.on_flushed(self.end_offset if is_current else log.recovery_point, now_ms)

    def _release(self) -> None:
        self.log.on_flush_ended()
        for handle in self._handles:
            handle.unpin(self)
        for call in self.on_complete:
            call()


def prepare_flush(log: "Log", end_offset: int | None = None, *, is_closing: bool = False) -> Flush:
    """Return the flush that makes the log durable below `end_offset` (default: the log end offset).

    Run `flush.run` in the IoPool, then `flush.complete` on the loop's thread. Only one flush of a log at a time: two
    would write the same leader-epoch-checkpoint.tmp. Raises StorageError; ApiError KAFKA_STORAGE_ERROR if the log is
    retired (out of service, its files pending deletion).
    """
    log.log_dir.check_online()
    if log.is_retired:
        raise ApiError(KAFKA_STORAGE_ERROR, f"{log.topic_partition} is no longer in {log.log_dir.path}")
    assert log.flush_under_way is None, f"two flushes of {log.topic_partition} at a time"
    end_offset = log.log_end_offset if end_offset is None else min(end_offset, log.log_end_offset)
    with log.failures("preparing a flush"):
        handles = log.local_log.handles_to_sync(log.recovery_point, end_offset, log.log_end_offset)
        flush = Flush(log, end_offset, handles)
        flush.others = log.local_log.other_syncs(log.leader_epochs, handles, is_closing=is_closing)
    return flush


def due_flush_end(log: "Log", now_ms: int) -> int | None:
    """Return the offset up to which a flush is due, or None."""
    if log.recovery_point >= log.log_end_offset:
        return None
    is_due = log.log_end_offset - log.recovery_point >= log.config.flush_messages
    if is_due or now_ms - log.last_flush_ms >= log.config.flush_ms:
        return log.log_end_offset
    rolled_offset = log.segments.active.base_offset
    return rolled_offset if log.recovery_point < rolled_offset else None


def prepare_due_flush(log: "Log", now_ms: int) -> Flush | None:
    """Return the flush that is due, as `prepare_flush`. None if none is, another is under way, or it cannot begin."""
    end_offset = due_flush_end(log, now_ms)
    if end_offset is None or log.flush_under_way is not None:
        return None
    try:
        return prepare_flush(log, end_offset)
    except (ApiError, StorageError) as error:
        logger.warning("Could not flush %s, trying again at the next interval: %s", log.topic_partition, error)
        return None


def flush_log(log: "Log", end_offset: int | None = None) -> None:
    """Make the log durable below `end_offset` (default: the log end offset). Blocks. Raises StorageError, ApiError."""
    run_flush(prepare_flush(log, end_offset))


def prepare_closing_flush(log: "Log") -> Flush:
    """Take the last producer snapshot, trim the indexes and return the flush for a clean stop. Blocks shortly.

    Run the flush on a worker before `Log.close`, which then has little left to sync. A log that did not change since a
    clean start has nothing to sync: `has_work` is False. Raises StorageError, ApiError.
    """
    with log.failures("closing"):
        log.local_log.snapshots.maybe_take(log.producer_state)
        log.segments.active.become_inactive()
        return prepare_flush(log, is_closing=True)


def run_flush(flush: Flush) -> None:
    """Run a flush on this thread and complete it. Blocks. Raises StorageError, ApiError KAFKA_STORAGE_ERROR."""
    try:
        flush.run()
    finally:
        flush.complete(flush.log.now_ms)
