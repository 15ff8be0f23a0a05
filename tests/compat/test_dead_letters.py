"""Dead letters of share groups (KIP-1191): Apache Kafka 4.4.0 and kafkapy write the same for the same rejects."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Consumer, Message, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from harness.servers import Kafkapy, Server
from tests.compat.test_share_groups import begin_with_the_first
from tests.support import topics
from tests.support.quick_kafka import QuickKafka

pytestmark = [pytest.mark.ours]  # it starts both brokers itself

PROPERTIES = {
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.record.lock.duration.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "num.partitions": "2",
    "errors.deadletterqueue.auto.create.topics.enable": "true",
}
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
ENABLED = {"errors.deadletterqueue.group.enable": "true"}
RECORDS = 12
LIMIT = 2
NAME = "errors.deadletterqueue.topic.name"
COPY = "errors.deadletterqueue.copy.record.enable"

Letter = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes]]]


class Cluster:
    """A broker, and what a test does with it."""

    def __init__(self, server: Server) -> None:
        self.bootstrap = server.bootstrap
        self.admin = AdminClient({"bootstrap.servers": server.bootstrap})

    def create(self, name: str, partitions: int, **configs: str) -> None:
        topics.create(self.bootstrap, name, partitions=partitions, config=configs)

    def configure(self, group: str, **configs: str) -> None:
        begin_with_the_first(self.admin, group, **{"share.delivery.count.limit": str(LIMIT), **configs})

    def produce(self, topic: str) -> None:
        """Plain and compressed batches, with keys and headers, or without."""
        for codec, numbers in (("none", range(RECORDS // 2)), ("gzip", range(RECORDS // 2, RECORDS))):
            producer = Producer({"bootstrap.servers": self.bootstrap, "compression.type": codec, "linger.ms": 200})
            for number in numbers:
                key = f"key {number}" if number % 3 else None
                producer.produce(topic, f"job {number}", key, partition=number % 3, headers=[("own", b"header")])
            assert producer.flush(60) == 0

    def consume(
        self, topic: str, group: str, choose: Callable[[int, int], AcknowledgeType], done: Callable[[], bool]
    ) -> None:
        """Acknowledge by choose(number of the job, delivery count) until done() holds, and then a little longer."""
        settings = {"bootstrap.servers": self.bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit"}
        with ShareConsumer({**settings, "log_level": 0}) as consumer:
            consumer.subscribe([topic])
            deadline = time.monotonic() + 60
            while not done():
                assert time.monotonic() < deadline
                for message in consumer.poll(0.5) or ():
                    assert message.error() is None
                    number = int(message.value().split()[1])
                    consumer.acknowledge(message, choose(number, message.delivery_count()))
            consumer.commit_sync(30.0)

    def read(self, topic: str, count: int) -> list[Letter]:
        """Return so many records of a topic, by partition and offset."""
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"}
        )
        deadline = time.monotonic() + 60
        found: list[Message] = []
        while True:
            partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
            if partitions:
                break
            assert time.monotonic() < deadline
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} dead letters"
            found += [message for message in consumer.consume(100, 0.5) if message.error() is None]
        found += consumer.consume(100, 1.0)  # no more come
        consumer.close()
        return [(each.partition(), each.key(), each.value(), each.headers() or []) for each in found]


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Cluster]]:
    """Apache Kafka's, and ours."""
    directory: Path = tmp_path_factory.mktemp("letters")
    with QuickKafka(directory / "apache", PROPERTIES) as apache, Kafkapy(directory / "ours", PROPERTIES) as ours:
        yield Cluster(apache), Cluster(ours)


def by_offset(letters: list[Letter]) -> list[Letter]:
    return sorted(letters, key=lambda each: json.dumps([(name, value.decode()) for name, value in each[3]]))


def run(cluster: Cluster, group: str, dead: str, **configs: str) -> list[Letter]:
    """Let a group reject every third job, release every other third until the limit, and accept the rest."""
    topic = f"jobs-of-{group}"
    cluster.create(topic, 3)
    cluster.configure(group, **{NAME: dead, **configs})
    cluster.produce(topic)
    ended: dict[int, Any] = {}

    def choose(number: int, delivery_count: int) -> AcknowledgeType:
        kind = (ACCEPT, REJECT, RELEASE)[number // 3 % 3]
        if kind != RELEASE or delivery_count == LIMIT:
            ended[number] = kind
        return kind

    cluster.consume(topic, group, choose, lambda: len(ended) == RECORDS)
    return by_offset(cluster.read(dead, sum(kind != ACCEPT for kind in ended.values())))


def test_records_are_copied_with_kafkas_headers(clusters):
    apache, ours = clusters
    found = []
    for cluster in (apache, ours):
        cluster.create("dlq.copies", 2, **ENABLED)
        found.append(run(cluster, "copying", "dlq.copies", **{COPY: "true"}))
    assert found[0] == found[1]
    rejected = [each for each in found[1] if dict(each[3])["__dlq.errors.message"] == b"Offset rejected by client."]
    given_up = [each for each in found[1] if each not in rejected]
    assert sorted(each[2] for each in rejected) == [b"job 3", b"job 4", b"job 5"]
    assert sorted(each[2] for each in given_up) == [b"job 6", b"job 7", b"job 8"]
    assert rejected[0][3] == [
        ("__dlq.errors.topic", b"jobs-of-copying"),
        ("__dlq.errors.partition", b"0"),
        ("__dlq.errors.offset", b"1"),
        ("__dlq.errors.group", b"copying"),
        ("__dlq.errors.delivery.count", b"1"),
        ("__dlq.errors.message", b"Offset rejected by client."),
    ]


def test_a_topic_is_created_and_gets_headers_alone(clusters):
    apache, ours = clusters
    found, described = [], []
    for cluster in (apache, ours):
        found.append(run(cluster, "creating", "dlq.made"))
        resource = ConfigResource(ResourceType.TOPIC, "dlq.made")
        (future,) = cluster.admin.describe_configs([resource]).values()
        described.append({key: entry.value for key, entry in future.result(60).items() if not entry.is_default})
    assert found[0] == found[1]
    assert {(each[1], each[2]) for each in found[1]} == {(None, None)}
    assert described[0] == described[1]
    assert described[1]["errors.deadletterqueue.group.enable"] == "true"


def test_a_topic_that_is_not_meant_for_dead_letters_gets_none(clusters):
    """What was rejected is archived all the same: it does not come again."""
    ends = []
    for cluster in clusters:
        cluster.create("dlq.closed", 1)
        cluster.create("after", 1)
        cluster.configure("closed", **{NAME: "dlq.closed"})
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        producer.produce("after", b"job 0")
        producer.flush(60)
        seen: list[int] = []

        def choose(number: int, delivery_count: int, seen: list[int] = seen) -> AcknowledgeType:
            seen.append(number)
            return REJECT if number == 0 else ACCEPT

        cluster.consume("after", "closed", choose, lambda seen=seen: seen == [0])
        producer.produce("after", b"job 1")
        producer.flush(60)
        cluster.consume("after", "closed", choose, lambda seen=seen: len(seen) > 1)
        assert seen == [0, 1]
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader"})
        ends.append(consumer.get_watermark_offsets(TopicPartition("dlq.closed", 0), timeout=30))
        consumer.close()
    assert ends == [(0, 0), (0, 0)]
