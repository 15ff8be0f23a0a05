"""The order in which Java's hash maps iterate, on which Apache Kafka's share and streams groups depend.

A HashMap puts a key into the bucket `hash & (capacity - 1)`, and iterates bucket by bucket. Within a bucket a key that
was put comes last, one that computeIfAbsent added comes first. The capacity doubles when the map is filled by three
quarters, and keys of a bucket keep their order then. Buckets with more than eight keys, which Java turns into trees,
are not modelled: the hashes of topic ids are random.

    in_put_order([3, 17], hash_of_int)    17, 3: buckets 1 and 3 of 16
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final, TypeVar

from kafkapy.types import Uuid

DEFAULT_CAPACITY: Final = 16
KeyT = TypeVar("KeyT")


def in_put_order(keys: Iterable[KeyT], hash_of: Callable[[KeyT], int], capacity: int = DEFAULT_CAPACITY) -> list[KeyT]:
    """Return keys in the order of a map of this capacity into which they were put one after another.

    `hash_of(key)` is Java's hashCode, as an unsigned int32; `capacity` is a power of two.
    """
    ranks = dict.fromkeys(keys)
    while len(ranks) > capacity * 3 // 4:
        capacity *= 2
    return _by_bucket(ranks, hash_of, capacity)


def in_computed_order(keys: Iterable[KeyT], hash_of: Callable[[KeyT], int], capacity: int) -> list[KeyT]:
    """Like in_put_order for computeIfAbsent(): each key comes first in its bucket, and the map grows one key later."""
    ranks = dict.fromkeys(keys)
    while len(ranks) - 1 > capacity * 3 // 4:
        capacity *= 2
    return _by_bucket(reversed(ranks), hash_of, capacity)


def in_order_of_computing(calls: Iterable[KeyT], hash_of: Callable[[KeyT], int], key_count: int) -> list[KeyT]:
    """Return the keys of these calls of computeIfAbsent() on a `new HashMap(key_count)`, keys that are there included.

    Each call first grows a map that is too full, even if the key is in it already.
    """
    capacity = power_of_two(key_count)
    ranks: dict[KeyT, None] = {}
    for key in calls:
        if len(ranks) > capacity * 3 // 4:
            capacity *= 2
        ranks[key] = None
    return _by_bucket(reversed(ranks), hash_of, capacity)


def in_order_of_copy(
    copied: Collection[KeyT], removed: Collection[KeyT], calls: Iterable[KeyT], hash_of: Callable[[KeyT], int]
) -> list[KeyT]:
    """Return the keys of a `new HashMap(len(copied))` into which keys were put one after another.

    Then some were removed, and others added by these calls of computeIfAbsent(), each of which first grows a map that
    is too full.
    """
    capacity = power_of_two(max(len(copied), 1))
    while len(copied) > capacity * 3 // 4:
        capacity *= 2
    kept = {key: None for key in copied if key not in removed}
    added: dict[KeyT, None] = {}
    for key in calls:
        if len(kept) + len(added) > capacity * 3 // 4:
            capacity *= 2
        if key not in kept:
            added[key] = None
    return _by_bucket([*reversed(added), *kept], hash_of, capacity)


def _by_bucket(keys: Iterable[KeyT], hash_of: Callable[[KeyT], int], capacity: int) -> list[KeyT]:
    """Return the keys bucket by bucket, those of a bucket in the order given."""
    mask = capacity - 1
    assert capacity & mask == 0, f"{capacity} buckets: not a power of two, which the mask needs"

    def bucket(key: KeyT) -> int:
        hashed = hash_of(key)
        return (hashed ^ hashed >> 16) & mask

    return sorted(keys, key=bucket)


def capacity_for(key_count: int) -> int:
    """Return the capacity of a map that Kafka's assignors make for so many keys (AssignorHelpers.newHashMap)."""
    return power_of_two(int((key_count + 1) / 0.75 + 1))


def capacity_of_copy(key_count: int) -> int:
    """Return the capacity of a HashSet that is made from a collection of so many keys."""
    return power_of_two(max(int(key_count / 0.75) + 1, DEFAULT_CAPACITY))


def power_of_two(at_least: int) -> int:
    assert at_least > 0, "a map has a bucket"
    return 1 << (at_least - 1).bit_length()


def hash_of_int(number: int) -> int:
    return number & 0xFFFFFFFF


def hash_of_uuid(uuid: Uuid) -> int:
    """Return the hash of Kafka's Uuid: the exclusive or of its four int32."""
    both = int.from_bytes(uuid[:8], "big") ^ int.from_bytes(uuid[8:], "big")
    return both >> 32 ^ both & 0xFFFFFFFF


def hash_of_topic(topic_id: Uuid) -> int:
    """Return what the topic adds to the hash of a TopicIdPartition, a record of topic id and partition."""
    return 31 * hash_of_uuid(topic_id)


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


def natural_order(text: str) -> bytes:
    """Return a key that sorts as Java's String.compareTo, by UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")
