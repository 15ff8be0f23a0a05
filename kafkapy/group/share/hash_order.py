"""The order in which Java's hash maps iterate, on which Apache Kafka's assignment of share partitions depends.

A HashMap puts a key into the bucket `hash & (capacity - 1)`, and iterates bucket by bucket. Within a bucket a key that
was put comes last, one that computeIfAbsent added comes first. The capacity doubles when the map is filled by three
quarters, and keys of a bucket keep their order then. Buckets with more than eight keys, which Java turns into trees,
are not modelled: the hashes of topic ids are random.

    HashOrder(int, keys=[17, 3])    iterates over 17, 3: buckets 1 and 3 of 16
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, TypeVar

from kafkapy.types import Uuid

DEFAULT_CAPACITY: Final = 16
KeyT = TypeVar("KeyT")


class HashOrder(Generic[KeyT]):
    """The keys of a HashMap or HashSet."""

    def __init__(
        self, hash_of: Callable[[KeyT], int], *, keys: Iterable[KeyT] = (), capacity: int = DEFAULT_CAPACITY
    ) -> None:
        """`hash_of(key)` is Java's hashCode, as an unsigned int32; `capacity` is a power of two."""
        self._hash_of = hash_of
        self._capacity = capacity
        self._ranks: dict[KeyT, int] = {}
        """By key: its rank among the keys of its bucket."""
        self._first = 0
        self._last = 0
        for key in keys:
            self.put(key)

    def put(self, key: KeyT) -> None:
        """Add a key as put() and add() do; a key that is there stays where it is."""
        if key in self._ranks:
            return
        self._last += 1
        self._ranks[key] = self._last
        if self._is_full():
            self._capacity *= 2

    def put_first(self, key: KeyT) -> None:
        """Add a key as computeIfAbsent() does: first in its bucket, and growing before it is added, not after."""
        if key in self._ranks:
            return
        if self._is_full():
            self._capacity *= 2
        self._first -= 1
        self._ranks[key] = self._first

    def discard(self, key: KeyT) -> None:
        self._ranks.pop(key, None)

    def _is_full(self) -> bool:
        return len(self._ranks) > self._capacity * 3 // 4

    def __contains__(self, key: object) -> bool:
        return key in self._ranks

    def __len__(self) -> int:
        return len(self._ranks)

    def __iter__(self) -> Iterator[KeyT]:
        """Iterate over the keys as they are now; they may change meanwhile."""
        mask, hash_of, ranks = self._capacity - 1, self._hash_of, self._ranks

        def place(key: KeyT) -> tuple[int, int]:
            hashed = hash_of(key)
            return (hashed ^ hashed >> 16) & mask, ranks[key]

        return iter(sorted(ranks, key=place))


def in_hash_order(keys: Iterable[KeyT], hash_of: Callable[[KeyT], int]) -> Iterator[KeyT]:
    """Iterate over keys that were put into an empty HashMap one after another."""
    return iter(HashOrder(hash_of, keys=keys))


def capacity_for(key_count: int) -> int:
    """Return the capacity of a map that Kafka's assignors make for so many keys (AssignorHelpers.newHashMap)."""
    return power_of_two(int((key_count + 1) / 0.75 + 1))


def capacity_of_copy(key_count: int) -> int:
    """Return the capacity of a HashSet that is made from a collection of so many keys."""
    return power_of_two(max(int(key_count / 0.75) + 1, DEFAULT_CAPACITY))


def power_of_two(at_least: int) -> int:
    return 1 << (at_least - 1).bit_length()


def hash_of_int(number: int) -> int:
    return number & 0xFFFFFFFF


def hash_of_uuid(uuid: Uuid) -> int:
    """Return the hash of Kafka's Uuid: the exclusive or of its four int32."""
    both = int.from_bytes(uuid[:8], "big") ^ int.from_bytes(uuid[8:], "big")
    return both >> 32 ^ both & 0xFFFFFFFF


def hash_of_partition(partition: tuple[Uuid, int]) -> int:
    """Return the hash of a TopicIdPartition, a record with two components."""
    return 31 * hash_of_uuid(partition[0]) + partition[1] & 0xFFFFFFFF


def hash_of_text(text: str) -> int:
    """Return the hash of a Java String, over its UTF-16 code units."""
    hashed = 0
    if text.isascii():
        for byte in text.encode():
            hashed = 31 * hashed + byte & 0xFFFFFFFF
        return hashed
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        hashed = 31 * hashed + (high << 8 | low) & 0xFFFFFFFF
    return hashed
