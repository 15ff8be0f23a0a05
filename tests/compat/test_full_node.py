"""Three processes, one of them on a disk that fills, empties and fills: writes and commits go on without it.

`pytest -s` prints how long each waited. Apache Kafka's node stops itself: everything writes again after broker.session.
timeout.ms and an election (10.2 s at most were measured), until somebody makes room and starts it again.
"""

import contextlib
import itertools
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from harness.nodes import ThreeNodes
from harness.servers import Kafkapy, Server
from tests.compat.test_replication import in_sync
from tests.support import topics
from tests.support.eventually import eventually
from tests.support.mounted_disks import MountedDisk

pytestmark = pytest.mark.ours  # Apache Kafka's node ends itself

TOPIC = "orders"
PARTITIONS = 6
"""Some of them, and of the offsets' topic, are led by the full node, the others followed."""
GROUPS = 3
GIVEN_AWAY_S = 20
"""A second was measured; a request that nobody answers waits for 30 s (request.timeout.ms)."""
PROPERTIES = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "6",
    "group.initial.rebalance.delay.ms": "0",
    "leader.imbalance.check.interval.seconds": "5",
    "num.recovery.threads.per.data.dir": "1",
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[MountedDisk]:
    (tmp_path / "nodes").mkdir()
    try:
        disk = MountedDisk(tmp_path / "nodes" / "Kafkapy-1", 64 << 20)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system of the test's own is to be had here: {error}")
    yield disk
    disk.close()


class Load:
    """An idempotent producer with acks=all and a committer for each group, in threads; how long each had to wait."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._is_over = threading.Event()
        self.acknowledged: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.committed = [0] * GROUPS
        self.progress = [0] * (PARTITIONS + GROUPS)
        self.longest_s = [0.0] * (PARTITIONS + GROUPS)
        self._last_s = [time.monotonic()] * (PARTITIONS + GROUPS)
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(PARTITIONS)]
        self._threads += [threading.Thread(target=self._commit, args=(number,)) for number in range(GROUPS)]
        for thread in self._threads:
            thread.start()

    def _note(self, who: int) -> None:
        now_s = time.monotonic()
        self.longest_s[who] = max(self.longest_s[who], now_s - self._last_s[who])
        self._last_s[who] = now_s
        self.progress[who] += 1

    def _write(self, partition: int) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "log_level": 0})
        number = partition

        def delivered(error: object, message: object) -> None:
            assert error is None
            self.acknowledged[partition].append(number)
            self._note(partition)

        while not self._is_over.is_set():
            producer.produce(TOPIC, str(number), partition=partition, on_delivery=delivered)
            assert producer.flush(120) == 0
            number += PARTITIONS
            self._is_over.wait(0.05)

    def _commit(self, number: int) -> None:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": f"group-{number}", "log_level": 0})
        while not self._is_over.is_set():
            try:
                position = TopicPartition(TOPIC, 0, self.committed[number] + 1)
                consumer.commit(offsets=[position], asynchronous=False)
            except KafkaException:
                self._is_over.wait(0.1)
                continue
            self.committed[number] += 1
            self._note(PARTITIONS + number)
            self._is_over.wait(0.05)
        consumer.close()

    def all_go_on(self) -> None:
        before = list(self.progress)
        eventually(lambda: all(now > then + 1 for now, then in zip(self.progress, before, strict=True)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()


def numbers_of(bootstrap: str, partition: int, count: int) -> list[int]:
    """Return the numbers of a partition: so many, or all that there are within some seconds."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    # again: a leader that was just elected answers OFFSET_NOT_AVAILABLE
    _, end = eventually(lambda: consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=60))
    assert end == count, "each once"
    found = [message.value() for message in consumer.consume(count, timeout=60)]
    consumer.close()
    return [int(value) for value in found if value is not None]


def elect_anew(cluster: ThreeNodes) -> None:
    """Let both others, one of which leads the metadata quorum, pause for longer than voters wait for a leader (2 s)."""
    for node in cluster.brokers[1:]:
        assert node.process is not None
        node.process.send_signal(signal.SIGSTOP)
        time.sleep(3.5)
        node.process.send_signal(signal.SIGCONT)


def learns_nothing_more(cluster: ThreeNodes, log: Path) -> None:
    """Have the controller write metadata until the full node has no room for it: a block of its file may have some."""
    numbers = itertools.count()

    def has_no_room() -> bool:
        places = [[2, 3]] * 50
        topics.create(cluster.bootstrap, f"more-{next(numbers)}", partitions=50, replica_assignment=places)
        return "The metadata quorum waits for room" in log.read_text()

    eventually(has_no_room)


def refuses_metadata(node: Server) -> bool:
    """Whether a node closes the connections that ask it for metadata: it does so some time after it learns none."""
    try:
        AdminClient({"bootstrap.servers": f"127.0.0.1:{node.port}", "log_level": 0}).list_topics(timeout=3)
    except KafkaException:
        return True
    return False


def in_sync_by_new_client(cluster: ThreeNodes) -> set[int]:
    """Return the sizes of the ISRs that a new client is told, which may ask any node first, also the full one.

    If it meets the full node first, librdkafka's list of topics fails: it is not tried again.
    """
    found: set[int] = eventually(lambda: in_sync(AdminClient({"bootstrap.servers": cluster.bootstrap}), TOPIC))
    return found


@contextlib.contextmanager
def filled_once(disk: MountedDisk) -> Iterator[None]:
    """Leave no byte free but what the node gives up for its metadata, until the block ends."""
    disk.fill()
    yield
    disk.repair()


def test_writes_and_commits_go_on_without_a_full_node_and_it_comes_back(disk: MountedDisk, tmp_path: Path) -> None:
    log = tmp_path / "nodes" / "Kafkapy-1.log"
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(ThreeNodes(Kafkapy, tmp_path / "nodes", PROPERTIES))
        stack.callback(lambda: print(log.read_text()[-10_000:]))  # seen if the test fails
        client = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topics.create(cluster.bootstrap, TOPIC, partitions=PARTITIONS, replicas=3, config={"min.insync.replicas": "2"})
        eventually(lambda: in_sync(client, TOPIC) == {3})
        with Load(cluster.bootstrap) as load:
            load.all_go_on()
            for takes_what_is_given_up in (False, True):
                load.longest_s = [0.0] * len(load.longest_s)
                with disk.kept_full() if takes_what_is_given_up else filled_once(disk):
                    eventually(lambda: in_sync(client, TOPIC) == {2})
                    load.all_go_on()
                    waits = ", ".join(f"{each:.1f}" for each in load.longest_s)
                    print(f"\nlongest waits in s, {PARTITIONS} writers and {GROUPS} committers: {waits}")
                    assert max(load.longest_s) < GIVEN_AWAY_S
                    if takes_what_is_given_up:
                        learns_nothing_more(cluster, log)
                        eventually(lambda: refuses_metadata(cluster.brokers[0]))
                        assert in_sync_by_new_client(cluster) == {2}
                        elect_anew(cluster)  # and the full node cannot write its vote
                eventually(lambda: in_sync(client, TOPIC) == {3})
                load.all_go_on()
        for partition, numbers in enumerate(load.acknowledged):
            assert numbers_of(cluster.bootstrap, partition, len(numbers)) == numbers
        for number, committed in enumerate(load.committed):
            consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": f"group-{number}"})
            (found,) = consumer.committed([TopicPartition(TOPIC, 0)], timeout=60)
            assert found.offset == committed
            consumer.close()
