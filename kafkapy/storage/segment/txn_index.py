"""The index of aborted transactions, by which a read_committed consumer skips their records. KIP-98.

`.txnindex`, 34 bytes an entry, big-endian: int16 version 0, int64 producer id, int64 first offset of the transaction,
int64 offset of its abort marker, int64 last stable offset once that marker was in. In the order of the markers. The
file exists only if a transaction was aborted: an abort lies in the segment that holds its marker.

Entries stay on disk: memory holds three numbers for each BLOCK_ENTRIES of them. A lookup bisects these, and reads the
blocks that may hold what it looks for. So neither memory nor a read's time grows with what clients abort.
"""

import struct
from array import array
from bisect import bisect_left
from operator import le
from typing import Final, NamedTuple

from kafkapy.errors import CorruptIndexError
from kafkapy.storage.errors import NeedsWarming
from kafkapy.storage.segment.open_files import FileHandle, OpenFiles

ENTRY: Final = struct.Struct(">hqqqq")
VERSION: Final = 0
BLOCK_ENTRIES: Final = 256
"""8.5 KiB in the file, 24 bytes in memory; read and decoded in 20 us."""
_BLOCK: Final = struct.Struct(">" + "hqqqq" * BLOCK_ENTRIES)
_FIELDS: Final = 5
_VERSIONS, _FIRST_OFFSETS, _LAST_OFFSETS, _STABLE_OFFSETS = (slice(field, None, _FIELDS) for field in (0, 2, 3, 4))


class AbortedTransaction(NamedTuple):
    """An aborted transaction: its records lie in [first_offset, last_offset), the marker at last_offset."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class _Blocks:
    """What is known of each block of entries: enough to tell which ones a lookup has to read.

    first_offsets: the smallest in the block; last_offsets: the largest, that of its last entry; stable_offsets: the
    largest last stable offset in this block and all before it. The last two never fall.
    """

    __slots__ = ("entry_count", "first_offsets", "last_offsets", "stable_offsets")

    def __init__(self) -> None:
        self.entry_count = 0
        self.first_offsets = array("q")
        self.last_offsets = array("q")
        self.stable_offsets = array("q")

    def add(self, first_offset: int, last_offset: int, last_stable_offset: int, entry_count: int = 1) -> None:
        """Add entries that follow the others, all of them in one block: the extremes of their offsets."""
        stable_offset = max(last_stable_offset, self.stable_offsets[-1] if self.entry_count else -1)
        if self.entry_count % BLOCK_ENTRIES == 0:
            self.first_offsets.append(first_offset)
            self.last_offsets.append(last_offset)
            self.stable_offsets.append(stable_offset)
        else:
            self.first_offsets[-1] = min(self.first_offsets[-1], first_offset)
            self.last_offsets[-1] = last_offset
            self.stable_offsets[-1] = stable_offset
        self.entry_count += entry_count
        assert self.entry_count <= len(self.last_offsets) * BLOCK_ENTRIES, "entries of one block at a time"

    def add_block(self, values: tuple[int, ...]) -> None:
        """Add the decoded entries of a block, or of the part of it that there is."""
        first_offset, stable_offset = min(values[_FIRST_OFFSETS]), max(values[_STABLE_OFFSETS])
        self.add(first_offset, values[_LAST_OFFSETS][-1], stable_offset, len(values) // _FIELDS)

    def cut(self, block_count: int) -> None:
        """Forget all but the first blocks, which are full."""
        del self.first_offsets[block_count:], self.last_offsets[block_count:], self.stable_offsets[block_count:]
        self.entry_count = block_count * BLOCK_ENTRIES

    def entries_in(self, number: int) -> int:
        return min(BLOCK_ENTRIES, self.entry_count - number * BLOCK_ENTRIES)


class TransactionIndex:
    """The aborted transactions whose markers are in one segment."""

    __slots__ = ("_blocks", "_exists", "base_offset", "handle")

    def __init__(self, files: OpenFiles, path: str, base_offset: int, *, exists: bool) -> None:
        self._exists = exists
        self._blocks: _Blocks | None = None
        """None until the index is first used."""
        self.handle = FileHandle(files, path)
        self.base_offset = base_offset

    @property
    def exists(self) -> bool:
        """Whether there is a file."""
        return self._exists

    def check(self, end_offset: int | None = None) -> None:
        """Raise CorruptIndexError if an entry cannot be right. Blocks. end_offset: of the segment, if another follows.

        An entry behind that was cut off, but the cut was not durable when the machine stopped. Taken for good, it would
        hide what a producer of that id commits there later. A deviation from Apache Kafka, which does not look.
        """
        self._blocks = None
        last_offsets = self._loaded().last_offsets
        if end_offset is not None and last_offsets and last_offsets[-1] >= end_offset:
            raise CorruptIndexError(f"{self.handle.path}: offset {last_offsets[-1]} in a segment up to {end_offset}")

    def append(self, aborted: AbortedTransaction) -> None:
        """Add an entry; its marker must lie behind those of the others."""
        blocks = self._loaded()
        assert not blocks.entry_count or aborted.last_offset > blocks.last_offsets[-1], "markers are appended in order"
        self.handle.create().pwrite((ENTRY.pack(VERSION, *aborted),), blocks.entry_count * ENTRY.size)
        self._exists = True
        blocks.add(aborted.first_offset, aborted.last_offset, aborted.last_stable_offset)

    def overlapping(
        self, start_offset: int, end_offset: int, *, wait: bool = False, max_count: int | None = None
    ) -> tuple[list[AbortedTransaction], bool]:
        """Return the aborts that touch [start_offset, end_offset), and whether later segments cannot hold more.

        max_count: return the first of them only, at least one.
        They cannot once an entry's last stable offset is at or above end_offset: all transactions that began below it
        were decided by then. Raises NeedsWarming unless `wait`; CorruptIndexError, OSError.
        """
        if not self._exists:
            return [], False
        blocks = self._loaded()
        final = bisect_left(blocks.stable_offsets, end_offset)
        found: list[AbortedTransaction] = []
        for number in range(bisect_left(blocks.last_offsets, start_offset), min(final + 1, len(blocks.last_offsets))):
            if blocks.first_offsets[number] >= end_offset:
                continue
            values = self._read_block(number, wait=wait)
            for slot in range(_FIELDS * bisect_left(values[_LAST_OFFSETS], start_offset), len(values), _FIELDS):
                entry = AbortedTransaction(*values[slot + 1 : slot + _FIELDS])
                if entry.first_offset < end_offset:
                    found.append(entry)
                    if len(found) == max_count:
                        return found, False
                if entry.last_stable_offset >= end_offset:
                    break
        return found, final < len(blocks.stable_offsets)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries whose marker is at or above `offset`. Blocks shortly."""
        if not self._exists:
            return
        blocks = self._loaded()
        number = bisect_left(blocks.last_offsets, offset)
        if number == len(blocks.last_offsets):
            return
        values = self._read_block(number, wait=True)
        kept = values[: _FIELDS * bisect_left(values[_LAST_OFFSETS], offset)]
        self.handle.file.truncate((number * BLOCK_ENTRIES + len(kept) // _FIELDS) * ENTRY.size)
        blocks.cut(number)
        if kept:
            blocks.add_block(kept)

    def reset(self) -> None:
        """Forget all entries; the segment is about to be read again."""
        self._blocks = _Blocks()
        if self._exists:
            self.handle.file.truncate(0)

    def _loaded(self) -> _Blocks:
        """Return what is known of the blocks, read from the file the first time. Raises CorruptIndexError, OSError."""
        if self._blocks is None:
            self._blocks = self._load() if self._exists else _Blocks()
        return self._blocks

    def _load(self) -> _Blocks:
        blocks = _Blocks()
        file = self.handle.file
        size = file.size()
        last_offset = self.base_offset - 1
        for position in range(0, size, _BLOCK.size):
            values = _decode(file.pread(_BLOCK.size, position), self.handle.path)
            offsets = (last_offset, *values[_LAST_OFFSETS])
            if any(map(le, offsets[1:], offsets)):
                raise CorruptIndexError(f"{self.handle.path}: markers that do not follow {last_offset} in order")
            blocks.add_block(values)
            last_offset = offsets[-1]
        return blocks

    def _read_block(self, number: int, *, wait: bool) -> tuple[int, ...]:
        """Return the decoded entries of a block. Raises NeedsWarming unless `wait`; CorruptIndexError, OSError."""
        assert self._blocks is not None
        position = number * _BLOCK.size
        length = self._blocks.entries_in(number) * ENTRY.size
        file = self.handle.file
        data = file.pread(length, position) if wait else file.pread_nowait(length, position)
        if data is None:
            raise NeedsWarming(file, position, length)
        if len(data) < length:
            raise CorruptIndexError(f"{self.handle.path}: shorter than its {self._blocks.entry_count} entries")
        return _decode(data, self.handle.path)


def decode_entries(data: bytes, path: str) -> list[AbortedTransaction]:
    """Read the bytes of an index. Raises CorruptIndexError where they are no whole entries of a known version."""
    entries = []
    for position in range(0, len(data), _BLOCK.size):
        values = _decode(data[position : position + _BLOCK.size], path)
        entries += [AbortedTransaction(*values[slot + 1 : slot + _FIELDS]) for slot in range(0, len(values), _FIELDS)]
    return entries


def _decode(data: bytes, path: str) -> tuple[int, ...]:
    """Return the fields of a block's entries, one after the other. Raises CorruptIndexError."""
    count, rest = divmod(len(data), ENTRY.size)
    if rest:
        raise CorruptIndexError(f"{path}: {len(data)} bytes are no whole number of entries")
    values = _BLOCK.unpack(data.ljust(_BLOCK.size, b"\0"))[: count * _FIELDS]
    if any(values[_VERSIONS]):
        raise CorruptIndexError(f"{path}: an entry of version {next(filter(None, values[_VERSIONS]))}")
    return values
