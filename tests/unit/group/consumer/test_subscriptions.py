"""Subscriptions: the metadata hash against Apache Kafka's, regular expressions by RE2's rules."""

from collections.abc import Set
from dataclasses import replace
from struct import pack

import pytest

from kafkapy.group.consumer.subscriptions import (
    Subscriptions,
    TopicMatches,
    check_regex,
    match_topics,
)
from kafkapy.group.metadata_hash import MetadataHashes, hash_of, topic_ids
from kafkapy.metadata.image import ClusterImage, MetadataImage, TopicImage, TopicsImage
from kafkapy.metadata.persistent import PersistentMap
from kafkapy.metadata.registrations import BrokerRegistration, PartitionRegistration
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.partition_record import PartitionRecord
from kafkapy.protocol.messages.register_broker_record import RegisterBrokerRecord
from kafkapy.types import ONE_UUID
from tests.support.consumer_groups import error_of, image_of, topic_id
from tests.support.steps import counted


def cluster_image(name: str, most: int, least: int, replicas: list[list[int]], racks: dict[int, str]) -> MetadataImage:
    partitions = {
        index: PartitionRegistration.from_record(
            PartitionRecord(replicas=brokers, isr=brokers, leader=brokers[0], directories=[ONE_UUID] * len(brokers))
        )
        for index, brokers in enumerate(replicas)
    }
    topic = TopicImage(name, pack(">qq", most, least), partitions)
    brokers = {
        node_id: BrokerRegistration.from_record(RegisterBrokerRecord(broker_id=node_id, rack=rack))
        for node_id, rack in racks.items()
    }
    return MetadataImage(
        cluster=ClusterImage(brokers),
        topics=TopicsImage(PersistentMap({name: topic}), PersistentMap({topic.topic_id: topic})),
    )


KAFKA_HASHES = [
    # name, id, replicas of each partition, racks, what hash4j makes of them in the order of Kafka 4.3.1
    ("foo", 0x0102030405060708, 0x1112131415161718, [[1]] * 3, {}, -8832753732432981234),
    ("orders.é", -5, 77, [[2, 1], [2, 3]] * 3, {1: "a", 2: "rack-b", 3: "zz"}, 8127479288821432862),
    ("big", 1, 2, [[1]] * 1000, {}, -6759383717138596542),
]


@pytest.mark.parametrize(("name", "most", "least", "replicas", "racks", "topic_hash"), KAFKA_HASHES)
def test_hash_of_a_topic_is_kafkas(
    name: str, most: int, least: int, replicas: list[list[int]], racks: dict[int, str], topic_hash: int
) -> None:
    image = cluster_image(name, most, least, replicas, racks)

    assert MetadataHashes().of({name, "missing"}, image) == hash_of(pack("<q", topic_hash))


def test_names_beyond_the_topics_that_exist_change_nothing() -> None:
    image = image_of(foo=3, bar=2)
    many = {"foo", "bar", *map(str, range(100))}
    assert MetadataHashes().of(many, image) == MetadataHashes().of({"foo", "bar"}, image)
    assert topic_ids(many, image) == topic_ids({"foo", "bar"}, image) == {topic_id("foo"), topic_id("bar")}


def test_hash_of_a_group_is_that_of_its_topics_in_order_of_name() -> None:
    # Kafka's Utils.computeGroupHash of a: -9, b: 123, c: 5
    assert hash_of(pack("<3q", -9, 123, 5)) == -2347878840786390684


def test_hash_of_nothing_is_zero() -> None:
    assert MetadataHashes().of({"missing"}, image_of()) == 0


def test_hash_follows_a_topic_that_grows() -> None:
    hashes = MetadataHashes()

    assert hashes.of({"foo"}, image_of(foo=3)) == hashes.of({"foo"}, image_of(foo=3))
    assert hashes.of({"foo"}, image_of(foo=3)) != hashes.of({"foo"}, image_of(foo=4))


@pytest.mark.parametrize(
    ("names", "regexes", "member_count", "is_homogeneous"),
    [
        ({"foo": 2, "bar": 2}, {}, 2, True),
        ({"foo": 2, "bar": 1}, {}, 2, False),
        ({}, {}, 2, True),
        ({}, {"f.*": 2}, 2, True),
        ({}, {"f.*": 1, "b.*": 1}, 2, False),
        ({"foo": 1}, {"f.*": 2}, 2, False),
        ({}, {"f.*": 1}, 2, False),
    ],
)
def test_group_is_homogeneous_where_all_subscribe_alike(
    names: dict[str, int], regexes: dict[str, int], member_count: int, is_homogeneous: bool
) -> None:
    assert Subscriptions(names, regexes).is_homogeneous(member_count) == is_homogeneous


def test_expression_matches_whole_names() -> None:
    assert matched("foo.*", {"foo", "foobar", "barfoo"}, TopicMatches()) == ({"foo", "foobar"}, 3)


def test_only_topics_that_were_added_are_matched() -> None:
    before = TopicMatches(frozenset({"old", "gone", "other"}), frozenset({"old", "gone"}))

    assert matched("(", {"old", "other"}, before) == ({"old"}, 2)
    assert matched("n.w", {"old", "other", "new", "now", "newer"}, before) == ({"old", "new", "now"}, 5)


def test_an_expression_that_is_not_valid_here_matches_nothing() -> None:
    assert matched("(", {"foo", "bar"}, TopicMatches())[0] == set()


def matched(regex: str, names: set[str], before: TopicMatches) -> tuple[Set[str], int]:
    """Return the topics that match, and after how many names the matching gave way."""
    count, found = counted(match_topics(regex, frozenset(names), before))
    assert found.seen == names
    return found.topics, count


@pytest.mark.parametrize("regex", ["(abc", "[z-a]", "a**", "(?=ahead)"])
def test_invalid_expression_is_refused_with_its_fault(regex: str) -> None:
    code, message = error_of(check_regex, regex)

    assert code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert message is not None
    assert message.startswith(f"SubscribedTopicRegex `{regex}` is not a valid regular expression: ")


def test_hash_of_a_topic_is_kept_while_its_image_is() -> None:
    hashes = MetadataHashes()
    image = image_of(foo=3)
    first = hashes.of({"foo"}, image)

    assert hashes.of({"foo"}, replace(image, cluster=ClusterImage())) == first


def test_hash_of_a_topic_that_is_gone_is_not_kept() -> None:
    hashes = MetadataHashes()
    image = image_of(foo=3)
    first = hashes.of({"foo", "bar"}, image)

    hashes.forget("foo")
    hashes.forget("bar")

    assert not hashes._by_topic
    assert hashes.of({"foo"}, image) == first
