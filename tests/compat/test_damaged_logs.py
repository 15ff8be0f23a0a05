"""A node started on a file system that was damaged and repaired: a partition's directory is a file, or cannot be read.

A replica fetches what it has lost from the others. A partition without another replica stays offline: its records are
never replaced by an empty log. Apache Kafka 4.3.1 was tried with a file in place of the directory: it takes the log
directory offline, and as that is its only one, the process ends.
"""

import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from harness.nodes import ThreeNodes
from harness.servers import Kafkapy
from tests.support import topics
from tests.support.eventually import eventually

pytestmark = [pytest.mark.long, pytest.mark.ours]  # Apache Kafka ends

PROPERTIES = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
}
RECORDS = 100
KILLED = 2


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ThreeNodes]:
    with ThreeNodes(Kafkapy, tmp_path, PROPERTIES) as running:
        yield running


def produced(bootstrap: str, topic: str, first: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    for number in range(first, first + RECORDS):
        producer.produce(topic, str(number), partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0


def consumed(bootstrap: str, topic: str, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[int] = []
    try:
        while len(values) < count:
            message = eventually(lambda: consumer.poll(0.2))
            assert message.error() is None
            values.append(int(message.value()))
    finally:
        consumer.close()
    return values


def in_sync(cluster: ThreeNodes, topic: str) -> list[int]:
    client = AdminClient({"bootstrap.servers": cluster.bootstrap})
    partition = client.list_topics(topic, timeout=10).topics[topic].partitions[0]
    return sorted(partition.isrs) if partition.leader >= 0 else []


def file_in_its_place(path: Path) -> None:
    shutil.rmtree(path)
    path.write_bytes(bytes(4096))


def log_file_as_directory(path: Path) -> None:
    first = min(path.glob("*.log"))
    first.unlink()
    first.mkdir()


def dangling_link_in_its_place(path: Path) -> None:
    shutil.rmtree(path)
    path.symlink_to("/nonexistent/partition")


@pytest.mark.parametrize(
    ("damage", "stop"),
    [
        (file_in_its_place, signal.SIGKILL),
        (log_file_as_directory, signal.SIGKILL),
        (dangling_link_in_its_place, signal.SIGTERM),
    ],
)
def test_a_node_fetches_what_its_file_system_lost(
    cluster: ThreeNodes, damage: Callable[[Path], None], stop: signal.Signals
) -> None:
    """It can lead after that, with all records; what was there is kept for the operator."""
    topics.create(cluster.bootstrap, "kept", replicas=3, config={"min.insync.replicas": "2"})
    node, others = cluster.by_id[KILLED], [each for key, each in cluster.by_id.items() if key != KILLED]
    eventually(lambda: in_sync(cluster, "kept") == [1, 2, 3])
    produced(cluster.bootstrap, "kept", 0)
    node.stop(stop)
    damage(node.directory / "kept-0")
    node.start()
    eventually(lambda: in_sync(cluster, "kept") == [1, 2, 3])
    produced(cluster.bootstrap, "kept", RECORDS)
    assert list(node.directory.glob("kept-0.*-stray"))
    others[0].stop(signal.SIGKILL)
    assert consumed(node.bootstrap, "kept", 2 * RECORDS) == list(range(2 * RECORDS))


def test_a_partition_without_another_replica_stays_offline_and_its_neighbours_do_not(cluster: ThreeNodes) -> None:
    for topic in ("lost", "sound"):
        topics.create(cluster.bootstrap, topic, replica_assignment=[[KILLED]])
        produced(cluster.bootstrap, topic, 0)
    node = cluster.by_id[KILLED]
    node.stop(signal.SIGKILL)
    file_in_its_place(node.directory / "lost-0")
    node.start()
    assert consumed(cluster.bootstrap, "sound", RECORDS) == list(range(RECORDS))
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "delivery.timeout.ms": 2_000, "log_level": 0})
    are_acknowledged: list[bool] = []
    producer.produce("lost", "one", on_delivery=lambda error, _: are_acknowledged.append(error is None))
    assert producer.flush(30) == 0
    assert are_acknowledged == [False]
    assert (node.directory / "lost-0").is_file(), "the next start decides alike"
