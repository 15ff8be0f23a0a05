"""One directory, both brokers: Apache Kafka goes on where kafkapy stopped or was killed, and kafkapy where it did.

Records, configs, committed offsets and transactions are the same on both sides, and Apache Kafka's DumpLogSegments
finds nothing wrong in what kafkapy leaves.
"""

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from harness.servers import Kafkapy, Server
from tests.compat.test_confluent_kafka import create
from tests.compat.test_restart import PROBLEMS, facts
from tests.simulator.crash_enumeration import SOAK_FACTOR
from tests.support.committed import commit
from tests.support.copying import only_soaked
from tests.support.quick_kafka import QuickKafka, QuickPreviousKafka
from tools.kafka import JAVA_LIBS

pytestmark = pytest.mark.long

Turns = tuple[type[QuickKafka] | type[Kafkapy], ...]
TURNS: Turns = (Kafkapy, QuickKafka, Kafkapy, QuickKafka, Kafkapy)
OF_PREVIOUS: Turns = (QuickPreviousKafka, Kafkapy, QuickPreviousKafka, Kafkapy, QuickKafka)
"""On a directory of Apache Kafka 4.3.1, at its level of metadata.version; 4.4.0 takes it in the end."""
TURN_COUNT = 3 if SOAK_FACTOR == 1 else len(TURNS)
"""There and back again; twice with KAFKAPY_SOAK_SEEDS."""
CLEANING = {"log.cleaner.backoff.ms": "100", "log.retention.check.interval.ms": "500"}
KEYS = 50
CODECS = ("zstd", "lz4", "gzip", "snappy", "none")
DECODERS = {
    "__consumer_offsets": "--offsets-decoder",
    "__transaction_state": "--transaction-log-decoder",
    "__cluster_metadata": "--cluster-metadata-decoder",
}
DUMP = "org.apache.kafka.tools.DumpLogSegments"


class History:
    """What both brokers were told, as it must be served."""

    def __init__(self) -> None:
        self.kept: list[bytes] = []
        self.compacted: dict[bytes, bytes] = {}
        self.committed: list[bytes] = []
        self.group_offset = 0

    def work(self, server: Server, turn: int) -> None:
        """Write to every topic, end transactions, commit an offset."""
        settings = {"compression.type": CODECS[turn], "enable.idempotence": True, "batch.num.messages": 40}
        producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 5, **settings})
        for number in range(300):
            value = b"%d-%d" % (turn, number)
            producer.produce("kept", value, b"key", partition=0, headers=[("turn", str(turn))])
            self.kept.append(value)
        for number in range(1500):
            key, value = b"k%d" % (number % KEYS), b"%d-%d " % (turn, number) + random.randbytes(1200)
            producer.produce("compacted", value, key, partition=0)
            self.compacted[key] = value
        assert producer.flush(60) == 0
        self._write_transactions(server, turn)
        consumer = self._consumer(server)
        self.group_offset = len(self.kept) - 10
        commit(consumer, TopicPartition("kept", 0, self.group_offset))
        consumer.close()

    def _write_transactions(self, server: Server, turn: int) -> None:
        """End some transactions, and leave one open to the other broker."""
        producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "swapped"})
        producer.init_transactions(60)
        for number in range(4):
            producer.begin_transaction()
            value = b"%d-%d" % (turn, number)
            producer.produce("transactions", value, partition=0)
            producer.flush(60)
            if number % 2:
                producer.abort_transaction(60)
            else:
                producer.commit_transaction(60)
                self.committed.append(value)
        producer.begin_transaction()
        producer.produce("transactions", b"%d-open" % turn, partition=0)
        producer.flush(60)

    def check(self, server: Server) -> None:
        assert [value for _, value in read(server, "kept")] == self.kept
        assert dict(read(server, "compacted")) == self.compacted
        assert [value for _, value in read(server, "transactions")] == self.committed
        consumer = self._consumer(server)
        (position,) = consumer.committed([TopicPartition("kept", 0)], timeout=60)
        assert position.offset == (self.group_offset or -1001)
        consumer.close()

    @staticmethod
    def _consumer(server: Server) -> Consumer:
        settings = {"group.id": "swappers", "enable.auto.commit": False}
        return Consumer({"bootstrap.servers": server.bootstrap, **settings})


def read(server: Server, topic: str) -> list[tuple[bytes, bytes]]:
    """Return key and value of every record that is committed."""
    settings = {"group.id": "none", "enable.partition.eof": True, "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "enable.auto.commit": False, **settings})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = []
    deadline = time.monotonic() + 120
    while True:
        assert time.monotonic() < deadline
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is not None:
            break
        found.append((message.key(), message.value()))
    consumer.close()
    return found


def assert_dump_log_has_no_complaint(directory: Path, java_tool: Callable[..., str]) -> None:
    """Show every file to DumpLogSegments: each kind of log with its decoder, the indexes in both ways of checking."""
    files = [file for file in sorted(directory.glob("*-*/0*")) if ".deleted" not in file.suffixes]
    for prefix in ("", *DECODERS):
        mine = [file for file in files if is_of(file, prefix)]
        options = [DECODERS[prefix]] if prefix else []
        output = java_tool(DUMP, "--deep-iteration", *options, "--files", ",".join(map(str, mine)))
        assert output.count("isvalid: true") >= 3
        assert_no_complaint(output)
    indexes = ",".join(str(file) for file in files if file.suffix in (".index", ".timeindex"))
    for option in ("--index-sanity-check", "--verify-index-only"):
        assert_no_complaint(java_tool(DUMP, option, "--files", indexes))


def is_of(file: Path, prefix: str) -> bool:
    """Whether a file with records or producers belongs to the topic, or with "" to none that has a decoder."""
    topic = file.parent.name.rpartition("-")[0]
    is_empty = file.suffix == ".log" and file.stat().st_size == 0
    if is_empty or file.suffix not in (".log", ".txnindex", ".snapshot", ".checkpoint"):
        return False
    return topic == prefix if prefix else topic not in DECODERS


def assert_no_complaint(output: str) -> None:
    problems = [line for line in output.splitlines() if any(problem in line for problem in PROBLEMS)]
    assert not [line for line in problems if "payload" not in line]  # what a record says is not the tool's word


def wait_until_clean(server: Server, min_offset: int) -> None:
    """Wait until the compacted topic was cleaned up to some offset, so that its files are what the cleaner wrote."""
    checkpoint = server.directory / "cleaner-offset-checkpoint"
    deadline = time.monotonic() + 120
    while True:
        lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
        if any(line.startswith("compacted 0 ") and int(line.split()[2]) >= min_offset for line in lines):
            return
        assert time.monotonic() < deadline, f"{server.name} has not cleaned up to {min_offset}: {lines}"
        time.sleep(0.05)


@pytest.mark.skipif(not JAVA_LIBS.is_dir(), reason="Apache Kafka's jars are missing: run `make tools`")
@pytest.mark.parametrize(
    ("with_signal", "turns"),
    [
        pytest.param(signal.SIGTERM, TURNS, marks=only_soaked),
        (signal.SIGKILL, TURNS),
        pytest.param(signal.SIGKILL, OF_PREVIOUS, marks=only_soaked),
    ],
    ids=["SIGTERM", "SIGKILL", "SIGKILL-4.3.1"],
)
def test_there_and_back_again(
    tmp_path: Path, java_tool: Callable[..., str], with_signal: signal.Signals, turns: Turns
) -> None:
    directory, history, before = tmp_path / "data", History(), None
    for turn, kind in enumerate(turns[:TURN_COUNT]):
        server = kind(directory, CLEANING)
        server.prepare()
        server.start()
        try:
            if before is None:
                before = create_topics(server)
            assert facts(server.bootstrap, "kept") == before
            history.check(server)
            history.work(server, turn)
            history.check(server)
            wait_until_clean(server, 1500 * turn + 400)
        finally:
            status = server.stop(with_signal)
        assert status in (0, 143, -with_signal)
    if with_signal == signal.SIGKILL:  # what both of them wrote, cleaned, were killed over and recovered
        with Kafkapy(directory, CLEANING) as server:
            history.check(server)
        assert_dump_log_has_no_complaint(directory, java_tool)


def create_topics(server: Server) -> tuple[object, ...]:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    create(admin, "kept", 3, retention_ms="7200000")
    create(admin, "transactions", 1)
    cleaning = {"min_cleanable_dirty_ratio": "0.01", "segment_bytes": "1048576"}
    create(admin, "compacted", 1, cleanup_policy="compact", **cleaning)
    return facts(server.bootstrap, "kept")
