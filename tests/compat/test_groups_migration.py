"""Groups of members of both protocols at once, by stock clients: up, down, and what they read on the way.

Proved against Apache Kafka itself with KAFKAPY_COMPAT_SERVER=apache.
"""

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from harness.servers import Server, java
from tests.compat.conftest import new_server
from tests.support.eventually import eventually
from tools.kafka import JAVA_LIBS

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
        self.admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)
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

    def until_shared(self, *, timeout_s: float = 90) -> list[list[int]]:
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
        assert self.producer.flush(60) == 0
        deadline = time.monotonic() + 60
        while len(self.seen) < self.sent_count:
            assert time.monotonic() < deadline, sorted(set(range(self.sent_count)) - self.seen)
            for member in self.members:
                for message in member.consume(100, 0.1):
                    if message.error() is None:
                        self.seen.add(int(message.value()))
        for member in list(self.members):
            self.close(member)

    def group_type(self) -> str:
        return self.group()[0]

    def group(self) -> tuple[str, str, int]:
        """Return the group's type and state, and how many members it has."""
        listed = self.admin.list_consumer_groups().result().valid
        found = [group for group in listed if group.group_id == self.topic]
        if not found:
            return "", "", 0
        described = self.admin.describe_consumer_groups([self.topic])[self.topic].result()
        return found[0].type.name.lower(), described.state.name.lower(), len(described.members)


def test_members_change_their_protocol_one_by_one_there_and_back(bootstrap: str, topic: str) -> None:
    traffic = Traffic(bootstrap, topic)
    old = [traffic.classic(), traffic.classic()]
    traffic.until_shared()
    eventually(lambda: traffic.group_type() == "classic")

    new = [traffic.modern()]
    traffic.until_shared()
    eventually(lambda: traffic.group_type() == "consumer")
    traffic.close(old[0])
    traffic.until_shared()
    new.append(traffic.modern())
    traffic.close(old[1])
    traffic.until_shared()

    traffic.classic()
    traffic.until_shared()
    traffic.close(new[0])
    traffic.until_shared()
    eventually(lambda: traffic.group_type() == "consumer")
    traffic.close(new[1])
    traffic.until_shared()
    eventually(lambda: traffic.group_type() == "classic")
    traffic.classic()
    traffic.until_shared()
    traffic.finish()


CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"


class JavaMember:
    """Kafka's own console consumer as a member of the traffic's group; it commits when it is told to stop."""

    def __init__(self, traffic: Traffic, output: Path, **properties: str) -> None:
        arguments = ["--bootstrap-server", traffic.bootstrap, "--topic", traffic.topic, "--group", traffic.topic]
        settings = {"auto.offset.reset": "earliest", "auto.commit.interval.ms": "200", **properties}
        for key, value in settings.items():
            arguments += ["--command-property", f"{key}={value}"]
        self.output = output
        with output.open("wb") as out:
            self.process = subprocess.Popen(java(CONSOLE_CONSUMER, *arguments), stdout=out, stderr=subprocess.DEVNULL)

    def seen(self) -> set[int]:
        return {int(line) for line in self.output.read_text().split("\n")[:-1]}

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


@pytest.mark.skipif(not JAVA_LIBS.is_dir(), reason="Apache Kafka's jars are missing: run `make tools`")
def test_java_consumers_of_both_protocols_share_a_group(bootstrap: str, topic: str, tmp_path: Path) -> None:
    """Cooperative ones: they keep reading what they have while the group changes."""
    traffic = Traffic(bootstrap, topic)
    classic = {
        "group.protocol": "classic",
        "partition.assignment.strategy": COOPERATIVE,
        "heartbeat.interval.ms": "500",
    }
    members: list[JavaMember] = []

    def start(**properties: str) -> JavaMember:
        members.append(JavaMember(traffic, tmp_path / f"{len(members)}", **properties))
        return members[-1]

    def until(kind: str, member_count: int) -> None:
        """Go on until the group is what it should be, and every partition that has news is read."""
        deadline = time.monotonic() + 120
        while traffic.group() != (kind, "stable", member_count):
            traffic.run()
            assert time.monotonic() < deadline, traffic.group()
            time.sleep(0.05)
        traffic.run()
        assert traffic.producer.flush(60) == 0
        while set().union(*(member.seen() for member in members)) != set(range(traffic.sent_count)):
            assert time.monotonic() < deadline, "records are missing"
            time.sleep(0.05)

    try:
        first = start(**classic)
        until("classic", 1)
        second = start(**{"group.protocol": "consumer"})
        until("consumer", 2)
        first.stop()
        until("consumer", 1)
        start(**classic)
        until("consumer", 2)
        second.stop()
        until("classic", 1)
    finally:
        for member in members:
            member.stop()
