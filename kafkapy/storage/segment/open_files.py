"""A bounded cache of open files, and pins that keep a file open while its bytes are being sent.

A `FileHandle` opens its file at first use. The cache may close it again when too many files are open, by the second
chance algorithm (a ring, and a bit set by each use), so a use costs one attribute.

A read returns a `PinnedRegion`. Its file stays open until the region is released: deleting the file unlinks its name,
and the last release closes it. Truncating the file empties the regions that extend beyond the new end: their sender
finds fewer bytes than announced and closes the connection, so no client gets bytes written afterwards.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from kafkapy.seams import Disk, File, FileRegion, ReadableBuffer

DEFAULT_CAPACITY: Final = 4096
"""Default number of open segment and index files; a broker derives its own from RLIMIT_NOFILE (server/limits.py)."""


class CutFile:
    """Replaces the file of a region that was truncated away: an empty file."""

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
        assert position >= 0, f"a region at {position} of {handle.path}"
        assert length >= 0, f"a region of {length} bytes of {handle.path}"
        self.file = handle.file
        self.position = position
        self.length = length
        self.on_release = None
        self._handle: FileHandle | None = handle
        pins = handle.pins
        if isinstance(pins, set):  # as `pin`, without the call
            pins.add(self)
        else:
            handle.pins = {self}

    def release(self) -> None:
        """Unpin the file; a second call does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.unpin(self)


NO_PINS: Final[frozenset[object]] = frozenset()


class OpenFiles:
    """The handles with an open file; at most `capacity`, not counting pinned ones.

    While so many are pinned that a walk leaves more open, an eighth more may be opened before the next one: else each
    open would walk over all of them, milliseconds each, and a wide fetch opens thousands.
    """

    __slots__ = ("_patience", "_ring", "capacity", "disk")

    def __init__(self, disk: Disk, capacity: int = DEFAULT_CAPACITY) -> None:
        assert capacity > 0, "a file is open while it is used"
        self.disk = disk
        self.capacity = capacity
        self._patience = 0
        """How many may be open before the next walk, if the last one left more than `capacity`."""
        self._ring: OrderedDict[FileHandle, None] = OrderedDict()
        """Not a dict: to find the first key of one that lost many takes as many steps, 200 ms for 10,000 files."""

    def __len__(self) -> int:
        return len(self._ring)

    def add(self, handle: "FileHandle") -> None:
        """Add a handle that opened its file; close others if there are too many."""
        self._ring[handle] = None
        if len(self._ring) > max(self.capacity, self._patience):
            self._close_some(handle)
            is_above = len(self._ring) > self.capacity
            self._patience = len(self._ring) + self.capacity // 8 if is_above else 0

    def resize(self, capacity: int) -> None:
        """Change the maximum; files beyond a smaller one are closed when the next is opened."""
        assert capacity > 0
        self.capacity = capacity
        self._patience = 0

    def discard(self, handle: "FileHandle") -> None:
        self._ring.pop(handle, None)
        if len(self._ring) <= self.capacity:
            self._patience = 0

    def close_in(self, directory: str) -> None:
        """Close the files in a directory whose log could not be loaded, and which therefore have no owner."""
        for handle in [each for each in self._ring if each.path.startswith(f"{directory}/")]:
            handle.close()

    def _close_some(self, opened: "FileHandle") -> None:
        """Walk the ring and close files not pinned and not used since the last walk, down to `capacity`."""
        ring = self._ring
        for _ in range(2 * len(ring)):
            handle = next(iter(ring))
            if handle.is_referenced or handle.pins or handle is opened:
                handle.is_referenced = False
                ring.move_to_end(handle)
                continue
            handle.close()
            if len(ring) <= self.capacity:
                return


class FileHandle:
    """A file by its path, opened on use. Has one owner (a segment or an index); for the event loop's thread only.

    is_dirty: the next flush must sync the file: its owner has called `mark_written`. Of a .log file only truncations
    are recorded: offsets tell whether there are appends to sync.
    """

    __slots__ = ("_file", "_files", "_is_deleted", "is_dirty", "is_referenced", "path", "pins")

    def __init__(self, files: OpenFiles, path: str) -> None:
        self._files = files
        self._file: File | None = None
        self._is_deleted = False
        self.is_dirty = False
        self.is_referenced = False
        self.path = path
        self.pins: set[object] | frozenset[object] = NO_PINS
        """Who keeps the file open; a set from the first pin on, as most files of most partitions have none."""

    @property
    def file(self) -> File:
        """Return the open file, opening it if necessary. Raises OSError."""
        file = self._file
        if file is None:
            file = self._open(create=False)
        self.is_referenced = True
        return file

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def size(self) -> int:
        """Return the file's size, without opening it: a start asks for those of all logs. Raises OSError."""
        return self._files.disk.size(self.path) if self._file is None else self._file.size()

    def create(self) -> File:
        """Open the file, creating it if missing."""
        return self._open(create=True) if self._file is None else self.file

    def _open(self, *, create: bool) -> File:
        assert self._file is None, f"{self.path} is open"
        self._file = file = self._files.disk.open(self.path, create=create)
        self.is_referenced = True  # so that _close_some, called next, does not close it
        self._files.add(self)
        return file

    def mark_written(self) -> None:
        """Mark the file for the next flush: its content or size has changed."""
        self.is_dirty = True

    def mark_synced(self) -> None:
        """Record that a flush has begun to sync the file. If that fails, the caller calls `mark_written`."""
        self.is_dirty = False

    def pin(self, holder: object) -> None:
        """Keep the file open for `holder`, which calls `unpin` once."""
        pins = self.pins
        assert holder not in pins, f"{holder} pins {self.path} twice"
        if isinstance(pins, set):
            pins.add(holder)
        else:
            self.pins = {holder}

    def unpin(self, holder: object) -> None:
        pins = self.pins
        if isinstance(pins, set):
            pins.discard(holder)
        if self._is_deleted and not self.pins:
            self.close()

    def cut_regions(self, size: int) -> None:
        """Empty the regions that extend beyond `size`: their bytes are removed and may be overwritten."""
        assert size >= 0, f"{self.path} is cut at byte {size}"
        for holder in list(self.pins):
            if isinstance(holder, PinnedRegion) and holder.position + holder.length > size:
                holder.file = CutFile(self.path)
                holder.release()

    def rename(self, path: str) -> None:
        self._files.disk.rename(self.path, path)
        self.path = path

    def delete(self) -> None:
        """Unlink the file, if it exists; its bytes stay readable through pinned regions."""
        self._files.disk.delete(self.path)
        self.let_go()

    def let_go(self) -> None:
        """Close the file, which the caller unlinks, now or after its last pin is released."""
        self._is_deleted = True
        if not self.pins:
            self.close()

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        file, self._file = self._file, None
        if file is not None:
            self._files.discard(self)
            file.close()
