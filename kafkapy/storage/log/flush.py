"""Making a log durable without holding up the event loop: what to sync is collected here, a worker does it."""

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkapy.errors import ApiError, StorageError
from kafkapy.seams import failpoint
from kafkapy.storage.errors import KAFKA_STORAGE_ERROR
from kafkapy.storage.log_dir import NO_DESCRIPTORS, NO_SPACE
from kafkapy.storage.segment.open_files import FileHandle

if TYPE_CHECKING:
    from kafkapy.storage.log.log import Log


class Flush:
    """A flush of one log up to `end_offset`. Made by `prepare_flush`; a log has one at a time, `flush_under_way`.

    `run` syncs, on any thread; `others` are calls that it makes behind the files. Then, on the loop's thread,
    `complete` moves the recovery point and lets go of the files, also after a failure. run raises StorageError: what
    was written may be gone, and asking again would not tell, so the directory goes offline. No such failures are a disk
    without room for the small files that `others` write, and a log whose directory was renamed meanwhile (ApiError
    KAFKA_STORAGE_ERROR): the next flush makes up for it.
    """

    def __init__(self, log: "Log", end_offset: int, handles: list[FileHandle]) -> None:
        self.log = log
        self.end_offset = end_offset
        self.truncation_count = log.truncation_count
        self.failure = ""
        """What a sync failed of."""
        self.is_done = False
        self.has_no_room = False
        self.directory = log.directory
        self.has_lost_names = False
        """Whether a name was not there any more: the directory may have been renamed meanwhile, with its log."""
        self.on_complete: list[Callable[[], None]] = []
        """Calls for who waits to flush the log next; made by `complete`."""
        self._handles = handles
        self.others: list[Callable[[], None]] = []
        for handle in handles:
            handle.pin(self)  # before any is opened: opening one may close another
        try:
            self._files = [handle.file for handle in handles]
        except OSError:
            self._release()
            raise
        log.note_flush_begun(self)

    def run(self) -> None:
        """Sync the files, then make the other calls. Blocks. Raises StorageError, ApiError KAFKA_STORAGE_ERROR."""
        doing = f"flush of {self.log.topic_partition}"
        try:
            for file in self._files:
                file.sync()
        except OSError as error:
            self.failure = f": {error}"
            raise StorageError(self.log.log_dir.path, f"{doing}: {error}") from error
        failpoint("log.flush.after_files")
        try:
            for call in self.others:
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
        """Raise FileNotFoundError once the log's directory has another name: a new log may have this one by now."""
        if self.directory != self.log.directory:
            raise FileNotFoundError(errno.ENOENT, f"renamed to {self.log.directory}", self.directory)

    def complete(self, now_ms: int) -> None:
        """Take over what `run` has done: the recovery point moves, unless the log was truncated meanwhile.

        After a flush that failed the directory goes offline; one that found no room, or whose log was renamed, is made
        up for by the next.
        """
        self._release()
        log = self.log
        if self.has_no_room or (self.has_lost_names and self.directory != log.directory):
            log.local_log.forget_syncs(log.leader_epochs)
            return
        if not self.is_done:
            log.log_dir.go_offline(f"flush of {log.topic_partition}{self.failure or ' failed'}")
            return
        is_current = self.truncation_count == log.truncation_count
        log.note_flushed(self.end_offset if is_current else log.recovery_point, now_ms)

    def _release(self) -> None:
        self.log.note_flush_ended()
        for handle in self._handles:
            handle.unpin(self)
        for call in self.on_complete:
            call()


def prepare_flush(log: "Log", end_offset: int | None = None) -> Flush:
    """Collect what makes the log durable below `end_offset` (all of it, unless given).

    Run `flush.run` in the IoPool, then `flush.complete` on the loop's thread. Not while another one is under way: two
    would write one leader-epoch-checkpoint.tmp. Raises StorageError; ApiError KAFKA_STORAGE_ERROR of a doomed log,
    whose files go.
    """
    log.log_dir.check_online()
    if log.is_doomed:
        raise ApiError(KAFKA_STORAGE_ERROR, f"{log.topic_partition} is no longer in {log.log_dir.path}")
    assert log.flush_under_way is None, f"two flushes of {log.topic_partition} at a time"
    end_offset = log.log_end_offset if end_offset is None else min(end_offset, log.log_end_offset)
    with log.failures("preparing a flush"):
        handles = log.local_log.handles_to_sync(log.recovery_point, end_offset, log.log_end_offset)
        flush = Flush(log, end_offset, handles)
        flush.others = log.local_log.other_syncs(log.leader_epochs)
    return flush


def flush_log(log: "Log", end_offset: int | None = None) -> None:
    """Make the log durable below `end_offset` (all of it, unless given). Blocks. Raises StorageError."""
    run_flush(prepare_flush(log, end_offset))


def run_flush(flush: Flush) -> None:
    """Run a flush here and now, and complete it. Blocks. Raises StorageError, ApiError KAFKA_STORAGE_ERROR."""
    try:
        flush.run()
    finally:
        flush.complete(flush.log.now_ms)
