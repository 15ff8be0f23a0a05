"""Nodes of Apache Kafka become kafkapy's, one by one, and Apache Kafka's again, while clients go on.

Java's idempotent producer, a classic group, one of the newer protocol, a streams group that is to revoke tasks, and in
a soak a Spark stream: nothing is lost, nothing comes twice, no committed offset moves, and the replicas' logs are the
same, byte by byte. The steps are those of docs/migration.md. A soak takes controllers of their own there and back, too.
"""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from harness.nodes import Kind
from harness.servers import ApacheKafka, Kafkapy, PreviousKafka
from kafkapy.__main__ import main
from tests.support import topics
from tests.support.committed import commit, committed_offsets
from tests.support.copying import IS_SOAKED, only_soaked
from tests.support.eventually import eventually
from tests.support.migrating import (
    TIMEOUT_S,
    GroupMember,
    JavaProducer,
    MigratingNode,
    brokers_of,
    combined_nodes,
    differing_logs,
    isolated_nodes,
    records_of,
)
from tests.support.offsets import coordinator_of
from tests.support.streams_handover import GROUP, HANDOVER_KEYS, TOPIC, Handover
from tests.support.streams_handover import PARTITIONS as PARTITIONS_TO_HAND_OVER
from tests.support.wire import WireClient
from tools.kafka import JAVA_LIBS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROPERTIES = {
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
    **HANDOVER_KEYS,
    "offsets.topic.num.partitions": "3",
}
PARTITIONS = 6
RECORDS_PER_S = 200
SETTLED = {0: 3, 3: 5}
"""What a group without members has committed."""

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.environ.get("KAFKAPY_COMPAT_SERVER") == "apache", reason="it has both kinds as it is"),
    pytest.mark.skipif(not JAVA_LIBS.is_dir() or shutil.which("java") is None, reason="`make tools` brings the jars"),
]


@pytest.fixture(
    params=[
        (combined_nodes, ApacheKafka),
        pytest.param((isolated_nodes, ApacheKafka), marks=only_soaked),
        pytest.param((combined_nodes, PreviousKafka), marks=only_soaked),
    ],
    ids=["combined", "isolated", "combined-4.3.1"],
)
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[int, MigratingNode]]:
    """Running nodes of Apache Kafka, with the features that it formats directories with."""
    make, java = request.param
    made: dict[int, MigratingNode] = make(tmp_path, PROPERTIES)
    try:
        for node in made.values():
            node.kind, node.version = java, java.version
            node.prepare()
            node.launch()
        for node in made.values():
            node.wait_until_ready(TIMEOUT_S)
        yield made
    finally:
        for node in made.values():
            node.stop(signal.SIGKILL)


class Migration:
    """The steps of the page, and what has to hold after each."""

    def __init__(self, nodes: dict[int, MigratingNode], members: list[GroupMember]) -> None:
        self.nodes = nodes
        self._handover = Handover(0 if nodes[1].kind is PreviousKafka else 1)
        self.bootstrap = ",".join(node.bootstrap for node in brokers_of(nodes))
        self._members = members
        self._committed: dict[str, dict[int, int]] = {member.group: {} for member in members}

    def exchange(self, node_id: int, kind: Kind) -> None:
        self.nodes[node_id].become(kind)
        assert check(self.bootstrap, "--wait", str(TIMEOUT_S)) == 0
        self._check_committed()
        self.hand_over_tasks()

    def hand_over_tasks(self) -> None:
        """Let a streams group revoke the tasks that its coordinator has asked for, even if that has moved since."""
        with WireClient(self.bootstrap.split(",")[0]) as client:
            coordinator = eventually(lambda: max(coordinator_of(client, GROUP), 0))
        with WireClient(self.nodes[coordinator].bootstrap) as client:
            self._handover.go_on(client)

    def _check_committed(self) -> None:
        """No group's offset is behind of what it was before."""
        assert committed_offsets(self.bootstrap, "settled") == SETTLED
        for group, before in self._committed.items():
            now = committed_offsets(self.bootstrap, group)
            assert all(now.get(partition, 0) >= offset for partition, offset in before.items())
            self._committed[group] = now


class SparkStream:
    """A structured stream that writes what it reads of a topic to files."""

    def __init__(self, spark: "SparkSession", bootstrap: str, directory: Path) -> None:
        self._spark = spark
        self._path = str(directory / "streamed")
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "orders", "startingOffsets": "earliest"}
        rows = spark.readStream.format("kafka").options(**options).load().select("partition", "offset")
        writer = rows.writeStream.format("parquet").option("checkpointLocation", str(directory / "checkpoint"))
        self._query = writer.start(self._path)

    def all_offsets(self) -> dict[int, list[int]]:
        """Read on to the end, stop; return the offsets of each partition, as often as they came."""
        self._query.processAllAvailable()
        self._query.stop()
        found: dict[int, list[int]] = {}
        for row in self._spark.read.parquet(self._path).orderBy("partition", "offset").collect():
            found.setdefault(row["partition"], []).append(row["offset"])
        return found


def check(bootstrap: str, *options: str) -> int:
    """Return the exit status of `kafkapy cluster check`."""
    return main(["cluster", "check", "--bootstrap-server", bootstrap, *options])


def commit_of_settled_group(bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "settled", "log_level": 0})
    offsets = [TopicPartition("orders", partition, offset) for partition, offset in SETTLED.items()]
    commit(consumer, *offsets)
    consumer.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning" if IS_SOAKED else "error")  # Py4J's
def test_java_nodes_become_ours_and_java_again_under_load(
    tmp_path: Path,
    nodes: dict[int, MigratingNode],
    request: pytest.FixtureRequest,
) -> None:
    bootstrap = ",".join(node.bootstrap for node in brokers_of(nodes))
    topics.create(bootstrap, "orders", partitions=PARTITIONS, replicas=3)
    commit_of_settled_group(bootstrap)
    assert check(bootstrap, "--wait", str(TIMEOUT_S)) == 0, "nothing has to be lowered"

    members = [GroupMember(bootstrap, "orders", protocol, protocol) for protocol in ("classic", "consumer")]
    with members[0], members[1], JavaProducer(tmp_path, bootstrap, "orders", RECORDS_PER_S) as producer:
        eventually(lambda: all(sum(map(len, member.seen.values())) > RECORDS_PER_S for member in members))
        streamed = SparkStream(request.getfixturevalue("spark"), bootstrap, tmp_path) if IS_SOAKED else None
        migration = Migration(nodes, members)
        topics.create(bootstrap, TOPIC, partitions=PARTITIONS_TO_HAND_OVER, replicas=3)
        migration.hand_over_tasks()
        for kind in (Kafkapy, nodes[1].kind):
            for node_id in nodes:
                migration.exchange(node_id, kind)
        producer.stop()
        records = records_of(bootstrap, "orders")
        ends = {partition: len(values) for partition, values in records.items()}
        eventually(lambda: all(committed_offsets(bootstrap, member.group) == ends for member in members))

    assert producer.failures() == []
    assert sorted(value for values in records.values() for value in values) == sorted(producer.acknowledged())
    assert all(values == sorted(values) for values in records.values())
    for member in members:
        member.check_saw_all(ends)
    if streamed is not None:
        assert streamed.all_offsets() == {partition: list(range(end)) for partition, end in ends.items()}
    directories = [node.directory for node in brokers_of(nodes)]
    eventually(lambda: differing_logs(directories, ["orders", "__consumer_offsets"]) == [])
