"""Groups of members of both protocols at once, by stock clients: up, down, and what they read on the way.

Proved against Apache Kafka itself with KAFKAPY_COMPAT_SERVER=apache.
"""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.servers import Server
from tests.compat.conftest import new_server

PARTITIONS = 4
PROPERTIES = {
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with new_server(tmp_path_factory.mktemp("migration") / "data", PROPERTIES) as running:
        yield running


class Traffic:
    """A topic that is written to all the time, and members that read it in one group."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
        self.producer = Producer({"bootstrap.servers": bootstrap})
        self.sent_count = 0
        self.seen: set[int] = set()
        self.members: list[Consumer] = []

    def member(self, **settings: object) -> Consumer:
        basics = {"bootstrap.servers": self.bootstrap, "group.id": self.topic, "auto.offset.reset": "earliest"}
        consumer = Consumer({**basics, "enable.auto.offset.store": False, "log_level": 0, **settings})
        consumer.subscribe([self.topic])
        self.members.append(consumer)
        return consumer

    def classic(self, **settings: object) -> Consumer:
        quick = {"heartbeat.interval.ms": 500, "session.timeout.ms": 10_000}
        return self.member(**{"partition.assignment.strategy": "range", **quick, **settings})

    def modern(self, **settings: object) -> Consumer:
        return self.member(**{"group.protocol": "consumer", **settings})

    def close(self, consumer: Consumer) -> None:
        self.members.remove(consumer)
        consumer.close()

    def run(self) -> None:
        """Send one record to each partition, let each member read and commit."""
        for partition in range(PARTITIONS):
            self.producer.produce(self.topic, f"{self.sent_count}", partition=partition)
            self.sent_count += 1
        self.producer.poll(0)
        for member in self.members:
            for message in member.consume(20, 0.05):
                if message.error() is None:
                    self.seen.add(int(message.value()))
                    member.store_offsets(message)

    def until_shared(self, *, timeout_s: float = 40) -> list[list[int]]:
        """Go on until the members share all partitions evenly; return who has what."""
        even = sorted(len(range(PARTITIONS)[index :: len(self.members)]) for index in range(len(self.members)))
        deadline = time.monotonic() + timeout_s
        while True:
            self.run()
            shares = [sorted(each.partition for each in member.assignment()) for member in self.members]
            owned = sorted(partition for share in shares for partition in share)
            if owned == list(range(PARTITIONS)) and sorted(map(len, shares)) == even:
                return shares
            assert time.monotonic() < deadline, shares

    def finish(self) -> None:
        """Read the rest: nothing that was sent is missing."""
        assert self.producer.flush(30) == 0
        deadline = time.monotonic() + 30
        while len(self.seen) < self.sent_count:
            assert time.monotonic() < deadline, sorted(set(range(self.sent_count)) - self.seen)
            for member in self.members:
                for message in member.consume(100, 0.1):
                    if message.error() is None:
                        self.seen.add(int(message.value()))
        for member in list(self.members):
            self.close(member)

    def group_type(self) -> str:
        listed = self.admin.list_consumer_groups().result().valid
        return next(group.type.name.lower() for group in listed if group.group_id == self.topic)


def test_members_change_their_protocol_one_by_one_there_and_back(bootstrap: str, topic: str) -> None:
    traffic = Traffic(bootstrap, topic)
    old = [traffic.classic(), traffic.classic()]
    traffic.until_shared()
    assert traffic.group_type() == "classic"

    new = [traffic.modern()]
    traffic.until_shared()
    assert traffic.group_type() == "consumer"
    traffic.close(old[0])
    traffic.until_shared()
    new.append(traffic.modern())
    traffic.close(old[1])
    traffic.until_shared()

    traffic.classic()
    traffic.until_shared()
    traffic.close(new[0])
    traffic.until_shared()
    assert traffic.group_type() == "consumer"
    traffic.close(new[1])
    traffic.until_shared()
    assert traffic.group_type() == "classic"
    traffic.classic()
    traffic.until_shared()
    traffic.finish()
