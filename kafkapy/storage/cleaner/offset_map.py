"""The last offset of each key, as Kafka's SkimpyOffsetMap: a hash of 16 bytes and an offset of 8 in one buffer.

An open hash table in one preallocated buffer, which bounds what a pass of the cleaner takes: 24 bytes an entry, however
long the key is. Where the dirty records cannot fill the buffer, the table is made twice as large as they need, so that
few keys meet an entry of another; a full one, as Kafka's at its load factor of 0.9, has five looked at for each key.

The hash is CPython's own (SipHash, 64 bits, seeded for each process) of the key and of the key behind another byte: 128
bits, as the MD5 that Kafka takes, for an eighth of its time. Two keys that have all of them in common would be one; it
is as unlikely as there, and nobody can make such keys on purpose without knowing the process's seed.

Measured on CPython 3.11 with 240,000 keys: put takes 0.4 us. A dict would be faster and cost some six times the memory
a key, that is, six passes over a log where this takes one. Repeated keys do not come here at all: `OffsetIndexer`
collects them first, `CachedOffsets` remembers what it was told.
"""

import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

assert sys.hash_info.algorithm.startswith("siphash"), "a weaker hash could take two keys for one"
assert sys.hash_info.width == 64, "two halves of 64 bits are the hash"

ENTRY_FIELDS: Final = 3
"""Both halves of the hash, and the offset."""
ENTRY_BYTES: Final = 8 * ENTRY_FIELDS
MAX_BUFFER_BYTES: Final = 0x7FFFFFFF
"""Kafka's bound for one cleaner's buffer."""
SLOTS_PER_KEY: Final = 2
SLICE_ENTRIES: Final = 65536
MAX_WAITING_KEYS: Final = 32768
"""Keys collected before they go into the table: some MiB, and enough for the repetitions of a few chunks."""
_SECOND: Final = b"\1"


class OffsetMap:
    """From a key's hash to the key's last offset.

    Offsets are stored as one more than they are: an empty entry is all zeros, and one always is.
    """

    __slots__ = ("_slot_count", "_table", "buffer_entries", "entry_count", "latest_offset", "max_entries")

    def __init__(self, buffer_bytes: int, *, load_factor: float, needed_entries: int | None = None) -> None:
        """needed_entries: the keys that there can be at most; a larger table would not be used."""
        self.buffer_entries = max(min(buffer_bytes, MAX_BUFFER_BYTES) // ENTRY_BYTES, 2)
        self._slot_count = self.buffer_entries
        if needed_entries is not None:
            enough = max(SLOTS_PER_KEY * needed_entries, int(needed_entries / load_factor)) + 2
            self._slot_count = min(self._slot_count, enough)
        self._table = array("q", [0]) * (ENTRY_FIELDS * self._slot_count)
        self.max_entries = min(max(int(self._slot_count * load_factor), 1), self._slot_count - 1)
        self.entry_count = 0
        self.latest_offset = -1
        """Up to here the log's records are in the map."""

    @property
    def utilization(self) -> float:
        """How much of the whole buffer is in use, whether or not it was needed."""
        return self.entry_count / self.buffer_entries

    def put(self, key: bytes, offset: int) -> None:
        """Note a key's offset. A key that is new needs room: entry_count < max_entries."""
        self.put_all({key: offset})

    def put_all(self, offsets: Mapping[bytes, int]) -> None:
        """Note many, as `put` does; there must be room for all of them. One loop: a call a key costs a third more."""
        table, slot_count = self._table, self._slot_count
        end = len(table)
        new_entries = 0
        for key, offset in offsets.items():
            first, second = hash(key), hash(_SECOND + key)
            at = first % slot_count * 3
            while table[at + 2]:
                if table[at] == first and table[at + 1] == second:
                    break
                at += 3
                if at == end:
                    at = 0
            else:
                table[at] = first
                table[at + 1] = second
                new_entries += 1
            table[at + 2] = offset + 1
        self.entry_count += new_entries
        assert self.entry_count <= self.max_entries, "keys for a full offset map"

    def get(self, key: bytes) -> int:
        """Return a key's last offset, -1 for a key that is not there."""
        table = self._table
        first, second = hash(key), hash(_SECOND + key)
        at = first % self._slot_count * 3
        while table[at + 2] and (table[at] != first or table[at + 1] != second):
            at = (at + 3) % len(table)
        return table[at + 2] - 1

    def offsets(self) -> Iterator[list[int]]:
        """Yield the offsets of all keys, in no order, some thousands at a time."""
        step = SLICE_ENTRIES * ENTRY_FIELDS
        for start in range(0, len(self._table), step):
            yield [used - 1 for used in self._table[start + 2 : start + step : ENTRY_FIELDS] if used]


class OffsetIndexer:
    """Fills an OffsetMap by whole batches. Keys are collected until they are worth hashing: repetitions cost little."""

    __slots__ = ("_map", "_waiting")

    def __init__(self, offset_map: OffsetMap) -> None:
        self._map = offset_map
        self._waiting: dict[bytes, int] = {}

    def add(self, keys: list[bytes], offsets: Iterable[int]) -> bool:
        """Note the offsets of keys, rising; return whether the map is full, with latest_offset at the last that fit."""
        waiting = self._waiting
        if self._map.entry_count + len(waiting) + len(keys) > self._map.max_entries:
            self.flush()
            if self._map.entry_count + len(keys) > self._map.max_entries:
                return self._add_one_by_one(keys, offsets)
        waiting.update(zip(keys, offsets, strict=True))
        if len(waiting) >= MAX_WAITING_KEYS:
            self.flush()
        return False

    def _add_one_by_one(self, keys: list[bytes], offsets: Iterable[int]) -> bool:
        for key, offset in zip(keys, offsets, strict=True):
            if self._map.entry_count >= self._map.max_entries:
                return True
            self._map.put(key, offset)
            self._map.latest_offset = offset
        return False

    def flush(self) -> None:
        """Bring the map up to date."""
        self._map.put_all(self._waiting)
        self._waiting.clear()


class CachedOffsets(dict[bytes, int]):
    """What an OffsetMap said of recent keys: `cached[key]`, -1 where the key is not there. `trim` bounds it."""

    __slots__ = ("_map",)

    def __init__(self, offset_map: OffsetMap) -> None:
        super().__init__()
        self._map = offset_map

    def __missing__(self, key: bytes) -> int:
        offset = self[key] = self._map.get(key)
        return offset

    def trim(self) -> None:
        """Forget all where there is too much."""
        if len(self) > MAX_WAITING_KEYS:
            self.clear()
