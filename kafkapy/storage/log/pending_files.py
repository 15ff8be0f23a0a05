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


class _PendingFiles:
    """A segment, its producer snapshot's path, and when they are due: None until the first `take_due_files`."""

    __slots__ = ("due_ms", "segment", "snapshot_path")

    def __init__(self, segment: Segment, snapshot_path: str | None) -> None:
        self.segment = segment
        self.snapshot_path = snapshot_path
        self.due_ms: int | None = None


class PendingFileDeletions:
    """One log's segments pending deletion, oldest first. Not persisted: loading a log deletes its .deleted files."""

    __slots__ = ("_disk", "_waiting")

    def __init__(self, disk: Disk, segments: list[Segment]) -> None:
        self._disk = disk
        self._waiting = [_PendingFiles(segment, None) for segment in segments]

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, segment: Segment, snapshot_path: str | None) -> None:
        self._waiting.append(_PendingFiles(segment, snapshot_path))

    def take_due_files(self, now_ms: int, delay_ms: int) -> list[str]:
        """Release the files that have waited `delay_ms`; return their paths, for a worker to unlink (maybe gigabytes).

        Pinned regions stay readable until they are released.
        """
        paths = []
        for pending in self._waiting:
            if pending.due_ms is None:
                pending.due_ms = now_ms + delay_ms
        while self._waiting and (self._waiting[0].due_ms or 0) <= now_ms:
            pending = self._waiting.pop(0)
            pending.segment.let_go()
            paths += [handle.path for handle in pending.segment.handles()]
            if pending.snapshot_path is not None:
                paths.append(pending.snapshot_path)
        return paths

    def delete_due_files(self, now_ms: int, delay_ms: int) -> int | None:
        """Delete the due files now; return when the next are due (ms), or None. Blocks. Raises OSError."""
        for path in self.take_due_files(now_ms, delay_ms):
            self._disk.delete(path)
        return self._waiting[0].due_ms if self._waiting else None

    def let_go(self) -> None:
        """Close the pending files: the log's whole directory is being deleted."""
        for pending in self._waiting:
            pending.segment.let_go()
        self._waiting.clear()

    def move(self, old_directory: str, new_directory: str) -> None:
        """Update the paths after the log's directory was renamed."""
        for pending in self._waiting:
            for handle in pending.segment.handles():
                handle.path = new_directory + handle.path[len(old_directory) :]
            if pending.snapshot_path is not None:
                pending.snapshot_path = new_directory + pending.snapshot_path[len(old_directory) :]
