"""Three nodes, three replicas, acks=all: nothing acknowledged is lost, whoever is killed; the logs stay the same.

min.insync.replicas is 2. Apache Kafka's own tool reads the logs at the end (they are byte-identical, so one suffices).
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from harness.nodes import ThreeNodes
from harness.servers import ApacheKafka, Kafkapy, Server
from tests.support import topics
from tests.support.eventually import eventually
from tests.support.idempotence import numbers_of

pytestmark = pytest.mark.long

KIND = ApacheKafka if os.environ.get("KAFKAPY_COMPAT_SERVER") == "apache" else Kafkapy
PROPERTIES = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "replica.lag.time.max.ms": "3000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
TIMEOUT_S = 120
RESPONSE_S = 3
"""For a response that is asked for again: the node that was asked may stand still."""
PARTITIONS = 4


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ThreeNodes]:
    with ThreeNodes(KIND, tmp_path, PROPERTIES) as running:
        yield running


def create(client: AdminClient, bootstrap: str, topic: str) -> None:
    topics.create(bootstrap, topic, partitions=PARTITIONS, replicas=3, config={"min.insync.replicas": "2"})
    eventually(lambda: in_sync(client, topic) == {3})


def in_sync(client: AdminClient, topic: str) -> set[int]:
    """Return the sizes of the partitions' ISRs."""
    found = client.list_topics(topic, timeout=RESPONSE_S).topics[topic].partitions.values()
    return {len(partition.isrs) if partition.leader >= 0 else 0 for partition in found}


class Writer:
    """An idempotent producer with acks=all in a thread of its own, that remembers what was acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "delivery.timeout.ms": 120_000}
        self._producer = Producer(settings)
        self._topic = topic
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.acknowledged: list[int] = []
        self.failed: list[Any] = []
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._is_stopping.is_set():
            self._producer.produce(
                self._topic, str(number), partition=number % PARTITIONS, on_delivery=self._delivered(number)
            )
            number += 1
            self._producer.poll(0.002)

    def _delivered(self, number: int) -> Callable[[Any, Any], None]:
        def on_delivery(error: Any, _message: Any) -> None:
            if error is None:
                self.acknowledged.append(number)
            else:
                self.failed.append(error)

        return on_delivery

    def wait_for_more(self, count: int = 200) -> None:
        """Return once so many more are acknowledged."""
        enough = len(self.acknowledged) + count
        eventually(lambda: len(self.acknowledged) >= enough)

    def stop(self) -> list[int]:
        self._is_stopping.set()
        self._thread.join()
        assert self._producer.flush(TIMEOUT_S) == 0
        return self.acknowledged


def written(node: Server, topic: str) -> list[int]:
    """Return the values in a node's logs, sorted, each once; check that each producer epoch wrote them in sequence."""
    return numbers_of([node.directory], [f"{topic}-{partition}" for partition in range(PARTITIONS)])


def read_all(bootstrap: str, topic: str) -> list[int]:
    """Return the values of all partitions up to their high watermarks, sorted, each once."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "checker", "enable.auto.commit": False})
    found: set[int] = set()
    for partition in range(PARTITIONS):
        consumer.assign([TopicPartition(topic, partition, 0)])
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=TIMEOUT_S)
        values: list[int] = []
        while len(values) < end:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None
            assert message.error() is None
            values.append(int(message.value()))
        found.update(values)
    consumer.close()
    return sorted(found)


def segments(node: Server, topic: str) -> dict[str, bytes]:
    return {
        f"{partition}/{path.name}": path.read_bytes()
        for partition in range(PARTITIONS)
        for path in sorted((node.directory / f"{topic}-{partition}").glob("*.log"))
    }


def test_nothing_acknowledged_is_lost_whichever_node_is_killed(cluster: ThreeNodes) -> None:
    client = AdminClient({"bootstrap.servers": cluster.bootstrap})
    create(client, cluster.bootstrap, "kept")
    writer = Writer(cluster.bootstrap, "kept")
    for node in cluster.nodes:
        writer.wait_for_more()
        node.stop(signal.SIGKILL)
        writer.wait_for_more()
        node.start()
        eventually(lambda: in_sync(client, "kept") == {3})
    acknowledged = writer.stop()
    assert not writer.failed
    assert read_all(cluster.bootstrap, "kept") == sorted(acknowledged)
    assert written(cluster.nodes[0], "kept") == sorted(acknowledged)
    eventually(lambda: segments(cluster.nodes[0], "kept") == segments(cluster.nodes[1], "kept"))
    eventually(lambda: segments(cluster.nodes[1], "kept") == segments(cluster.nodes[2], "kept"))


def test_a_follower_that_stands_still_leaves_the_isr_and_comes_back(cluster: ThreeNodes) -> None:
    client = AdminClient({"bootstrap.servers": cluster.bootstrap})
    create(client, cluster.bootstrap, "paused")
    writer = Writer(cluster.bootstrap, "paused")
    writer.wait_for_more()
    paused = cluster.nodes[2].process
    assert paused is not None
    paused.send_signal(signal.SIGSTOP)
    others = AdminClient({"bootstrap.servers": f"{cluster.nodes[0].bootstrap},{cluster.nodes[1].bootstrap}"})
    try:
        eventually(lambda: in_sync(others, "paused") == {2})
        writer.wait_for_more()
    finally:
        paused.send_signal(signal.SIGCONT)
    eventually(lambda: in_sync(client, "paused") == {3})
    acknowledged = writer.stop()
    assert not writer.failed
    assert read_all(cluster.bootstrap, "paused") == sorted(acknowledged)
    assert written(cluster.nodes[0], "paused") == sorted(acknowledged)


def test_without_enough_replicas_nothing_is_acknowledged(cluster: ThreeNodes) -> None:
    client = AdminClient({"bootstrap.servers": cluster.bootstrap})
    create(client, cluster.bootstrap, "scarce")
    leader = client.list_topics("scarce", timeout=TIMEOUT_S).topics["scarce"].partitions[0].leader
    survivors = [node for number, node in enumerate(cluster.nodes, start=1) if number != leader][:1]
    others = [node for number, node in enumerate(cluster.nodes, start=1) if number != leader and node not in survivors]
    others[0].stop(signal.SIGKILL)  # two are left: a quorum of controllers, and min.insync.replicas
    producer = Producer({"bootstrap.servers": survivors[0].bootstrap, "delivery.timeout.ms": 100_000})
    results: list[Any] = []
    producer.produce("scarce", "two", partition=0, on_delivery=lambda error, _: results.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert results == [None]
