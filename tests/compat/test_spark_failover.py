"""A structured stream over three nodes, of which the leader is killed with -9: it goes on by itself, and reads each
acknowledged record once.
"""

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from harness.nodes import ThreeNodes
from tests.compat.test_cluster import KIND, TIMEOUT_S
from tests.support import topics
from tests.support.eventually import eventually

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
TOPIC, PARTITIONS = "orders", 3
RECORDS_PER_S = 200
PROPERTIES = {
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ThreeNodes]:
    with ThreeNodes(KIND, tmp_path, PROPERTIES, heap="256m") as running:
        topics.create(running.bootstrap, TOPIC, partitions=PARTITIONS, replicas=3)
        eventually(lambda: -1 not in leaders(running) and leaders(running))
        yield running


def leaders(cluster: ThreeNodes) -> list[int]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    found = admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions
    return [found[number].leader for number in sorted(found)]


class Writing:
    """Numbered records, to each partition in turn, while the block runs."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: set[int] = set()
        self.failures: list[Any] = []
        self._bootstrap = bootstrap
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Writing":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(TIMEOUT_S)

    def _run(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "log_level": 0})
        number = 0
        while not self._is_over.is_set():
            producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._note)
            number += 1
            producer.poll(1 / RECORDS_PER_S)
        if producer.flush(TIMEOUT_S):
            self.failures.append("records are neither acknowledged nor refused")

    def _note(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(error)
        else:
            self.acknowledged.add(int(message.value()))


class Stream:
    """What a stream has read: (partition, offset) -> value, of every batch."""

    def __init__(self, spark: Any, bootstrap: str, directory: Path) -> None:
        self.rows: list[tuple[int, int, int]] = []
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC, "startingOffsets": "earliest"}
        found = spark.readStream.format("kafka").options(**options).load()
        columns = found.selectExpr("partition", "offset", "CAST(CAST(value AS STRING) AS INT) AS number")
        writer = columns.writeStream.foreachBatch(self._note).option("checkpointLocation", str(directory / "stream"))
        self.query = writer.trigger(processingTime="200 milliseconds").start()

    def _note(self, batch: Any, _batch_id: int) -> None:
        self.rows += [(row["partition"], row["offset"], row["number"]) for row in batch.collect()]

    def wait_for_progress(self) -> None:
        before = len(self.rows)
        eventually(lambda: len(self.rows) > before or self.query.exception() is not None, what="the stream's progress")
        assert self.query.exception() is None


def test_a_stream_goes_on_when_the_leader_of_its_topic_is_killed(
    spark: Any, cluster: ThreeNodes, tmp_path: Path
) -> None:
    with Writing(cluster.bootstrap) as writing:
        stream = Stream(spark, cluster.bootstrap, tmp_path)
        stream.wait_for_progress()
        killed = eventually(lambda: max(leaders(cluster)[0], 0))
        cluster.by_id[killed].stop(signal.SIGKILL)
        eventually(lambda: not {killed, -1} & set(leaders(cluster)), what="another leader")
        stream.wait_for_progress()
        cluster.by_id[killed].start()
        stream.wait_for_progress()
    assert writing.failures == []
    eventually(lambda: writing.acknowledged <= {number for _, _, number in stream.rows}, what="all records")
    stream.query.stop()
    assert len({row[:2] for row in stream.rows}) == len(stream.rows), "each offset once"
