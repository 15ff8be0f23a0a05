"""The subscriptions of a group: topic names counted over its members, resolved regular expressions, and their hash.

The hash is written with the group epoch (ConsumerGroupMetadataValue.MetadataHash). If it no longer matches the
cluster's metadata, a subscribed topic was created, deleted, expanded or moved to other racks, and the group needs a new
assignment. It is Kafka's hash (KIP-1101), so each of the two brokers continues the other's groups without a rebalance.
"""

from collections.abc import Generator, Iterable, Iterator, Set
from dataclasses import field
from operator import attrgetter
from struct import pack
from typing import Any, Final

from xxhash import xxh3_64_digest

from kafkapy.config.patterns import PatternError, check, compiled
from kafkapy.dataclass import dataclass
from kafkapy.errors import ApiError
from kafkapy.metadata.image import MetadataImage, TopicImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.types import Uuid

_TOPIC_HASH_VERSION: Final = b"\x00"
_name = attrgetter("name")
MOST_NAMES: Final = 5_000
"""Topics that a member may subscribe to by name. Every change of a member is written with all of them."""
MOST_NAMES_OF_GROUP: Final = 50_000
"""Different names of all members, which a change of any member goes through: 10 ms.

Deviation: Apache Kafka bounds neither. Here more are refused with INVALID_REQUEST, because 63 members with 19,000 names
each kept all other clients of the coordinator waiting for 1.1 s."""


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that a regular expression matched, with the metadata offset (`version`) and the wall clock then."""

    topics: frozenset[str] = frozenset()
    version: int = 0
    timestamp_ms: int = 0


@dataclass(slots=True)
class Subscriptions:
    """The number of members that subscribe to each name and each regular expression, and the expressions' topics."""

    names: dict[str, int] = field(default_factory=dict)
    regexes: dict[str, int] = field(default_factory=dict)
    resolved: dict[str, ResolvedRegex] = field(default_factory=dict)

    def copy(self) -> "Subscriptions":
        return Subscriptions(dict(self.names), dict(self.regexes), dict(self.resolved))

    def add(self, names: Iterable[str], regex: str) -> None:
        for name in names:
            self.names[name] = self.names.get(name, 0) + 1
        if regex:
            self.regexes[regex] = self.regexes.get(regex, 0) + 1

    def remove(self, names: Iterable[str], regex: str) -> None:
        for name in names:
            _decrement(self.names, name)
        if regex:
            _decrement(self.regexes, regex)

    def forget_unused(self) -> list[str]:
        """Drop the resolved topics of expressions that no member subscribes to; return those expressions."""
        unused = [regex for regex in self.resolved if regex not in self.regexes]
        for regex in unused:
            del self.resolved[regex]
        return unused

    def topics(self) -> set[str]:
        """Return the names of all topics that the group subscribes to, existing or not."""
        topics = set(self.names)
        for resolved in self.resolved.values():
            topics |= resolved.topics
        return topics

    def topics_of(self, names: frozenset[str], regex: str) -> frozenset[str]:
        """Return the topics that one member subscribes to; an unresolved expression matches nothing."""
        resolved = self.resolved.get(regex) if regex else None
        return names if resolved is None else names | resolved.topics

    def is_homogeneous(self, member_count: int) -> bool:
        """Whether all members subscribe to the same topics, in the same way (all by name, or all by one expression)."""
        if not self.regexes:
            return all(count == member_count for count in self.names.values())
        return not self.names and next(iter(self.regexes.values())) == member_count


def _decrement(counts: dict[str, int], key: str) -> None:
    count = counts.get(key, 0)
    assert count > 0, f"{key} loses a subscriber that it has not"
    if count > 1:
        counts[key] = count - 1
    else:
        del counts[key]


def topic_ids(topics: Set[str], image: MetadataImage) -> frozenset[Uuid]:
    """Return the ids of these topics; deleted ones are left out."""
    return frozenset(topic.topic_id for topic in existing(topics, image))


def existing(topics: Set[str], image: MetadataImage) -> Iterator[TopicImage]:
    """Yield the topics that exist. Members may name many that do not: the smaller of both sets is gone through."""
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


def check_regex(regex: str) -> None:
    """Check a SubscribedTopicRegex by the syntax of RE2, as Kafka specifies.

    Raises INVALID_REGULAR_EXPRESSION, also if google-re2 is not installed.
    """
    try:
        check(regex)
    except PatternError as error:
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}.",
        ) from error


@dataclass(frozen=True, slots=True)
class TopicMatches:
    """What an expression matched: the names of the topics that there were, and of those the ones that it matches."""

    seen: Set[str] = frozenset()
    topics: Set[str] = frozenset()


def match_topics(regex: str, names: frozenset[str], before: TopicMatches) -> Generator[None, None, TopicMatches]:
    """Match an expression against the whole names of topics, except those that `before` has seen.

    Yields after each name, so that the caller can run it in turns (runtime/turns.py): a match takes some 10 us, and
    0.5 ms with the worst expressions.
    """
    topics = set()
    pattern = None
    for name in names:
        if name in before.seen:
            if name in before.topics:
                topics.add(name)
        else:
            pattern = pattern or _compiled(regex)
            if pattern is None:
                break  # it was valid at subscription, perhaps on a broker with another RE2
            if pattern.fullmatch(name) is not None:
                topics.add(name)
        yield
    return TopicMatches(names, topics)


def _compiled(regex: str) -> Any:
    try:
        return compiled(regex)
    except PatternError:
        return None
