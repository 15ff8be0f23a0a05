"""Directories of deleted logs: renamed to -delete, and after file.delete.delay.ms deleted by a worker.

After a crash the next start finds the -delete directories and deletes them after the delay.

On a full disk the rename can fail, as the longer name may need another directory block. Then the log keeps its name and
each `due_log_deletions` retries the rename. When the delay has passed, the log's oldest segment is deleted to free
space: after a crash, that log looks like one after retention, of a topic that no longer exists. Renames to -stray are
retried, too.
"""

import logging
from collections.abc import Iterator
from typing import Final

from kafkapy.errors import ApiError, StorageError
from kafkapy.named_tuple import NamedTuple
from kafkapy.seams import Disk, Random
from kafkapy.storage.errors import KAFKA_STORAGE_ERROR
from kafkapy.storage.file_names import DELETE_DIRECTORY_SUFFIX, STRAY_DIRECTORY_SUFFIX, marked_directory
from kafkapy.storage.log.log import Log
from kafkapy.storage.log.pending_files import RETRY_MS
from kafkapy.storage.log_dir import NO_SPACE, LogDirState

NAMES_AT_ONCE: Final = 64
"""How many failed renames one turn of the event loop retries: one or two milliseconds."""

logger = logging.getLogger("kafkapy.storage")


class DirectorySync(NamedTuple):
    """A log directory whose renames must be made durable. A worker calls `run`, which raises OSError."""

    disk: Disk
    log_dir: LogDirState

    def run(self) -> None:
        self.disk.sync_directory(self.log_dir.path)


class Deletion(NamedTuple):
    """A directory due for deletion. A worker calls `run`: it may unlink gigabytes, then syncs the log directory."""

    disk: Disk
    log_dir: LogDirState
    path: str
    pending: "PendingLogDeletions"

    def run(self) -> None:
        """Delete the directory. Blocks. Raises OSError."""
        self.disk.delete_tree(self.path)
        self.disk.sync_directory(self.log_dir.path)

    def put_back(self, now_ms: int) -> None:
        """Schedule the directory again: a shortage kept `run` from deleting it. On the event loop's thread."""
        self.pending.add(self.log_dir, self.path, now_ms + RETRY_MS)

    def describe(self) -> str:
        return f"the log in {self.path}"


class _PendingLog(NamedTuple):
    """A -delete directory. log: None if it was found at the start and never opened."""

    log_dir: LogDirState
    path: str
    log: Log | None
    due_ms: int


class _Nameless(NamedTuple):
    """A log not yet renamed to -delete or -stray (`marker`). due_ms: None for a stray log, which is kept."""

    log: Log
    marker: str
    due_ms: int | None


class PendingLogDeletions:
    """Logs pending deletion, and pending renames to -delete and -stray. Used on the event loop's thread only."""

    def __init__(self, disk: Disk, random: Random) -> None:
        self._disk = disk
        self._random = random
        self._waiting: dict[str, _PendingLog] = {}
        """Logs pending deletion, by path."""
        self._nameless: list[_Nameless] = []
        self._renamed_in: list[LogDirState] = []

    def __len__(self) -> int:
        return len(self._waiting)

    # Names

    def schedule(self, log: Log, now_ms: int) -> None:
        """Rename a log that is in no table to -delete; it is deleted after its delay. Raises StorageError."""
        self._begin(_Nameless(log, DELETE_DIRECTORY_SUFFIX, now_ms + log.config.file_delete_delay_ms))

    def set_aside(self, log: Log) -> None:
        """Rename a log that is in no table to -stray; it is kept. Raises StorageError."""
        log.local_log.close_files()
        self._begin(_Nameless(log, STRAY_DIRECTORY_SUFFIX, None))

    def _begin(self, nameless: _Nameless) -> None:
        try:
            with nameless.log.failures("renaming the directory"):
                self._name(nameless)
        except ApiError:
            logger.warning("Could not rename %s yet: the disk is full", nameless.log.directory)
            self._nameless.append(nameless)
        except StorageError:
            self._nameless.append(nameless)  # never renamed: nothing in a failed directory is touched
            raise

    def _name(self, nameless: _Nameless) -> None:
        """Rename the log to its marker and, unless it is stray, schedule its deletion. Raises OSError."""
        log, partition = nameless.log, nameless.log.topic_partition
        self.rename(log, marked_directory(partition, self._random.uuid(), nameless.marker))
        if nameless.due_ms is None:
            logger.warning("Log for partition %s is marked as stray and renamed to %s", partition, log.directory)
            return
        logger.info("Log for partition %s is renamed to %s and is scheduled for deletion", partition, log.directory)
        self._waiting[log.directory] = _PendingLog(log.log_dir, log.directory, log, nameless.due_ms)

    def rename(self, log: Log, name: str) -> None:
        """Rename the log's directory; `due_syncs` makes the name durable. Raises OSError."""
        log.local_log.rename_directory(f"{log.log_dir.path}/{name}")
        if log.log_dir not in self._renamed_in:
            self._renamed_in.append(log.log_dir)

    def make_way(self, path: str) -> None:
        """Ensure that no log pending a rename occupies `path`. Raises ApiError KAFKA_STORAGE_ERROR without space."""
        if not self._nameless:
            return
        for nameless in [each for each in self._nameless if each.log.directory == path]:
            try:
                self._name(nameless)
            except OSError as error:
                self._on_name_refused(nameless, error)
                message = f"{path} is a deleted log's, and there is no room to rename it"
                raise ApiError(KAFKA_STORAGE_ERROR, message) from error
            self._nameless.remove(nameless)

    def _try_again(self, nameless: _Nameless) -> bool:
        """Retry a rename; return whether it succeeded."""
        try:
            self._name(nameless)
        except OSError as error:
            self._on_name_refused(nameless, error)
            return False
        return True

    def _on_name_refused(self, nameless: _Nameless, error: OSError) -> None:
        """Take the directory offline unless a rename failed again for a shortage. Missing space is not logged again."""
        if error.errno not in NO_SPACE:
            nameless.log.log_dir.handle_os_error(error, f"renaming {nameless.log.directory}")

    def due_syncs(self) -> list[DirectorySync]:
        """Return the directories in which logs were renamed, in order of their first rename, for a worker to sync."""
        renamed_in, self._renamed_in = self._renamed_in, []
        return [DirectorySync(self._disk, state) for state in renamed_in if not state.is_offline]

    # Deletion

    def add(self, log_dir: LogDirState, path: str, due_ms: int) -> None:
        """Schedule the deletion of a -delete directory that was found at the start, or could not be deleted yet."""
        self._waiting[path] = _PendingLog(log_dir, path, None, due_ms)

    def due_log_deletions(self, now_ms: int) -> Iterator[Deletion]:
        """Yield the due deletions, with their files released; pinned regions stay readable until they are released.

        One log at a time: after a topic's deletion thousands may be due at once, each with files to close. A log being
        flushed is skipped for now: a file created by the flush would prevent the directory's removal.
        """
        self._name_some(now_ms)
        due = [pending for pending in self._waiting.values() if pending.due_ms <= now_ms]
        due.reverse()
        while due:
            pending = due.pop()  # so that each log is freed in its own step: 10,000 together took 45 ms
            is_flushed = pending.log is not None and pending.log.flush_under_way is not None
            if is_flushed or pending.log_dir.is_offline or self._waiting.pop(pending.path, None) is None:
                continue
            if pending.log is not None:
                pending.log.local_log.let_go_of_files()
            yield Deletion(self._disk, pending.log_dir, pending.path, self)

    def _name_some(self, now_ms: int) -> None:
        """Retry some failed renames; if a due log still cannot be renamed, delete one segment and try again."""
        tried, self._nameless = self._nameless[:NAMES_AT_ONCE], self._nameless[NAMES_AT_ONCE:]
        has_dropped = False
        for nameless in tried:
            is_named = not nameless.log.is_offline and self._try_again(nameless)
            is_due = nameless.due_ms is not None and nameless.due_ms <= now_ms
            if not is_named and is_due and not has_dropped and self._drop_oldest_segment(nameless.log):
                has_dropped = True
                is_named = self._try_again(nameless)
            if not is_named:
                self._nameless.append(nameless)

    def _drop_oldest_segment(self, log: Log) -> bool:
        """Delete a log's oldest segment to free space for a rename; return whether it did. May block."""
        if log.is_offline or not len(log.segments):
            return False
        segment = log.segments.first
        log.segments.remove(segment)
        segment.let_go()
        try:
            for handle in reversed(segment.handles()):  # the .log first: recovery deletes orphaned indexes
                self._disk.delete(handle.path)
        except OSError as error:
            log.log_dir.handle_os_error(error, f"deleting segments in {log.directory}")
            return False
        return True

    def close_steps(self) -> Iterator[None]:
        """Close the files of logs pending deletion, log by log, so that other work can run in between."""
        for path in list(self._waiting):  # not the logs: each is freed in its own step
            pending = self._waiting.get(path)
            if pending is not None and pending.log is not None:
                pending.log.local_log.close_files()
                self._waiting[path] = _PendingLog(pending.log_dir, path, None, pending.due_ms)
                yield

    def close(self) -> None:
        """Retry renames, then close all files without syncing. The next start loads logs that still have their name."""
        for nameless in self._nameless:
            if not nameless.log.is_offline:
                self._try_again(nameless)
            nameless.log.local_log.close_files()
        for _ in self.close_steps():
            pass
