"""The hash of the topics that a group subscribes to, in the cluster's metadata.

It is written with the group epoch: MetadataHash of ConsumerGroupMetadataValue and ShareGroupMetadataValue. If it no
longer matches the cluster's metadata, a subscribed topic was created, deleted, expanded or moved to other racks, and
the group needs a new assignment. It is Kafka's hash (KIP-1101), so each of the two brokers continues the other's groups
without a rebalance.
"""

from collections.abc import Iterator, Sequence, Set
from operator import attrgetter
from struct import pack
from typing import Final

from xxhash import xxh3_64_digest

from kafkapy.machine import SmallSteps
from kafkapy.metadata.image import MetadataImage, TopicImage
from kafkapy.types import Uuid

MANY_PARTITIONS: Final = 3_000
"""Topics with so many partitions together are hashed in steps: some 3 ms."""
PARTITIONS_PER_STEP: Final = 1_000
_TOPIC_HASH_VERSION: Final = b"\x00"
_name = attrgetter("name")


def topic_ids(topics: Set[str], image: MetadataImage) -> frozenset[Uuid]:
    """Return the ids of these topics; deleted ones are left out."""
    return frozenset(topic.topic_id for topic in existing(topics, image))


def existing(topics: Set[str], image: MetadataImage) -> Iterator[TopicImage]:
    """Yield the topics that exist. Members may name many others: the smaller of both sets is visited."""
    by_name = image.topics.by_name
    if len(topics) <= len(by_name):
        for name in topics:
            if (topic := by_name.get(name)) is not None:
                yield topic
    else:
        for topic in by_name.values():
            if topic.name in topics:
                yield topic


class MetadataHashes:
    """Hashes of groups' topics, each topic hashed once per TopicImage. Shared by the groups of a shard."""

    def __init__(self) -> None:
        self._by_topic: dict[str, tuple[TopicImage, int]] = {}

    def of(self, topics: Set[str], image: MetadataImage) -> int:
        """Return the hash of those topics that exist, 0 if none does."""
        in_order = sorted(existing(topics, image), key=_name)
        hashes = [self._topic_hash(topic, image) for topic in in_order]
        return hash_of(pack(f"<{len(hashes)}q", *hashes)) if hashes else 0

    def prepare(self, topic: TopicImage, image: MetadataImage) -> None:
        """Hash a topic, so that `of` finds it: a large one takes some milliseconds."""
        self._topic_hash(topic, image)

    def work_for(self, topics: Set[str], image: MetadataImage) -> "HashingWork | None":
        """Return the work to hash the topics that are not hashed yet; None if they are few, so that `of` does it."""
        left = [topic for topic in existing(topics, image) if not self._has(topic)]
        count = sum(len(topic.partitions) for topic in left)
        return HashingWork(self, left, image) if count >= MANY_PARTITIONS else None

    def _has(self, topic: TopicImage) -> bool:
        cached = self._by_topic.get(topic.name)
        return cached is not None and cached[0] is topic

    def forget(self, topic: str) -> None:
        """Drop the cached hash of a deleted topic."""
        self._by_topic.pop(topic, None)

    def _topic_hash(self, topic: TopicImage, image: MetadataImage) -> int:
        cached = self._by_topic.get(topic.name)
        if cached is not None and cached[0] is topic:
            return cached[1]
        topic_hash = hash_of(b"".join(_topic_bytes(topic, image)))
        self._by_topic[topic.name] = (topic, topic_hash)
        return topic_hash


class HashingWork:
    """LongWork that hashes topics of many partitions; MetadataHashes then has their hashes."""

    def __init__(self, hashes: MetadataHashes, topics: Sequence[TopicImage], image: MetadataImage) -> None:
        self._hashes = hashes
        self._topics = topics
        self._image = image

    def steps(self) -> SmallSteps[None]:
        count = 0
        for topic in self._topics:
            self._hashes.prepare(topic, self._image)
            count += len(topic.partitions)
            if count >= PARTITIONS_PER_STEP:
                count = 0
                yield

    def is_same(self, _other: object) -> bool:
        """Return False: the hashes are in MetadataHashes, not in a result."""
        return False


def hash_of(data: bytes) -> int:
    """Return the 64-bit XXH3 with seed 0, as Java's long."""
    return int.from_bytes(xxh3_64_digest(data), "big", signed=True)


def _topic_bytes(topic: TopicImage, image: MetadataImage) -> Iterator[bytes]:
    """Yield the hash input of a topic: id, name, partition count, and each partition's sorted replica racks.

    All little-endian; the id as two int64, text as UTF-16 followed by its length in code units (int32).
    """
    most, least = int.from_bytes(topic.topic_id[:8], "big"), int.from_bytes(topic.topic_id[8:], "big")
    yield _TOPIC_HASH_VERSION
    yield pack("<QQ", most, least)
    yield _text_bytes(topic.name)
    yield pack("<i", len(topic.partitions))
    brokers = image.cluster.brokers
    for partition_id in range(len(topic.partitions)):
        yield pack("<i", partition_id)
        partition = topic.partitions.get(partition_id)
        for rack in sorted(
            rack
            for replica in (partition.replicas if partition is not None else ())
            if (broker := brokers.get(replica)) is not None and (rack := broker.rack) is not None
        ):
            yield pack("<i", len(rack.encode("utf-16-le")) // 2)
            yield _text_bytes(rack)


def _text_bytes(text: str) -> bytes:
    encoded = text.encode("utf-16-le")
    return encoded + pack("<i", len(encoded) // 2)
