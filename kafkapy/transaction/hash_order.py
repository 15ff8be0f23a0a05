"""The iteration order of Java's hash collections, in which Kafka writes a transaction's partitions.

The coordinator of Apache Kafka keeps partitions in a HashSet and groups them by topic in a HashMap; their order is
visible in the records of `__transaction_state` and in DescribeTransactions. Writing the same order makes our records
equal byte for byte. A table has a power of two of buckets (16 at first, doubled when more than three quarters full),
an element is in bucket (h ^ h >>> 16) & (buckets - 1), and the elements of one bucket are in the order of insertion.

Partitions are kept as tuples in that order; each function returns one.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final, TypeVar

from kafkapy.types import TopicPartition

MIN_BUCKETS: Final = 16
"""The first size of a table of java.util.HashMap."""

T = TypeVar("T")


def with_added(partitions: Sequence[TopicPartition], added: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    """Return the order of a copy of the set `partitions` to which the set `added` was added."""
    union = dict.fromkeys(partitions)
    union.update(dict.fromkeys(as_set(added)))
    return _iterated(union, _buckets_of_copy(len(partitions)))


def as_loaded(partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    """Return the order of a set that was filled one by one and then copied, as when Kafka loads a transaction."""
    filled = as_set(partitions)
    if len(filled) < 2:
        return filled
    return _iterated(filled, _buckets_of_copy(len(filled)))


def as_set(partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    """Return the order of a set that was filled one by one."""
    return _iterated(dict.fromkeys(partitions), MIN_BUCKETS)


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    """Return the partition ids of each topic, in the order of Collectors.groupingBy.

    HashMap.computeIfAbsent differs from put: it grows before it inserts, and inserts at the head of a bucket.
    """
    buckets = MIN_BUCKETS
    groups: dict[str, list[int]] = {}
    for topic, partition in partitions:
        if _is_overfull(len(groups), buckets):
            buckets *= 2
        groups.setdefault(topic, []).append(partition)
    if len(groups) < 2:
        return list(groups.items())
    return [(topic, groups[topic]) for topic in _sorted(reversed(groups), string_hash, buckets)]


def _iterated(elements: Iterable[TopicPartition], buckets: int) -> tuple[TopicPartition, ...]:
    found = list(elements)
    if len(found) < 2:
        return tuple(found)
    while _is_overfull(len(found), buckets):
        buckets *= 2
    return tuple(_sorted(found, _partition_hash, buckets))


def _sorted(elements: Iterable[T], hash_of: Callable[[T], int], buckets: int) -> list[T]:
    def bucket(element: T) -> int:
        code = hash_of(element)
        return (code ^ code >> 16) & (buckets - 1)

    return sorted(elements, key=bucket)


def _is_overfull(count: int, buckets: int) -> bool:
    return count > buckets * 3 // 4


def _buckets_of_copy(count: int) -> int:
    """Return the buckets of `new HashSet<>(collection)`."""
    wanted = max(int(count / 0.75) + 1, MIN_BUCKETS)
    return 1 << (wanted - 1).bit_length()


def _partition_hash(topic_partition: TopicPartition) -> int:
    return 31 * (31 + topic_partition.partition) + string_hash(topic_partition.topic) & 0xFFFFFFFF


@lru_cache(maxsize=4096)
def string_hash(text: str) -> int:
    """Return String.hashCode() of Java as an unsigned 32-bit number."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        code = 31 * code + (units[position] << 8 | units[position + 1]) & 0xFFFFFFFF
    return code
