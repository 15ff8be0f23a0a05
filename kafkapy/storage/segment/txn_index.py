"""The index of aborted transactions, by which a read_committed consumer skips their records. KIP-98.

`.txnindex`, 34 bytes an entry, big-endian: int16 version 0, int64 producer id, int64 first offset of the transaction,
int64 offset of its abort marker, int64 last stable offset once that marker was in. In the order of the markers. The
file exists only where a transaction was aborted: an abort lies in the segment that holds its marker.

Aborts are few, so the entries are kept in memory once they were read.
"""

import struct
from typing import Final, NamedTuple

from kafkapy.errors import CorruptIndexError
from kafkapy.storage.segment.open_files import FileHandle, OpenFiles

ENTRY: Final = struct.Struct(">hqqqq")
VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """An aborted transaction: its records lie in [first_offset, last_offset), the marker at last_offset."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions whose markers are in one segment."""

    __slots__ = ("_entries", "_exists", "_files", "base_offset", "handle")

    def __init__(self, files: OpenFiles, path: str, base_offset: int, *, exists: bool) -> None:
        self._files = files
        self._exists = exists
        self._entries: list[AbortedTransaction] | None = None if exists else []
        self.handle = FileHandle(files, path)
        self.base_offset = base_offset

    @property
    def exists(self) -> bool:
        """Whether there is a file."""
        return self._exists

    @property
    def entries(self) -> list[AbortedTransaction]:
        """All entries. May block when first asked. Raises CorruptIndexError, OSError."""
        if self._entries is None:
            file = self.handle.file
            self._entries = decode_entries(file.pread(file.size(), 0), self.handle.path)
        return self._entries

    def check(self, end_offset: int | None = None) -> None:
        """Raise CorruptIndexError where an entry cannot be right. end_offset: where the next segment begins, if any.

        An entry behind that was cut off, but the cut was not durable when the machine stopped. Taken for good, it would
        hide what a producer of that id commits there later. A deviation from Apache Kafka, which does not look.
        """
        last_offset = self.base_offset - 1
        for entry in self.entries:
            if entry.last_offset <= last_offset:
                raise CorruptIndexError(f"{self.handle.path}: offset {entry.last_offset} follows {last_offset}")
            last_offset = entry.last_offset
        if end_offset is not None and last_offset >= end_offset:
            raise CorruptIndexError(f"{self.handle.path}: offset {last_offset} in a segment up to {end_offset}")

    def append(self, aborted: AbortedTransaction) -> None:
        """Add an entry; its marker must lie behind those of the others."""
        entries = self.entries
        assert not entries or aborted.last_offset > entries[-1].last_offset, "markers are appended in order"
        self.handle.create().pwrite((ENTRY.pack(VERSION, *aborted),), len(entries) * ENTRY.size)
        self._exists = True
        entries.append(aborted)

    def overlapping(self, start_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Return the aborts that touch [start_offset, end_offset), and whether later segments cannot hold more."""
        found = []
        for entry in self.entries:
            if entry.last_offset >= start_offset and entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Drop the entries whose marker is at or above `offset`."""
        kept = [entry for entry in self.entries if entry.last_offset < offset]
        if len(kept) < len(self.entries):
            self.handle.file.truncate(len(kept) * ENTRY.size)
            self._entries = kept

    def reset(self) -> None:
        """Forget all entries; the segment is about to be read again."""
        self._entries = []
        if self._exists:
            self.handle.file.truncate(0)


def decode_entries(data: bytes, path: str) -> list[AbortedTransaction]:
    """Read the bytes of an index. Raises CorruptIndexError where they are no whole entries of a known version."""
    if len(data) % ENTRY.size:
        raise CorruptIndexError(f"{path}: {len(data)} bytes are no whole number of entries")
    entries = []
    for version, *fields in ENTRY.iter_unpack(data):
        if version != VERSION:
            raise CorruptIndexError(f"{path}: an entry of version {version}")
        entries.append(AbortedTransaction(*fields))
    return entries
