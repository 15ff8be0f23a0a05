"""Segment files renamed to .deleted. They are unlinked after file.delete.delay.ms, as readers may still use them."""

from typing import NamedTuple

from kafkapy.seams import Disk, failpoint
from kafkapy.storage.log_dir import LogDirState
from kafkapy.storage.segment.segment import Segment


class FileDeletion(NamedTuple):
    """Files of one log that are due for deletion. A worker calls `run`."""

    disk: Disk
    log_dir: LogDirState
    path: str
    """The log's directory."""
    files: list[str]

    def run(self) -> None:
        """Unlink the files, ignoring missing ones. Blocks. Raises OSError."""
        for path in self.files:
            self.disk.delete(path)
            failpoint("log.delete.after_unlink")

    def describe(self) -> str:
        return f"{len(self.files)} files of segments in {self.path}"


class _Doomed:
    """A segment, its producer snapshot's path, and when they are due; due_ms is None until the first take_due."""

    __slots__ = ("due_ms", "segment", "snapshot_path")

    def __init__(self, segment: Segment, snapshot_path: str | None) -> None:
        self.segment = segment
        self.snapshot_path = snapshot_path
        self.due_ms: int | None = None


class DoomedFiles:
    """One log's segments pending deletion, oldest first. Not persisted: loading a log deletes its .deleted files."""

    __slots__ = ("_disk", "_waiting")

    def __init__(self, disk: Disk, segments: list[Segment]) -> None:
        self._disk = disk
        self._waiting = [_Doomed(segment, None) for segment in segments]

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, segment: Segment, snapshot_path: str | None) -> None:
        self._waiting.append(_Doomed(segment, snapshot_path))

    def take_due(self, now_ms: int, delay_ms: int) -> list[str]:
        """Release the files that have waited `delay_ms`; return their paths, for a worker to unlink (maybe gigabytes).

        Pinned regions stay readable until they are released.
        """
        paths = []
        for doomed in self._waiting:
            if doomed.due_ms is None:
                doomed.due_ms = now_ms + delay_ms
        while self._waiting and (self._waiting[0].due_ms or 0) <= now_ms:
            doomed = self._waiting.pop(0)
            doomed.segment.let_go()
            paths += [handle.path for handle in doomed.segment.handles()]
            if doomed.snapshot_path is not None:
                paths.append(doomed.snapshot_path)
        return paths

    def delete_due(self, now_ms: int, delay_ms: int) -> int | None:
        """Delete the due files now; return when the next are due (ms), or None. Blocks. Raises OSError."""
        for path in self.take_due(now_ms, delay_ms):
            self._disk.delete(path)
        return self._waiting[0].due_ms if self._waiting else None

    def let_go(self) -> None:
        """Close the pending files: the log's whole directory is being deleted."""
        for doomed in self._waiting:
            doomed.segment.let_go()
        self._waiting.clear()

    def move(self, old_directory: str, new_directory: str) -> None:
        """Update the paths after the log's directory was renamed."""
        for doomed in self._waiting:
            for handle in doomed.segment.handles():
                handle.path = new_directory + handle.path[len(old_directory) :]
            if doomed.snapshot_path is not None:
                doomed.snapshot_path = new_directory + doomed.snapshot_path[len(old_directory) :]
