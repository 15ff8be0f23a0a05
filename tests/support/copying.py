"""Topics that copiers copy in transactions while they and their broker are killed with -9: are the copies exact?

The sources' records are numbered. A read_committed consumer reads the copies along and must see each number once and in
order, as one must that reads them afterwards.

Apache Kafka itself is not killed, only its copiers: when 4.3.1 comes back it may complete a transaction without a
partition's marker (KAFKA-20734), and nothing behind that transaction is ever read: three runs of three ended so.
"""

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from harness.servers import ApacheKafka, Server
from tests.support import topics

SOURCES = ("orders", "trades")
PARTITIONS = 2
BROKER_PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
}
"""A killed copier's partitions are given to others after 3 s, where the default is 45."""


@dataclass(frozen=True)
class Load:
    """How much is copied, and how often is killed."""

    records: int
    """Of each source topic."""
    transaction_records: int
    kills: int
    timeout_s: float

    @property
    def total(self) -> int:
        return len(SOURCES) * self.records


IS_SOAKED = "KAFKAPY_SOAK_SEEDS" in os.environ
FULL = Load(records=50_000, transaction_records=750, kills=12, timeout_s=900)
SHORT = Load(records=10_000, transaction_records=750, kills=2, timeout_s=900)
LOAD = FULL if IS_SOAKED else SHORT
only_soaked = pytest.mark.skipif(not IS_SOAKED, reason="runs with make soak (KAFKAPY_SOAK_SEEDS), for time")


def fill_sources(bootstrap: str, records: int, *, replication_factor: int = 1) -> None:
    """Make sources and copies, and number the sources' records."""
    names = [*SOURCES, *(f"{topic}-copy" for topic in SOURCES)]
    topics.create(bootstrap, *names, partitions=PARTITIONS, replicas=replication_factor)
    producer = Producer({"bootstrap.servers": bootstrap})
    for topic in SOURCES:
        for number in range(records):
            producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(120) == 0


class Copiers:
    """Copier processes that are started again when they end; what they say is in a file of each."""

    def __init__(self, commands: Sequence[Sequence[str]], directory: Path) -> None:
        self._commands = commands
        self._logs = [directory / f"copier-{number}.log" for number in range(len(commands))]
        self._processes = [self._start(index) for index in range(len(commands))]

    def _start(self, index: int) -> "subprocess.Popen[bytes]":
        with open(self._logs[index], "ab") as log:
            return subprocess.Popen(self._commands[index], stdout=log, stderr=log)

    def tend(self) -> None:
        for index, process in enumerate(self._processes):
            if process.poll() is not None:
                self._processes[index] = self._start(index)

    def kill_one(self, index: int) -> None:
        self._processes[index].kill()
        self._processes[index].wait()

    def close(self) -> None:
        for index in range(len(self._processes)):
            self.kill_one(index)

    def printed(self) -> str:
        return "\n".join(f"{log.name}: {log.read_text(errors='replace')[-1000:]}" for log in self._logs)

    def __len__(self) -> int:
        return len(self._processes)


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
        return self.counts().total()

    def counts(self) -> Counter[tuple[str, int]]:
        return Counter({partition: len(numbers) for partition, numbers in self.found.items()})

    def close(self) -> None:
        self._consumer.close()


def check_copies_through_kills(broker: Server, commands: Sequence[Sequence[str]], load: Load = LOAD) -> None:
    """Have all copied by these processes, killing the broker and a copier now and then; the copies are exact."""
    wanted = {(f"{topic}-copy", number): list(range(number, load.records, PARTITIONS))
              for topic in SOURCES for number in range(PARTITIONS)}  # fmt: skip
    with (
        closing(Copiers(commands, broker.directory.parent)) as copiers,
        closing(ReaderAlong(broker.bootstrap)) as reader,
    ):
        _read_through_kills(broker, copiers, reader, load)
        assert reader.found == wanted, "what was read along"
        with closing(ReaderAlong(broker.bootstrap)) as afterwards:
            while afterwards.count < load.total:
                afterwards.poll()
            afterwards.poll()
            assert afterwards.found == wanted


def _read_through_kills(broker: Server, copiers: Copiers, reader: ReaderAlong, load: Load) -> None:
    kills = 0
    deadline = time.monotonic() + load.timeout_s
    while reader.count < load.total:
        assert time.monotonic() < deadline, f"copied: {reader.counts()}; the copiers said:\n{copiers.printed()}"
        reader.poll()
        copiers.tend()
        if kills < load.kills and reader.count >= (kills + 0.5) * load.total / load.kills:
            copiers.kill_one(kills % len(copiers))
            if not isinstance(broker, ApacheKafka):
                broker.stop(signal.SIGKILL)
                broker.start()
            kills += 1
    assert kills == load.kills
    reader.poll()
