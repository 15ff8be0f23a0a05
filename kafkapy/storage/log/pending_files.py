"""Segment files renamed to .deleted. They are unlinked after file.delete.delay.ms, as readers may still use them."""

from typing import Final

from kafkapy.seams import Disk, failpoint
from kafkapy.storage.log_dir import HasPendingFiles, LogDirState
from kafkapy.storage.segment.segment import Segment

RETRY_MS: Final = 60_000
"""How long files wait that could not be deleted for a shortage: as long as file.delete.delay.ms by default."""


class FileDeletion:
    """Files of one log that are due for deletion. A worker calls `run`.

    path: the log's directory.
    """

    __slots__ = ("_deleted_count", "_disk", "_files", "_log", "log_dir", "path")

    def __init__(self, disk: Disk, log_dir: LogDirState, log: HasPendingFiles, files: list[str]) -> None:
        self._disk = disk
        self.log_dir = log_dir
        self.path = log.directory
        self._files = files
        self._log = log
        self._deleted_count = 0

    def run(self) -> None:
        """Unlink the files, ignoring missing ones. Blocks. Raises OSError."""
        assert not self._deleted_count, f"{self.describe()} are deleted twice"
        for path in self._files:
            self._disk.delete(path)
            self._deleted_count += 1
            failpoint("log.delete.after_unlink")

    def put_back(self, now_ms: int) -> None:
        """Schedule the files again that `run` did not unlink. On the event loop's thread."""
        self._log.put_back(self._files[self._deleted_count :], now_ms)

    def describe(self) -> str:
        return f"{len(self._files)} files of segments in {self.path}"


class _PendingFiles:
    """A segment, its producer snapshot's path, and when they are due: None until the first `pop_due_files`."""

    __slots__ = ("due_ms", "segment", "snapshot_path")

    def __init__(self, segment: Segment, snapshot_path: str | None) -> None:
        self.segment = segment
        self.snapshot_path = snapshot_path
        self.due_ms: int | None = None


class PendingFileDeletions:
    """One log's segments pending deletion, oldest first. Not persisted: loading a log deletes its .deleted files."""

    __slots__ = ("_disk", "_put_back", "_retry_ms", "_waiting")

    def __init__(self, disk: Disk, segments: list[Segment]) -> None:
        self._disk = disk
        self._waiting = [_PendingFiles(segment, None) for segment in segments]
        self._put_back: list[str] = []
        """Files that could not be deleted, to be tried again at _retry_ms."""
        self._retry_ms = 0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._put_back)

    def add(self, segment: Segment, snapshot_path: str | None) -> None:
        self._waiting.append(_PendingFiles(segment, snapshot_path))

    def pop_due_files(self, now_ms: int, delay_ms: int) -> list[str]:
        """Release the files that have waited `delay_ms`; return their paths, for a worker to unlink (maybe gigabytes).

        Pinned regions stay readable until they are released.
        """
        assert delay_ms >= 0, f"a delay of {delay_ms} ms"
        paths = []
        if self._retry_ms <= now_ms:
            paths, self._put_back = self._put_back, []
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

    def put_back(self, paths: list[str], now_ms: int) -> None:
        """Keep files that a shortage kept from being deleted; they are due again after RETRY_MS."""
        self._put_back += paths
        self._retry_ms = now_ms + RETRY_MS

    def delete_due_files(self, now_ms: int, delay_ms: int) -> int | None:
        """Delete the due files now; return when the next are due (ms), or None. Blocks. Raises OSError."""
        paths = self.pop_due_files(now_ms, delay_ms)
        for index, path in enumerate(paths):
            try:
                self._disk.delete(path)
            except OSError:
                self.put_back(paths[index:], now_ms)
                raise
        return self._waiting[0].due_ms if self._waiting else None

    def let_go(self) -> None:
        """Close the pending files: the log's whole directory is being deleted."""
        for pending in self._waiting:
            pending.segment.let_go()
        self._waiting.clear()
        self._put_back.clear()

    def close_files(self) -> None:
        """Close the pending files; they stay, for the next start to delete."""
        for pending in self._waiting:
            pending.segment.close()

    def move(self, old_directory: str, new_directory: str) -> None:
        """Update the paths after the log's directory was renamed."""
        self._put_back = [new_directory + path[len(old_directory) :] for path in self._put_back]
        for pending in self._waiting:
            for handle in pending.segment.handles():
                handle.path = new_directory + handle.path[len(old_directory) :]
            if pending.snapshot_path is not None:
                pending.snapshot_path = new_directory + pending.snapshot_path[len(old_directory) :]
