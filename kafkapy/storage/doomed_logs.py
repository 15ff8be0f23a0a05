"""Directories of deleted logs: they wait out file.delete.delay.ms under another name, then a worker unlinks them.

A crash in between loses nothing of it: a directory called -delete is found by the next start, which goes on waiting.
"""

from typing import NamedTuple

from kafkapy.seams import Disk
from kafkapy.storage.log import Log
from kafkapy.storage.log_dir import LogDirState


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


class DoomedLogs:
    """What waits. One event-loop thread."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._waiting: list[_DoomedLog] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, log_dir: LogDirState, path: str, log: Log | None, due_ms: int) -> None:
        self._waiting.append(_DoomedLog(log_dir, path, log, due_ms))

    def take_due(self, now_ms: int) -> list[Deletion]:
        """Return what is due and let go of its files; what is being sent stays readable until it is released."""
        due: list[_DoomedLog] = []
        waiting: list[_DoomedLog] = []
        for doomed in self._waiting:
            (due if doomed.due_ms <= now_ms and not doomed.log_dir.is_offline else waiting).append(doomed)
        self._waiting = waiting
        for doomed in due:
            if doomed.log is not None:
                doomed.log.local_log.let_go_of_files()
        return [Deletion(self._disk, doomed.log_dir, doomed.path) for doomed in due]

    def close_files(self) -> None:
        """Close the files as they are; the directories are found by the next start."""
        for doomed in self._waiting:
            if doomed.log is not None:
                doomed.log.local_log.close_files()
