"""Directories of deleted logs: they wait out file.delete.delay.ms under another name, then a worker unlinks them.

A crash in between loses nothing of it: a directory called -delete is found by the next start, which goes on waiting.

The longer name may need a block of its own, which a full disk does not have. Then the log keeps its name for now, the
rename is tried again whenever `take_due` is called, and once the delay has passed the log's oldest segment makes room
for it: a crash leaves a log as retention leaves it, of a topic that is gone. Stray logs wait for their name likewise.
"""

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from kafkapy.errors import ApiError, StorageError
from kafkapy.seams import Disk, Random
from kafkapy.storage.errors import KAFKA_STORAGE_ERROR
from kafkapy.storage.file_names import DELETE_DIRECTORY_SUFFIX, STRAY_DIRECTORY_SUFFIX, marked_directory
from kafkapy.storage.log.log import Log
from kafkapy.storage.log_dir import NO_SPACE, LogDirState

NAMES_AT_ONCE: Final = 64
"""Renames that found no room and are tried again in one turn of the loop: a millisecond or two."""

logger = logging.getLogger("kafkapy.storage")


class DirectorySync(NamedTuple):
    """The names in a log directory, to be made durable. `run` is for a worker; it raises OSError."""

    disk: Disk
    log_dir: LogDirState

    def run(self) -> None:
        self.disk.sync_directory(self.log_dir.path)


class Deletion(NamedTuple):
    """A directory to be deleted now. `run` is for a worker: it unlinks what may be gigabytes, and syncs the names."""

    disk: Disk
    log_dir: LogDirState
    path: str

    def run(self) -> None:
        """Delete the directory for good. Blocks. Raises OSError."""
        self.disk.delete_tree(self.path)
        self.disk.sync_directory(self.log_dir.path)

    def describe(self) -> str:
        return f"the log in {self.path}"


class _DoomedLog(NamedTuple):
    """log: None where it was found so at the start, and never opened."""

    log_dir: LogDirState
    path: str
    log: Log | None
    due_ms: int


class _Nameless(NamedTuple):
    """A log that is to be called -delete or -stray and is not yet. due_ms: None of a stray one, which is kept."""

    log: Log
    marker: str
    due_ms: int | None


class DoomedLogs:
    """What waits, and the names that it gets. One event-loop thread."""

    def __init__(self, disk: Disk, random: Random) -> None:
        self._disk = disk
        self._random = random
        self._waiting: dict[str, _DoomedLog] = {}
        """By path."""
        self._nameless: list[_Nameless] = []
        self._renamed_in: list[LogDirState] = []

    def __len__(self) -> int:
        return len(self._waiting)

    # Names

    def doom(self, log: Log, now_ms: int) -> None:
        """Rename a log that is in no table to -delete; it goes after its delay. Raises StorageError."""
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
            logger.warning("%s keeps its name until there is room for the longer one", nameless.log.directory)
            self._nameless.append(nameless)
        except StorageError:
            self._nameless.append(nameless)  # for good: a directory that failed is not touched
            raise

    def _name(self, nameless: _Nameless) -> None:
        """Raises OSError."""
        log, partition = nameless.log, nameless.log.topic_partition
        self.rename(log, marked_directory(partition, self._random.uuid(), nameless.marker))
        if nameless.due_ms is None:
            logger.warning("Log for partition %s is marked as stray and renamed to %s", partition, log.directory)
            return
        logger.info("Log for partition %s is renamed to %s and is scheduled for deletion", partition, log.directory)
        self._waiting[log.directory] = _DoomedLog(log.log_dir, log.directory, log, nameless.due_ms)

    def rename(self, log: Log, name: str) -> None:
        """Give the log's directory a name, to be made durable by `due_syncs`. Raises OSError."""
        log.local_log.rename_directory(f"{log.log_dir.path}/{name}")
        if log.log_dir not in self._renamed_in:
            self._renamed_in.append(log.log_dir)

    def make_way(self, path: str) -> None:
        """See to it that no log in here is called `path`. Raises ApiError KAFKA_STORAGE_ERROR where one has to be."""
        for nameless in [each for each in self._nameless if each.log.directory == path]:
            if not self._try_again(nameless):
                raise ApiError(KAFKA_STORAGE_ERROR, f"{path} is a deleted log's, and there is no room to rename it")
            self._nameless.remove(nameless)

    def _try_again(self, nameless: _Nameless) -> bool:
        """Return whether the log has its name now; what is still missing was said before."""
        try:
            self._name(nameless)
        except OSError as error:
            if error.errno not in NO_SPACE:
                nameless.log.log_dir.failure(error, f"renaming {nameless.log.directory}")
            return False
        return True

    def due_syncs(self) -> list[DirectorySync]:
        """Return the directories in which logs were renamed, in that order, to be synced by a worker."""
        renamed_in, self._renamed_in = self._renamed_in, []
        return [DirectorySync(self._disk, state) for state in renamed_in if not state.is_offline]

    # What is due

    def add(self, log_dir: LogDirState, path: str, due_ms: int) -> None:
        """Take a directory that was called -delete at the start."""
        self._waiting[path] = _DoomedLog(log_dir, path, None, due_ms)

    def take_due(self, now_ms: int) -> Iterator[Deletion]:
        """Yield what is due, its files let go of; what is being sent stays readable until it is released.

        A log at a time: of a topic that was deleted thousands fall due at once, and each has files to close. One that
        is being flushed waits: a file that the worker puts there meanwhile would keep the directory from being removed.
        """
        self._name_some(now_ms)
        for doomed in [doomed for doomed in self._waiting.values() if doomed.due_ms <= now_ms]:
            is_flushed = doomed.log is not None and doomed.log.flush_under_way is not None
            if is_flushed or doomed.log_dir.is_offline or self._waiting.pop(doomed.path, None) is None:
                continue
            if doomed.log is not None:
                doomed.log.local_log.let_go_of_files()
            yield Deletion(self._disk, doomed.log_dir, doomed.path)

    def _name_some(self, now_ms: int) -> None:
        """Try renames that found no room again, with that of one segment of a log that is due, where it takes that."""
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
        """Delete what a rename may find room in; return whether there was something. Here and now: it may block."""
        if log.is_offline or not len(log.segments):
            return False
        segment = log.segments.first
        log.segments.remove(segment)
        segment.let_go()
        try:
            for handle in reversed(segment.handles()):  # the log first: its indexes alone are orphans to recovery
                self._disk.delete(handle.path)
        except OSError as error:
            log.log_dir.failure(error, f"deleting segments in {log.directory}")
            return False
        return True

    def close(self) -> None:
        """Close the files as they are; the directories are found by the next start, which keeps those without name."""
        for nameless in self._nameless:
            if not nameless.log.is_offline:
                self._try_again(nameless)
            nameless.log.local_log.close_files()
        for doomed in self._waiting.values():
            if doomed.log is not None:
                doomed.log.local_log.close_files()
