"""A disk that a test fills, fails, slows down, or has lose what was not synced: `Broker(disk_faults=True)`.

Stands between the broker and its disk, for all files of the node. Bytes are lost as in a crash of the
machine: what a file got since its last fsync is cut off.
"""

import errno
import os
import time
from collections.abc import Sequence
from typing import Final, TypeAlias

from kafkapy.seams import DirectoryLock, Disk, File, ReadableBuffer

UNLIMITED: Final = -1
MS_PER_S: Final = 1000
DiskFault: TypeAlias = tuple[str, int | str | None]
"""What changes: ("fill", room in bytes), ("fail", a directory and "/", "" for all), ("slow", ms) or ("mend", None)."""


class FileState:
    """A file's current path, and the part of it that is synced. A rename changes `path`, also for open handles."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.synced_size: int | None = None
        """How many bytes it had when it was synced last, or was first written to; None if neither has been."""

    def on_write(self, size: int) -> None:
        """`size`: of the file before the write."""
        if self.synced_size is None:
            self.synced_size = size

    def on_sync(self, size: int) -> None:
        """`size`: of the file when the sync began. What was written meanwhile may not be on the disk."""
        self.synced_size = size

    def on_truncate(self, size: int) -> None:
        if self.synced_size is not None:
            self.synced_size = min(self.synced_size, size)


class DiskState:
    """The faults of the disk. Changed from any thread, read by the broker's threads. Outlives restarts."""

    def __init__(self) -> None:
        self.room = UNLIMITED
        """How many bytes files may still grow."""
        self.delay_s = 0.0
        self.failing: str | None = None
        """The directory whose files fail; "" for all, None for none."""
        self._files: dict[str, FileState] = {}
        """By their paths, those that were opened."""

    def change(self, fault: DiskFault) -> None:
        match fault:
            case "fill", int(room):
                self.room = room
            case "fail", str(directory):
                self.failing = directory
            case "slow", int(delay_ms):
                self.delay_s = delay_ms / MS_PER_S
            case _:
                self.room, self.delay_s, self.failing = UNLIMITED, 0.0, None

    def check(self, path: str) -> None:
        """Wait as long as the disk takes; raise OSError if it fails."""
        if self.delay_s:
            time.sleep(self.delay_s)
        if self.failing is not None and f"{path}/".startswith(self.failing):
            raise OSError(errno.EIO, f"{os.strerror(errno.EIO)} (a fault)", path)

    def grow(self, path: str, byte_count: int) -> None:
        """Take room. Raises OSError if there is none."""
        if self.room == UNLIMITED or byte_count <= 0:
            return
        if byte_count > self.room:
            raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} (a fault)", path)
        self.room -= byte_count

    def shrink(self, byte_count: int) -> None:
        if self.room != UNLIMITED:
            self.room += max(byte_count, 0)

    def file(self, path: str) -> FileState:
        return self._files.setdefault(path, FileState(path))

    def on_rename(self, source: str, target: str) -> None:
        """Record the rename of a file, or of a directory with its files."""
        for path in list(self._files):
            if path == source or path.startswith(f"{source}/"):
                file = self._files.pop(path)
                file.path = target + path[len(source) :]
                self._files[file.path] = file

    def on_delete(self, path: str) -> None:
        self._files.pop(path, None)

    def lose_unsynced(self) -> int:
        """Cut off what files got since they were synced; return the bytes lost. The broker must not run."""
        lost = 0
        for path, file in self._files.items():
            size = file.synced_size
            if size is not None and os.path.exists(path) and os.path.getsize(path) > size:
                lost += os.path.getsize(path) - size
                os.truncate(path, size)
        self._files.clear()
        return lost


class FaultyFile:
    """A seams.File on a disk that may have faults."""

    def __init__(self, file: File, state: DiskState) -> None:
        self._file = file
        self._state = state
        self._file_state = state.file(file.path)

    @property
    def path(self) -> str:
        return self._file_state.path

    def pread(self, length: int, position: int) -> bytes:
        self._state.check(self.path)
        return self._file.pread(length, position)

    def pread_nowait(self, length: int, position: int) -> bytes | None:
        self._state.check(self.path)
        return self._file.pread_nowait(length, position)

    def warm(self, length: int, position: int) -> tuple[int, bool]:
        self._state.check(self.path)
        return self._file.warm(length, position)

    def pwrite(self, buffers: Sequence[ReadableBuffer], position: int) -> int:
        self._state.check(self.path)
        size = self._file.size()
        self._state.grow(self.path, position + sum(map(len, buffers)) - size)
        self._file_state.on_write(size)
        return self._file.pwrite(buffers, position)

    def size(self) -> int:
        return self._file.size()

    def truncate(self, size: int) -> None:
        self._state.check(self.path)
        self._state.shrink(self._file.size() - size)
        self._file_state.on_truncate(size)
        self._file.truncate(size)

    def sync(self) -> None:
        self._state.check(self.path)
        size = self._file.size()
        self._file.sync()
        self._file_state.on_sync(size)

    def fileno(self) -> int:
        return -1  # or the kernel would read the file without asking here

    def close(self) -> None:
        self._file.close()


class FaultyDisk:
    """A seams.Disk with faults."""

    def __init__(self, disk: Disk, state: DiskState) -> None:
        self._disk = disk
        self._state = state

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        self._state.check(path)
        return FaultyFile(self._disk.open(path, create=create, writable=writable), self._state)

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def is_directory(self, path: str) -> bool:
        return self._disk.is_directory(path)

    def list_directory(self, path: str) -> list[str]:
        self._state.check(path)
        return self._disk.list_directory(path)

    def scan_directory(self, path: str) -> list[tuple[str, bool]]:
        self._state.check(path)
        return self._disk.scan_directory(path)

    def make_directory(self, path: str) -> bool:
        self._state.check(path)
        return self._disk.make_directory(path)

    def rename(self, source: str, target: str) -> None:
        self._state.check(source)
        self._disk.rename(source, target)
        self._state.on_rename(source, target)

    def delete(self, path: str) -> None:
        self._state.check(path)
        freed = os.path.getsize(path) if self._disk.exists(path) else 0
        self._disk.delete(path)
        self._state.on_delete(path)
        self._state.shrink(freed)

    def delete_tree(self, path: str) -> None:
        self._state.check(path)
        self._disk.delete_tree(path)

    def sync_directory(self, path: str) -> None:
        self._state.check(path)
        self._disk.sync_directory(path)

    def read_file(self, path: str) -> bytes:
        self._state.check(path)
        return self._disk.read_file(path)

    def write_file_atomically(self, path: str, data: bytes) -> None:
        self._state.check(path)
        self._state.grow(path, len(data) - (os.path.getsize(path) if self._disk.exists(path) else 0))
        self._disk.write_file_atomically(path, data)
        self._state.on_delete(path)  # the file of that name is another one now, and synced

    def size(self, path: str) -> int:
        self._state.check(path)
        return self._disk.size(path)

    def modified_ms(self, path: str) -> int:
        return self._disk.modified_ms(path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._disk.set_modified_ms(path, modified_ms)

    def lock_directory(self, path: str) -> DirectoryLock | None:
        return self._disk.lock_directory(path)

    def free_bytes(self, path: str) -> int:
        free = self._disk.free_bytes(path)
        return free if self._state.room == UNLIMITED else min(free, self._state.room)

    def total_bytes(self, path: str) -> int:
        return self._disk.total_bytes(path)
