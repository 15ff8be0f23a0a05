"""KIP-848 groups by stock clients: librdkafka, the Java client, its tools; over kill -9; and Apache Kafka as the heir.

The heartbeat interval is a tenth of the default one, so that what takes a few heartbeats takes few seconds.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from harness.servers import Kafkapy, Server, java
from tests.compat.conftest import new_server
from tests.support.committed import commit
from tests.support.eventually import eventually
from tests.support.java_tools import are_here
from tests.support.quick_kafka import QuickKafka
from tools.kafka import JAVA_LIBS

GROUP_PROPERTIES = {
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "3",
}
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with new_server(tmp_path_factory.mktemp("groups") / "data", GROUP_PROPERTIES) as running:
        yield running


def create(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)


def produce(bootstrap: str, topic: str, count: int, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(count):
        producer.produce(topic, f"{n}", partition=n % partitions)
    assert producer.flush(60) == 0


def member(bootstrap: str, group: str, *topics: str, **settings: object) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "log_level": 0,
            **settings,
        }
    )
    consumer.subscribe(list(topics))
    return consumer


def poll_until(condition: Callable[[], bool], *consumers: Consumer, timeout_s: float = 90) -> list[str]:
    """Poll all consumers in turn until the condition holds; return the values that came."""
    values: list[str] = []
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, [consumer.assignment() for consumer in consumers]
        for consumer in consumers:
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                values.append(message.value().decode())
    return values


def partitions_of(*consumers: Consumer) -> list[list[int]]:
    return [sorted(partition.partition for partition in consumer.assignment()) for consumer in consumers]


def test_members_share_a_topic_and_take_over_what_a_leaving_one_had(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 4)
    produce(bootstrap, topic, 100, 4)
    first = member(bootstrap, topic, topic)
    values: list[str] = []
    poll_until(lambda: len(partitions_of(first)[0]) == 4, first)
    deadline = time.monotonic() + 60
    while len(values) < 100:
        assert time.monotonic() < deadline
        values += [message.value().decode() for message in first.consume(100, 1.0)]
    assert sorted(map(int, values)) == list(range(100))
    commit(first)

    second = member(bootstrap, topic, topic)
    poll_until(lambda: sorted(map(len, partitions_of(first, second))) == [2, 2], first, second)
    first.close()
    poll_until(lambda: partitions_of(second) == [[0, 1, 2, 3]], second)
    produce(bootstrap, topic, 4, 4)

    assert sorted(message.value().decode() for message in second.consume(4, 60.0)) == ["0", "1", "2", "3"]
    second.close()


def test_regular_expression_and_a_topic_that_grows(bootstrap: str, topic: str) -> None:
    create(bootstrap, f"{topic}-a", 1)
    create(bootstrap, f"{topic}-b", 2)
    consumer = member(bootstrap, topic, f"^{topic}-.*")
    poll_until(lambda: len(consumer.assignment()) == 3, consumer)

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(f"{topic}-b", 5)])[f"{topic}-b"].result(60)

    poll_until(lambda: len(consumer.assignment()) == 6, consumer)
    consumer.close()


def test_static_member_comes_back_to_what_it_had(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 4)
    static = {"group.instance.id": "instance"}
    first, second = member(bootstrap, topic, topic, **static), member(bootstrap, topic, topic)
    poll_until(lambda: sorted(map(len, partitions_of(first, second))) == [2, 2], first, second)
    before = partitions_of(first)

    first.close()
    again = member(bootstrap, topic, topic, **static)
    poll_until(lambda: len(partitions_of(again)[0]) == 2, again, second)

    assert partitions_of(again) == before
    again.close()
    second.close()


def test_java_consumer_and_the_group_command(java_tool: Callable[..., str], bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 3)
    produce(bootstrap, topic, 60, 3)
    arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--group", topic, "--from-beginning"]
    requested = ["--bootstrap-server", bootstrap, "--timeout", "60000"]
    protocol = ["--command-property", "group.protocol=consumer", "--max-messages", "60", "--timeout-ms", "90000"]

    read = java_tool(CONSOLE_CONSUMER, *arguments, *protocol)
    assert sorted(map(int, read.split())) == list(range(60))
    with_java = subprocess.Popen(
        java(CONSOLE_CONSUMER, *arguments, "--command-property", "group.protocol=consumer"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        consumer = member(bootstrap, topic, topic)
        poll_until(lambda: len(consumer.assignment()) in (1, 2), consumer)

        def describe(*what: str) -> str:
            return java_tool(GROUP_COMMAND, *requested, "--describe", "--group", topic, *what)

        offsets = describe()
        stable = rf"{topic} .*uniform +Stable +\d+ +\d+ +2\n"
        eventually(lambda: re.search(stable, describe("--state", "--verbose")))
        members = describe("--members", "--verbose")
    finally:
        with_java.send_signal(signal.SIGTERM)
        with_java.wait(60)
    assert len(re.findall(rf"{topic} +{topic} +\d +20 +20 +0 ", offsets)) == 3
    assert len(re.findall(rf"\n{topic} ", "\n" + members)) == 2
    consumer.close()
    empty = ["--list", "--type", "consumer", "--state", "empty"]
    eventually(lambda: topic in java_tool(GROUP_COMMAND, *requested, *empty))


def test_group_config_sets_the_heartbeat_interval(java_tool: Callable[..., str], bootstrap: str, topic: str) -> None:
    entity = ["--bootstrap-server", bootstrap, "--entity-type", "groups", "--entity-name", topic]
    java_tool(
        "org.apache.kafka.tools.ConfigCommand",
        *entity,
        "--alter",
        "--add-config",
        "consumer.heartbeat.interval.ms=1500",
    )

    assert "consumer.heartbeat.interval.ms=1500" in java_tool(
        "org.apache.kafka.tools.ConfigCommand", *entity, "--describe"
    )


def test_members_go_on_over_kill_minus_nine(tmp_path: Path, describe_epochs: Callable[..., str]) -> None:
    with Kafkapy(tmp_path / "data", GROUP_PROPERTIES) as broker:
        create(broker.bootstrap, "orders", 4)
        first, second = member(broker.bootstrap, "g", "orders"), member(broker.bootstrap, "g", "orders")
        poll_until(lambda: sorted(map(len, partitions_of(first, second))) == [2, 2], first, second)
        before = partitions_of(first, second)
        epoch_before = describe_epochs(broker)

        broker.stop(signal.SIGKILL)
        broker.start()
        produce(broker.bootstrap, "orders", 8, 4)
        seen: list[str] = []
        deadline = time.monotonic() + 60
        while len(seen) < 8:
            assert time.monotonic() < deadline
            for consumer in (first, second):
                message = consumer.poll(0.05)
                if message is not None and message.error() is None:
                    seen.append(message.value().decode())

        assert partitions_of(first, second) == before
        assert describe_epochs(broker) == epoch_before
        first.close()
        second.close()


@pytest.fixture
def describe_epochs(request: pytest.FixtureRequest) -> Callable[..., str]:
    """Return a group's state and epochs as the Java tool shows them; empty where there are no jars."""
    java_tool = request.getfixturevalue("java_tool") if are_here() else None

    def describe(server: Server, group: str = "g") -> str:
        if java_tool is None:
            return ""
        requested = ["--bootstrap-server", server.bootstrap, "--timeout", "60000"]
        output = java_tool(GROUP_COMMAND, *requested, "--describe", "--group", group, "--state", "--verbose")
        found = re.search(r"uniform +(\w+ +\d+ +\d+ +\d+)\n", output)
        assert found, output
        return found[1]

    return describe


@pytest.mark.skipif(not JAVA_LIBS.is_dir(), reason="Apache Kafka's jars are missing: run `make tools`")
@pytest.mark.skipif(os.environ.get("KAFKAPY_COMPAT_SERVER") == "apache", reason="runs both servers itself")
def test_apache_kafka_and_kafkapy_go_on_with_each_others_groups(
    tmp_path: Path, describe_epochs: Callable[..., str]
) -> None:
    """The members stay, the epochs stay: not even the metadata hash gives a reason to rebalance.

    "g" has members of the consumer protocol. "m" begins with classic ones; it is converted here and taken over there as
    it is, converted back there and taken over here.
    """
    kafka = QuickKafka(tmp_path / "data", GROUP_PROPERTIES)
    kafka.prepare()
    kafkapy = Kafkapy(tmp_path / "data", GROUP_PROPERTIES)
    kafkapy.port = kafka.port
    running: Server = kafkapy.start()
    create(kafka.bootstrap, "orders", 4)
    classic = {"group.protocol": "classic", "partition.assignment.strategy": "range", "heartbeat.interval.ms": 500}
    first, second = member(kafka.bootstrap, "g", "orders"), member(kafka.bootstrap, "g", "orders")
    old = member(kafka.bootstrap, "m", "orders", **classic)
    members = [first, second, old]
    try:
        poll_until(lambda: len(old.assignment()) == 4, *members)
        new = member(kafka.bootstrap, "m", "orders")
        members.append(new)
        poll_until(lambda: [len(share) for share in partitions_of(*members)] == [2, 2, 2, 2], *members)
        before = partitions_of(*members)
        epochs = describe_epochs(kafkapy, "g"), describe_epochs(kafkapy, "m")
        assert all(each.startswith("Stable") for each in epochs)

        running.stop()
        running = kafka.start()
        poll_for_a_while(*members)
        assert (describe_epochs(kafka, "g"), describe_epochs(kafka, "m")) == epochs
        assert partitions_of(*members) == before
        members.remove(new)
        new.close()
        poll_until(lambda: len(old.assignment()) == 4, *members)

        running.stop()
        running = kafkapy.start()
        poll_for_a_while(*members)
        assert describe_epochs(kafkapy, "g") == epochs[0]
        assert partitions_of(*members) == [*before[:2], [0, 1, 2, 3]]
        members.append(member(kafka.bootstrap, "m", "orders"))
        poll_until(lambda: [len(share) for share in partitions_of(*members)] == [2, 2, 2, 2], *members)
    finally:
        for consumer in members:
            consumer.close()
        running.stop()


def poll_for_a_while(*consumers: Consumer) -> None:
    """Poll for so long that everyone has found the coordinator again and heard whatever it has to say."""
    until = time.monotonic() + 6
    poll_until(lambda: time.monotonic() > until, *consumers)


def test_a_broker_that_stood_still_for_longer_than_the_session_hears_its_members_first(tmp_path: Path) -> None:
    session = {"group.consumer.min.session.timeout.ms": "4000", "group.consumer.session.timeout.ms": "4000"}
    with new_server(tmp_path / "data", GROUP_PROPERTIES | session) as server:
        create(server.bootstrap, "stalled", 2)
        changes: list[str] = []
        consumer = member(server.bootstrap, "stalled", "stalled")
        consumer.subscribe(
            ["stalled"], on_revoke=lambda *_: changes.append("revoked"), on_lost=lambda *_: changes.append("lost")
        )
        poll_until(lambda: len(consumer.assignment()) == 2, consumer)
        process = server.process
        assert process is not None
        for _ in range(2):
            process.send_signal(signal.SIGSTOP)
            time.sleep(5)
            process.send_signal(signal.SIGCONT)
            until = time.monotonic() + 1
            poll_until(lambda until=until: time.monotonic() > until, consumer)
        assert len(consumer.assignment()) == 2
        assert changes == []
        consumer.close()


def test_making_thousands_of_partitions_costs_no_member_its_session(tmp_path: Path) -> None:
    session = {"group.min.session.timeout.ms": "1000"}
    with new_server(tmp_path / "data", GROUP_PROPERTIES | session) as server:
        create(server.bootstrap, "few", 2)
        changes: list[str] = []
        settings = {"group.protocol": "classic", "session.timeout.ms": 5000, "heartbeat.interval.ms": 300}
        consumer = member(server.bootstrap, "many", "few", **settings)
        consumer.subscribe(
            ["few"], on_revoke=lambda *_: changes.append("revoked"), on_lost=lambda *_: changes.append("lost")
        )
        poll_until(lambda: len(consumer.assignment()) == 2, consumer)
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        made = admin.create_topics([NewTopic("many", 2_000, 1)], request_timeout=60)["many"]
        poll_until(made.done, consumer)
        assert made.result() is None
        deleted = admin.delete_topics(["many"], request_timeout=60)["many"]
        poll_until(deleted.done, consumer)
        assert deleted.result() is None
        assert len(consumer.assignment()) == 2
        assert changes == []
        consumer.close()
