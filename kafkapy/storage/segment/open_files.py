"""A bounded cache of open files, and the pins that keep a file alive while its bytes are on their way out.

A `FileHandle` is a file that is opened when it is first touched and may be closed again behind the holder's back when
too many are open. The choice is second chance (a ring, and a bit that each touch sets): a touch costs one attribute.

A `PinnedRegion` is what a read hands out. While one is out its file stays open: deleting the file unlinks its name and
closes it at the last release. Truncating it turns the regions that reach beyond the cut into empty ones: whoever sends
them finds the file shorter than promised and closes that connection; nobody gets bytes that were written afterwards.
"""

from collections.abc import Sequence
from typing import Final

from kafkapy.seams import Disk, File, FileRegion, ReadableBuffer

DEFAULT_CAPACITY: Final = 4096
"""Open segment and index files, for who does not know better: a broker's come from RLIMIT_NOFILE (server/limits.py)."""


class CutFile:
    """Stands in for a file behind a region that was truncated away: nothing is in it."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def pread(self, length: int, position: int) -> bytes:
        return b""

    def pread_nowait(self, length: int, position: int) -> bytes | None:
        return b""

    def warm(self, length: int, position: int) -> tuple[int, bool]:
        return 0, False

    def pwrite(self, buffers: Sequence[ReadableBuffer], position: int) -> int:
        raise AssertionError(f"write to a truncated region of {self.path}")

    def size(self) -> int:
        return 0

    def truncate(self, size: int) -> None:
        raise AssertionError(f"truncation of a truncated region of {self.path}")

    def sync(self) -> None:
        return

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        return


class PinnedRegion(FileRegion):
    """A region whose file stays open until `release`."""

    __slots__ = ("_handle",)

    def __init__(self, handle: "FileHandle", position: int, length: int) -> None:
        self.file = handle.file
        self.position = position
        self.length = length
        self.on_release = None
        self._handle: FileHandle | None = handle
        handle.pins.add(self)

    def release(self) -> None:
        """Let go of the file; a second call does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.unpin(self)


class OpenFiles:
    """Which handles have their file open; at most `capacity` of them, pinned ones aside."""

    __slots__ = ("_ring", "capacity", "disk")

    def __init__(self, disk: Disk, capacity: int = DEFAULT_CAPACITY) -> None:
        self.disk = disk
        self.capacity = capacity
        self._ring: dict[FileHandle, None] = {}

    def __len__(self) -> int:
        return len(self._ring)

    def add(self, handle: "FileHandle") -> None:
        """Note that `handle` opened its file; close others while there are too many."""
        self._ring[handle] = None
        if len(self._ring) > self.capacity:
            self._close_some(handle)

    def discard(self, handle: "FileHandle") -> None:
        self._ring.pop(handle, None)

    def _close_some(self, opened: "FileHandle") -> None:
        """Walk the ring: close what is not pinned and was not touched since the walk came by before, until it fits."""
        ring = self._ring
        for _ in range(2 * len(ring)):
            handle = next(iter(ring))
            if handle.is_referenced or handle.pins or handle is opened:
                handle.is_referenced = False
                ring[handle] = ring.pop(handle)
                continue
            handle.close()
            if len(ring) <= self.capacity:
                return


class FileHandle:
    """A file by its path, open while it is used. One owner (a segment or an index), one event-loop thread."""

    __slots__ = ("_file", "_files", "_is_deleted", "is_referenced", "path", "pins")

    def __init__(self, files: OpenFiles, path: str) -> None:
        self._files = files
        self._file: File | None = None
        self._is_deleted = False
        self.is_referenced = False
        self.path = path
        self.pins: set[object] = set()

    @property
    def file(self) -> File:
        """Return the open file, opening it where it is not. Raises OSError."""
        file = self._file
        if file is None:
            file = self._open(create=False)
        self.is_referenced = True
        return file

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def create(self) -> File:
        """Open the file, making it where it is missing."""
        if self._file is None:
            self._open(create=True)
        return self.file

    def _open(self, *, create: bool) -> File:
        self._file = file = self._files.disk.open(self.path, create=create)
        self.is_referenced = True  # a new one survives the walk that its own opening starts
        self._files.add(self)
        return file

    def pin(self, holder: object) -> None:
        """Keep the file open for `holder`, which calls `unpin` once."""
        self.pins.add(holder)

    def unpin(self, holder: object) -> None:
        self.pins.discard(holder)
        if self._is_deleted and not self.pins:
            self.close()

    def cut_regions(self, size: int) -> None:
        """Empty the regions that reach beyond `size`: the bytes there go, and others may take their place."""
        for holder in list(self.pins):
            if isinstance(holder, PinnedRegion) and holder.position + holder.length > size:
                holder.file = CutFile(self.path)
                holder.release()

    def rename(self, path: str) -> None:
        self._files.disk.rename(self.path, path)
        self.path = path

    def delete(self) -> None:
        """Unlink the file (a missing one is fine); its bytes stay readable for those who pinned it."""
        self._files.disk.delete(self.path)
        self.let_go()

    def let_go(self) -> None:
        """Close the file of which somebody removes the name, now or once nobody has it pinned."""
        self._is_deleted = True
        if not self.pins:
            self.close()

    def close(self) -> None:
        """Close the file; the next touch opens it again."""
        file, self._file = self._file, None
        if file is not None:
            self._files.discard(self)
            file.close()
