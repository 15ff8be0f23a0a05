"""The index of aborted transactions, with which a read_committed consumer skips their records. KIP-98.

`.txnindex`, 34 bytes per entry, big-endian: int16 version 0, int64 producer id, int64 first offset of the transaction,
int64 offset of its abort marker, int64 last stable offset after that marker. Entries are in the order of the markers.
An entry is in the segment that holds the abort marker; the file is created with its first entry.

Entries stay on disk; memory holds three numbers for each block of BLOCK_ENTRIES. A lookup bisects these numbers and
reads only the blocks that may match. So clients that abort much cost little memory and read time.
"""

import struct
from array import array
from bisect import bisect_left
from contextlib import suppress
from operator import le
from typing import Final

from kafkapy.errors import CorruptIndexError
from kafkapy.named_tuple import NamedTuple
from kafkapy.storage.errors import NeedsWarming
from kafkapy.storage.segment.open_files import FileHandle, OpenFiles

ENTRY: Final = struct.Struct(">hqqqq")
VERSION: Final = 0
BLOCK_ENTRIES: Final = 256
"""8.5 KiB in the file, 24 bytes in memory; read and searched in 8 us, decoded in 20 us more."""
_LAST_OFFSET: Final = struct.Struct(">18xq")
_BLOCK: Final = struct.Struct(">" + "hqqqq" * BLOCK_ENTRIES)
_FIELDS: Final = 5
_VERSIONS, _FIRST_OFFSETS, _LAST_OFFSETS, _STABLE_OFFSETS = (slice(field, None, _FIELDS) for field in (0, 2, 3, 4))


class AbortedTransaction(NamedTuple):
    """An aborted transaction: its records are in [first_offset, last_offset), the marker is at last_offset."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class _Blocks:
    """A summary of each block of entries, from which a lookup finds the blocks to read.

    first_offsets: the smallest in the block; last_offsets: the largest, that of its last entry; stable_offsets: the
    largest last stable offset in this block and all before it. The last two never decrease.
    """

    __slots__ = ("entry_count", "first_offsets", "last_offsets", "stable_offsets")

    def __init__(self) -> None:
        self.entry_count = 0
        self.first_offsets = array("q")
        self.last_offsets = array("q")
        self.stable_offsets = array("q")

    def add(self, first_offset: int, last_offset: int, last_stable_offset: int, entry_count: int = 1) -> None:
        """Append entries of one block, given by the smallest first offset and the largest of the other offsets."""
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
        """Append the decoded entries of a whole or partial block."""
        first_offset, stable_offset = min(values[_FIRST_OFFSETS]), max(values[_STABLE_OFFSETS])
        self.add(first_offset, values[_LAST_OFFSETS][-1], stable_offset, len(values) // _FIELDS)

    def cut(self, block_count: int) -> None:
        """Keep only the first block_count blocks, which are full."""
        assert block_count * BLOCK_ENTRIES <= self.entry_count, f"{block_count} blocks of {self.entry_count} entries"
        del self.first_offsets[block_count:], self.last_offsets[block_count:], self.stable_offsets[block_count:]
        self.entry_count = block_count * BLOCK_ENTRIES

    def entries_in(self, number: int) -> int:
        assert 0 <= number * BLOCK_ENTRIES < self.entry_count, f"block {number} of {self.entry_count} entries"
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
        """Whether the file exists."""
        return self._exists

    def check(self, end_offset: int | None = None) -> None:
        """Raise CorruptIndexError for an invalid entry. Blocks. end_offset: the segment's, None for the last segment.

        An entry at or above end_offset was truncated before a crash, but not durably. Keeping it would hide records
        that the same producer id commits there later. Deviation: Apache Kafka does not check this. Here the index is
        made again, because of that.
        """
        self._blocks = None
        last_offsets = self._loaded().last_offsets
        if end_offset is not None and last_offsets and last_offsets[-1] >= end_offset:
            raise CorruptIndexError(f"{self.handle.path}: offset {last_offsets[-1]} in a segment up to {end_offset}")

    def append(self, *aborted: AbortedTransaction) -> None:
        """Add entries, all or none; their markers must be above those of all other entries.

        Raises CorruptIndexError, OSError.
        """
        blocks = self._loaded()
        last_offset = blocks.last_offsets[-1] if blocks.entry_count else self.base_offset - 1
        for each in aborted:
            assert each.first_offset < each.last_offset, f"{each} ends before it begins"
            assert each.last_offset > last_offset, f"{each} after {last_offset}: markers are appended in order"
            last_offset = each.last_offset
        self._write(b"".join([ENTRY.pack(VERSION, *each) for each in aborted]), blocks.entry_count * ENTRY.size)
        for each in aborted:
            blocks.add(each.first_offset, each.last_offset, each.last_stable_offset)

    def _write(self, data: bytes, position: int) -> None:
        """Write at the end of the file, or leave it as it was. Raises OSError."""
        self.handle.mark_written()
        file = self.handle.create()
        self._exists = True
        try:
            file.pwrite((data,), position)
        except OSError:
            with suppress(OSError):  # else a load finds a partial entry, and the index is made again
                file.truncate(position)
            raise

    def overlapping(
        self, start_offset: int, end_offset: int, *, wait: bool = False, max_count: int | None = None
    ) -> tuple[list[AbortedTransaction], bool]:
        """Return the aborted transactions that overlap [start_offset, end_offset), and whether that is all of them.

        It is all if an entry's last stable offset is at or above end_offset: then every transaction that began below
        has ended, and later segments need not be searched. max_count: return at most the first this many, at least 1.
        Raises NeedsWarming unless `wait`; CorruptIndexError, OSError.
        """
        assert max_count is None or max_count > 0, f"at most {max_count} transactions"
        if not self._exists:
            return [], False
        blocks = self._loaded()
        # the first block with an entry whose last stable offset reaches end_offset: no later transaction began below it
        final = bisect_left(blocks.stable_offsets, end_offset)
        found: list[AbortedTransaction] = []
        for number in range(bisect_left(blocks.last_offsets, start_offset), min(final + 1, len(blocks.last_offsets))):
            if blocks.first_offsets[number] >= end_offset:
                continue
            data = self._read_block(number, wait=wait)
            for position in range(_first_position(data, start_offset), len(data), ENTRY.size):
                version, *fields = ENTRY.unpack_from(data, position)
                if version != VERSION:
                    raise CorruptIndexError(f"{self.handle.path}: an entry of version {version}")
                entry = AbortedTransaction(*fields)
                if entry.first_offset < end_offset:
                    found.append(entry)
                    if len(found) == max_count:
                        return found, False
                if entry.last_stable_offset >= end_offset:
                    break
        return found, final < len(blocks.stable_offsets)

    def truncate_to(self, offset: int) -> None:
        """Remove the entries whose marker is at or above `offset`. Blocks shortly."""
        if not self._exists:
            return
        blocks = self._loaded()
        number = bisect_left(blocks.last_offsets, offset)
        if number == len(blocks.last_offsets):
            return
        values = _decode(self._read_block(number, wait=True), self.handle.path)
        kept = values[: _FIELDS * bisect_left(values[_LAST_OFFSETS], offset)]
        self.handle.mark_written()
        self.handle.file.truncate((number * BLOCK_ENTRIES + len(kept) // _FIELDS) * ENTRY.size)
        blocks.cut(number)
        if kept:
            blocks.add_block(kept)

    def reset(self) -> None:
        """Remove all entries, before recovery reads the segment again."""
        self._blocks = _Blocks()
        if self._exists:
            self.handle.mark_written()
            self.handle.file.truncate(0)

    def _loaded(self) -> _Blocks:
        """Return the block summaries, loaded at first use. Raises CorruptIndexError, OSError."""
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

    def _read_block(self, number: int, *, wait: bool) -> bytes:
        """Return the bytes of a block. Raises NeedsWarming unless `wait`; CorruptIndexError, OSError."""
        assert self._blocks is not None
        position = number * _BLOCK.size
        length = self._blocks.entries_in(number) * ENTRY.size
        file = self.handle.file
        data = file.pread(length, position) if wait else file.pread_nowait(length, position)
        if data is None:
            raise NeedsWarming(file, position, length)
        if len(data) < length:
            raise CorruptIndexError(f"{self.handle.path}: shorter than its {self._blocks.entry_count} entries")
        return data


def _first_position(data: bytes, start_offset: int) -> int:
    """Return the position of the first entry of a block whose marker is at or above start_offset.

    Only a few entries are decoded: all 256 would take longer than the rest of a read.
    """

    def last_offset(slot: int) -> int:
        found: int = _LAST_OFFSET.unpack_from(data, slot * ENTRY.size)[0]
        return found

    return bisect_left(range(len(data) // ENTRY.size), start_offset, key=last_offset) * ENTRY.size


def decode_entries(data: bytes, path: str) -> list[AbortedTransaction]:
    """Decode the bytes of an index. Raises CorruptIndexError for a partial entry or an unknown version."""
    entries = []
    for position in range(0, len(data), _BLOCK.size):
        values = _decode(data[position : position + _BLOCK.size], path)
        entries += [AbortedTransaction(*values[slot + 1 : slot + _FIELDS]) for slot in range(0, len(values), _FIELDS)]
    return entries


def _decode(data: bytes, path: str) -> tuple[int, ...]:
    """Return the fields of a block's entries as a flat tuple. Raises CorruptIndexError."""
    count, rest = divmod(len(data), ENTRY.size)
    if rest:
        raise CorruptIndexError(f"{path}: {len(data)} bytes are no whole number of entries")
    values = _BLOCK.unpack(data.ljust(_BLOCK.size, b"\0"))[: count * _FIELDS]
    if any(values[_VERSIONS]):
        raise CorruptIndexError(f"{path}: an entry of version {next(filter(None, values[_VERSIONS]))}")
    return values
