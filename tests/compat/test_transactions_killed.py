"""kill -9 of the broker and of copiers amid transactions: the copies equal the sources, once and in order.

Copiers by librdkafka (tests/support/copier.py) in both group protocols, and Apache Kafka's TransactionalMessageCopier.
A read_committed consumer reads along and must see the same. KAFKAPY_SOAK_SEEDS multiplies the records and the kills.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from harness.servers import Server, java
from tests.compat.conftest import new_server
from tests.compat.test_transactions import create
from tests.simulator.crash_enumeration import SOAK_FACTOR
from tools.kafka import JAVA_LIBS

SOURCES = ("orders", "trades")
PARTITIONS = 2
RECORDS = 1500 * SOAK_FACTOR
"""Of each source topic."""
KILLS_AT = tuple(range(500, 2 * RECORDS - 500, 1000))
"""After so many copied records."""
TIMEOUT_S = 150 * SOAK_FACTOR
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
}
"""A killed copier's partitions are given to others after 3 s, where the default is 45."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Server]:
    with new_server(tmp_path / "data", PROPERTIES) as running:
        create(running.bootstrap, *SOURCES, *(f"{topic}-copy" for topic in SOURCES), partition_count=PARTITIONS)
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for topic in SOURCES:
            for number in range(RECORDS):
                producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
        assert producer.flush(60) == 0
        yield running


class Copiers:
    """Copier processes that are started again when they end."""

    def __init__(self, commands: Sequence[Sequence[str]]) -> None:
        self._commands = commands
        self._processes = [self._start(command) for command in commands]

    def _start(self, command: Sequence[str]) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def tend(self) -> None:
        for index, process in enumerate(self._processes):
            if process.poll() is not None:
                self._processes[index] = self._start(self._commands[index])

    def kill_one(self, index: int) -> None:
        self._processes[index].kill()
        self._processes[index].wait()

    def close(self) -> None:
        for index in range(len(self._processes)):
            self.kill_one(index)


class ReaderAlong:
    """A read_committed consumer of all copies, from the start on."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "along",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._consumer.assign(
            [TopicPartition(f"{topic}-copy", number, 0) for topic in SOURCES for number in range(PARTITIONS)]
        )
        self.found: dict[tuple[str, int], list[int]] = {}

    def poll(self) -> None:
        for message in self._consumer.consume(1000, 0.2):
            if message.error() is None:
                self.found.setdefault((message.topic(), message.partition()), []).append(int(message.value()))

    @property
    def count(self) -> int:
        return sum(map(len, self.found.values()))

    def close(self) -> None:
        self._consumer.close()


def read_through_kills(broker: Server, copiers: Copiers, reader: ReaderAlong, *, kills_at: Sequence[int]) -> None:
    """Read until all is copied; kill the broker and a copier each time so many records were read."""
    to_come = list(kills_at)
    deadline = time.monotonic() + TIMEOUT_S
    while reader.count < len(SOURCES) * RECORDS:
        assert time.monotonic() < deadline, f"{reader.count} records were copied"
        reader.poll()
        copiers.tend()
        if to_come and reader.count >= to_come[0]:
            del to_come[0]
            copiers.kill_one(len(to_come) % 2)
            broker.stop(signal.SIGKILL)
            broker.start()
    assert not to_come
    reader.poll()


def check_copies(broker: Server, reader: ReaderAlong) -> None:
    wanted = {(f"{topic}-copy", number): list(range(number, RECORDS, PARTITIONS))
              for topic in SOURCES for number in range(PARTITIONS)}  # fmt: skip
    assert reader.found == wanted, "what was read along"
    with closing(ReaderAlong(broker.bootstrap)) as afterwards:
        while afterwards.count < len(SOURCES) * RECORDS:
            afterwards.poll()
        afterwards.poll()
        assert afterwards.found == wanted


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_librdkafkas_copies_are_exact(broker: Server, protocol: str) -> None:
    commands = [
        [sys.executable, "-m", "tests.support.copier", broker.bootstrap, "copiers", protocol, f"copier-{slot}",
         *SOURCES]
        for slot in range(2)
    ]  # fmt: skip
    with closing(Copiers(commands)) as copiers, closing(ReaderAlong(broker.bootstrap)) as reader:
        read_through_kills(broker, copiers, reader, kills_at=KILLS_AT)
        check_copies(broker, reader)


def test_javas_copies_are_exact(broker: Server) -> None:
    """One copier for each partition, which is all that the tool can do; it does not join the group."""
    if not JAVA_LIBS.is_dir():
        pytest.skip("Apache Kafka's jars are missing: run `make tools`")
    commands = [
        java("org.apache.kafka.tools.TransactionalMessageCopier", "--broker-list", broker.bootstrap,
             "--transactional-id", f"java-{topic}", "--input-topic", topic, "--output-topic", f"{topic}-copy",
             "--input-partition", "-1", "--consumer-group", f"java-{topic}", "--max-messages", "-1",
             "--transaction-size", "250", "--enable-random-aborts", "--group-mode")
        for topic in SOURCES
    ]  # fmt: skip
    with closing(Copiers(commands)) as copiers, closing(ReaderAlong(broker.bootstrap)) as reader:
        read_through_kills(broker, copiers, reader, kills_at=KILLS_AT[:SOAK_FACTOR])
        check_copies(broker, reader)
