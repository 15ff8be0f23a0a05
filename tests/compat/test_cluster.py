"""Three nodes, each broker and controller, topics of one replica: any node takes any request, each may be killed."""

import itertools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from harness.nodes import ThreeNodes
from harness.servers import ApacheKafka, Kafkapy
from tests.support import topics
from tests.support.committed import commit
from tests.support.eventually import eventually

KIND = ApacheKafka if os.environ.get("KAFKAPY_COMPAT_SERVER") == "apache" else Kafkapy
PROPERTIES = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
TIMEOUT_S = 120


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeNodes]:
    with ThreeNodes(KIND, tmp_path_factory.mktemp("three"), PROPERTIES) as running:
        yield running


def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def leaders(client: AdminClient, topic: str) -> dict[int, int]:
    """Return the leader of each partition; empty until all have one."""
    metadata = client.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    found = {partition.id: partition.leader for partition in metadata.partitions.values()}
    return found if found and metadata.error is None and -1 not in found.values() else {}


def create(bootstrap: str, topic: str) -> dict[int, int]:
    """Create a topic, wait until each partition has a leader, and return the leaders."""
    topics.create(bootstrap, topic, partitions=6)
    client = admin(bootstrap)
    found: dict[int, int] = eventually(lambda: leaders(client, topic))
    return found


def produce(bootstrap: str, topic: str, values: list[str]) -> None:
    failures: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 6, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert [failure for failure in failures if failure] == []


def consume(bootstrap: str, topic: str, group: str, count: int) -> list[str]:
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    values: list[str] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            values.append(message.value().decode())
    commit(consumer)
    consumer.close()
    return values


def test_every_node_knows_all_three(cluster: ThreeNodes) -> None:
    for node in cluster.nodes:
        client = admin(node.bootstrap)
        eventually(lambda client=client: sorted(client.list_topics(timeout=TIMEOUT_S).brokers) == [1, 2, 3])


def test_a_topic_is_created_through_any_node_and_its_partitions_are_spread(cluster: ThreeNodes) -> None:
    for number, node in enumerate(cluster.nodes):
        names = (f"spread-{number}-{attempt}" for attempt in itertools.count())  # a fenced broker gets no replica
        eventually(lambda node=node, names=names: set(create(node.bootstrap, next(names)).values()) == {1, 2, 3})


def test_records_and_committed_offsets_are_found_whoever_leads(cluster: ThreeNodes) -> None:
    create(cluster.bootstrap, "records")
    values = [f"{number}" for number in range(300)]
    produce(cluster.bootstrap, "records", values)
    assert sorted(consume(cluster.bootstrap, "records", "readers", 300)) == sorted(values)
    produce(cluster.bootstrap, "records", ["last"])
    assert consume(cluster.bootstrap, "records", "readers", 1) == ["last"]


def test_configs_partitions_and_deletions_reach_the_controller_through_any_node(cluster: ThreeNodes) -> None:
    create(cluster.bootstrap, "changed")
    for number, node in enumerate(cluster.nodes):
        client = admin(node.bootstrap)
        entry = ConfigEntry("retention.ms", str(1000 + number), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, "changed", incremental_configs=[entry])
        client.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
        requested = ConfigResource(ConfigResource.Type.TOPIC, "changed")
        eventually(
            lambda client=client, requested=requested, number=number: (
                client.describe_configs([requested])[requested].result(TIMEOUT_S)["retention.ms"].value
                == str(1000 + number)
            )
        )
    client = admin(cluster.nodes[-1].bootstrap)
    client.delete_topics(["changed"])["changed"].result(TIMEOUT_S)
    for node in cluster.nodes:
        other = admin(node.bootstrap)
        eventually(lambda other=other: "changed" not in other.list_topics(timeout=TIMEOUT_S).topics)


def test_the_others_go_on_when_a_node_is_killed_and_take_it_back(cluster: ThreeNodes, tmp_path: Path) -> None:
    """Whichever node the controller is: each is killed once."""
    for number, node in enumerate(cluster.nodes):
        others = [other for other in cluster.nodes if other is not node]
        bootstrap = ",".join(other.bootstrap for other in others)
        node.stop(signal.SIGKILL)
        topics.create(bootstrap, f"killed-{number}", partitions=6)
        client = admin(bootstrap)
        node.start()
        eventually(lambda client=client: sorted(client.list_topics(timeout=TIMEOUT_S).brokers) == [1, 2, 3])
        eventually(lambda client=client, number=number: leaders(client, f"killed-{number}"))
        values = [f"{number}-{value}" for value in range(60)]
        produce(cluster.bootstrap, f"killed-{number}", values)
        assert sorted(consume(cluster.bootstrap, f"killed-{number}", f"group-{number}", 60)) == sorted(values)
