"""Base class of the offset index and the time index: fixed-size entries, written and searched in place.

A file grows with its entries, up to segment.index.bytes rounded down to whole entries; its size gives its entry count,
but for zeros that a truncation leaves after the entries until the segment rolls or closes. A log without records never
touches its indexes, so neither its start nor its stop has anything to write or sync.

The files are not memory-mapped. With mmap, a file has to have its full size from the start, a write to a sparse file on
a full disk raises SIGBUS, and access to an uncached page blocks the event loop unnoticed, while pread_nowait reports
it. A lookup costs a few preads of 0.9 us; most reads need no lookup (reader.py caches the positions of recent appends
and reads).

The last few entries are buffered and written together: a write of 8 bytes costs as much as one of 250, and each batch
of 16 KiB would need two. Lookups include the buffered entries; a flush writes them, and so does `trim`, which precedes
everything that relies on the file alone (a roll, a clean stop). Only the active segment's index has buffered entries,
and an unclean start always rebuilds that one (recovery/loader.py). Deviation: Apache Kafka preallocates the active
segment's files to segment.index.bytes, and has all entries in them. Here they lack the last few while the broker runs,
which dump-log then does not print, because of these writes.
"""

from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

from kafkapy.errors import CorruptIndexError
from kafkapy.seams import ReadableBuffer
from kafkapy.storage.errors import NeedsWarming
from kafkapy.storage.segment.open_files import FileHandle, OpenFiles
from kafkapy.types import INT32_MAX

PAGE_BYTES: Final = 4096
"""One of the kernel's cache: a search touches few of them, as each may be cold."""

BUFFERED_ENTRIES: Final = 32
"""How many entries are buffered before they are written together: 0.6 KB of memory per partition for both indexes."""

UnpackKey: TypeAlias = Callable[[bytes, int], tuple[Any, ...]]
"""Takes encoded entries and the position of one; returns its key alone. A method of a Struct: a search in a page takes
0.76 us with it, 1.15 with a function of Python (3.14), which is called ten times."""

_NO_ENTRIES: Final = (0, b"")


class SparseIndex:
    """Entries in ascending order in a file; `entry_count` of them are valid."""

    __slots__ = ("_buffered", "_entry_count", "_may_exceed_entries", "_page", "base_offset", "handle", "max_entries")

    ENTRY_BYTES: int = 8

    def __init__(self, files: OpenFiles, path: str, base_offset: int) -> None:
        self.handle = FileHandle(files, path)
        self.base_offset = base_offset
        self.max_entries = 0
        self._entry_count = -1
        self._may_exceed_entries = False
        """Whether the file may hold more than its entries; `trim` then truncates it."""
        self._buffered = _NO_ENTRIES
        """(slot of the first buffered entry, the buffered entries). Replaced as one tuple, as workers look up, too."""
        self._page = INT32_MAX

    @property
    def entry_count(self) -> int:
        """The number of entries; derived from the file's size at first use. Raises CorruptIndexError, OSError."""
        if self._entry_count < 0:
            self._load()
        return self._entry_count

    @property
    def size_bytes(self) -> int:
        return self.entry_count * self.ENTRY_BYTES

    @property
    def is_full(self) -> bool:
        return self.entry_count >= self.max_entries

    def reset(self, max_bytes: int) -> None:
        """Remove all entries. The file is created if missing; there is room for so many bytes of new ones."""
        self._entry_count = 0
        self._buffered = _NO_ENTRIES
        self._forget_last()
        file = self.handle.create()
        if file.size():
            file.truncate(0)
            self.handle.mark_written()
        self._may_exceed_entries = False
        assert max_bytes >= 0, f"{max_bytes} bytes of {self.handle.path}"
        self.max_entries = max_bytes // self.ENTRY_BYTES

    def resize(self, max_bytes: int) -> None:
        """Set how many entries fit, keeping those there are. The file grows as they are written."""
        assert max_bytes >= 0, f"{max_bytes} bytes of {self.handle.path}"
        count = self.entry_count
        self.max_entries = max(max_bytes // self.ENTRY_BYTES, count)

    def trim(self) -> None:
        """End appends: write the buffered entries, and leave nothing after them in the file."""
        self.max_entries = self.entry_count
        self.write_buffered()
        if self._may_exceed_entries:
            self.handle.file.truncate(self.size_bytes)
            self.handle.mark_written()
            self._may_exceed_entries = False

    def truncate_to_entries(self, entry_count: int) -> None:
        """Remove the entries from `entry_count` on; the file then holds zeros in their place."""
        assert entry_count >= 0, f"{self.handle.path} cut to {entry_count} entries"
        if entry_count >= self.entry_count:
            return
        first_slot, entries = self._buffered
        if not entries or entry_count < first_slot:
            file = self.handle.file
            size = file.size()
            self._may_exceed_entries = True  # a worker that counted the entries before finds zeros, not the file's end
            file.truncate(entry_count * self.ENTRY_BYTES)
            file.truncate(size)
            self.handle.mark_written()
        self._entry_count = entry_count  # first: a lookup on a worker must find every entry it counts
        self._buffered = (first_slot, entries[: max(entry_count - first_slot, 0) * self.ENTRY_BYTES])
        self._forget_last()

    def read_all(self) -> bytes:
        """Return the bytes of all entries. May block."""
        return self._read(0, self.entry_count, wait=True)

    def _load(self) -> None:
        """Derive the count from the file's size. Raises CorruptIndexError if that is not a multiple of ENTRY_BYTES."""
        size = self.handle.size()
        if size % self.ENTRY_BYTES:
            raise CorruptIndexError(f"{self.handle.path}: {size} bytes are no whole number of entries")
        self._entry_count = self.max_entries = size // self.ENTRY_BYTES
        self._forget_last()

    def _forget_last(self) -> None:
        """Clear the cached last entry."""
        raise NotImplementedError

    def _add_entry(self, entry: bytes) -> None:
        """Add an entry to the buffer. Raises OSError if a full buffer cannot be written; then it was not added."""
        before = slot, buffered = self._buffered
        if not buffered:
            slot = self._entry_count
        entries = buffered + entry
        buffered_count = len(entries) // self.ENTRY_BYTES
        count = self._entry_count + 1
        assert slot + buffered_count == count, f"buffered entries from {slot} do not end at {count}"
        self._buffered = (slot, entries)
        self._entry_count = count
        if buffered_count >= BUFFERED_ENTRIES:
            try:
                self.write_buffered()
            except OSError:
                self._entry_count -= 1
                self._buffered = before
                raise

    def write_buffered(self) -> None:
        """Write the buffered entries. Raises OSError; they then stay buffered."""
        slot, entries = self._buffered
        if entries:
            self._write(entries, slot)
            self._buffered = _NO_ENTRIES

    def _write(self, entries: ReadableBuffer, slot: int) -> None:
        assert slot >= 0, f"slot {slot} of {self.handle.path}"
        self.handle.mark_written()
        try:
            self.handle.file.pwrite((entries,), slot * self.ENTRY_BYTES)
        except OSError:
            self._may_exceed_entries = True  # part of them may have been written
            raise

    def append_entries(self, entries: bytes | bytearray) -> None:
        """Add encoded entries, which must follow the last one; those that do not fit are dropped. Raises OSError."""
        width = self.ENTRY_BYTES
        assert len(entries) % width == 0, f"{len(entries)} bytes are no whole number of entries"
        count = min(len(entries) // width, self.room)
        if count <= 0:
            return
        self.write_buffered()
        self._write(memoryview(entries)[: count * width], self.entry_count)
        self._entry_count += count
        self._forget_last()

    @property
    def room(self) -> int:
        """The number of entries that can still be added."""
        return self.max_entries - self.entry_count

    def read_entry(self, slot: int, *, wait: bool) -> bytes:
        assert 0 <= slot < self.entry_count, f"slot {slot} of {self.entry_count} in {self.handle.path}"
        return self._read(slot, 1, wait=wait)

    def _read(self, slot: int, count: int, *, wait: bool) -> bytes:
        """Return encoded entries. Raises NeedsWarming unless `wait`; CorruptIndexError if the file is too short."""
        assert slot >= 0, f"slot {slot} of {self.handle.path}"
        width = self.ENTRY_BYTES
        first_slot, entries = self._buffered
        in_file = min(count, first_slot - slot) if entries else count
        if in_file <= 0:
            return entries[(slot - first_slot) * width : (slot - first_slot + count) * width]
        data = self._read_file(slot, in_file, wait=wait)
        return data + entries[: (count - in_file) * width] if in_file < count else data

    def _read_file(self, slot: int, count: int, *, wait: bool) -> bytes:
        width = self.ENTRY_BYTES
        file = self.handle.file
        if wait:
            data: bytes | None = file.pread(count * width, slot * width)
        else:
            data = file.pread_nowait(count * width, slot * width)
        if data is None:
            raise NeedsWarming(file, slot * width, count * width)
        if len(data) < count * width:
            raise CorruptIndexError(f"{self.handle.path}: shorter than its {self.entry_count} entries")
        return data

    def floor_entry(self, target: int, unpack_key: UnpackKey, *, wait: bool) -> tuple[int, bytes]:
        """Return the last slot whose key is at most `target`, and its entry; (-1, b"") if there is none.

        A binary search over pages, then within a page. It begins at the page found by the previous search (the last
        page at first), because logs are mostly read sequentially or at their end.
        """
        count = self.entry_count
        if count == 0:
            return -1, b""
        wanted, width = (target,), self.ENTRY_BYTES
        per_page = PAGE_BYTES // width
        low, high = 0, (count - 1) // per_page
        page = min(self._page, high)
        while True:
            first = page * per_page
            in_page = min(per_page, count - first)
            data = self._read(first, in_page, wait=wait)
            if unpack_key(data, 0) > wanted:
                if page == low:
                    return -1, b""
                high = page - 1
            elif page == high or unpack_key(data, (in_page - 1) * width) > wanted:
                break
            else:
                low = page
            page = high if high == low else (low + high + 1) // 2  # rounded up, as `low` is known to begin low enough
        self._page = page
        slots = range(0, in_page * width, width)
        slot = bisect_right(slots, wanted, key=partial(unpack_key, data)) - 1
        return first + slot, data[slot * width : (slot + 1) * width]
