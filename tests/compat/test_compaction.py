"""A compacted topic on a broker process becomes compact while clients write and read, and Kafka's tools agree."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from harness.servers import Server
from kafkapy.record.batch import RecordBatch
from tests.compat.conftest import new_server

pytestmark = pytest.mark.long

PROBLEMS = ("mismatch", "invalid", "Invalid", "corrupt", "Exception", "Error", "isvalid: false")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEYS = 500
CLEANING = {"log.cleaner.backoff.ms": "100", "log.retention.check.interval.ms": "500"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Server]:
    with new_server(tmp_path / "data", CLEANING) as running:
        yield running


def create(bootstrap: str, topic: str, **config: str) -> None:
    settings = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
    settings |= {key.replace("_", "."): value for key, value in config.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result(60)


def produce(bootstrap: str, topic: str, numbers: range, **settings: object) -> None:
    """Write key-<n % KEYS> = <n>; every seventh key is deleted. 400 bytes a value, hard to compress."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 5,
            "batch.num.messages": 50,
            "enable.idempotence": True,
            **settings,
        }
    )
    for n in numbers:
        producer.produce(topic, value_of(n), f"key-{n % KEYS}", partition=0, headers=[("n", str(n))])
        producer.poll(0)
    assert producer.flush(60) == 0


def value_of(n: int) -> bytes | None:
    return None if n % KEYS % 7 == 6 else (b"%d " % n + b"%x" % (n * 0x9E3779B97F4A7C15**24))[:400]


def read_all(bootstrap: str, topic: str) -> list[tuple[int, bytes, bytes | None]]:
    """Return (offset, key, value) of all records from the start to the end, as they are at the end."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[int, bytes, bytes | None]] = []
    while True:
        for message in consumer.consume(500, 1.0):
            if message.error() is not None:  # the end
                consumer.close()
                return found
            found.append((message.offset(), message.key(), message.value()))


def assert_complete(found: list[tuple[int, bytes, bytes | None]], count: int) -> None:
    """Whatever was read has rising offsets, the right records, and the last one of each key that is not deleted."""
    offsets = [offset for offset, _, _ in found]
    assert offsets == sorted(set(offsets))
    assert all((key, value) == (b"key-%d" % (at % KEYS), value_of(at)) for at, key, value in found)
    last = {key: value for _, key, value in found}
    for n in range(count - KEYS, count):
        assert last.get(b"key-%d" % (n % KEYS)) == value_of(n)


def wait_until(condition: Callable[[], bool], timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def log_bytes(broker: Server, topic: str) -> int:
    total = 0
    for file in (broker.directory / f"{topic}-0").glob("*.log"):
        with suppress(FileNotFoundError):  # the cleaner replaces segments meanwhile
            total += file.stat().st_size
    return total


def clean_to(broker: Server, topic: str) -> int:
    checkpoint = broker.directory / "cleaner-offset-checkpoint"
    lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
    return next((int(line.split()[2]) for line in lines if line.startswith(f"{topic} 0 ")), 0)


def test_a_topic_becomes_compact_while_it_is_written_and_read(broker, java_tool):
    bootstrap = broker.bootstrap
    create(bootstrap, "compacted", delete_retention_ms="600000")
    done = threading.Event()
    reads: list[list[tuple[int, bytes, bytes | None]]] = []

    def read_on() -> None:
        while not done.is_set():
            reads.append(read_all(bootstrap, "compacted"))

    reader = threading.Thread(target=read_on)
    reader.start()
    try:
        per_codec = 5000
        for number, codec in enumerate(CODECS):
            numbers = range(number * per_codec, (number + 1) * per_codec)
            produce(bootstrap, "compacted", numbers, **{"compression.type": codec})
        count = per_codec * len(CODECS)
        wait_until(lambda: clean_to(broker, "compacted") > count - 8000 and log_bytes(broker, "compacted") < 3_000_000)
    finally:
        done.set()
        reader.join(60)
    assert_complete(read_all(bootstrap, "compacted"), count)
    wait_until(lambda: len(read_all(bootstrap, "compacted")) < 8000)
    for found in reads:
        offsets = [offset for offset, _, _ in found]
        assert offsets == sorted(set(offsets))
        assert all((key, value) == (b"key-%d" % (at % KEYS), value_of(at)) for at, key, value in found)

    broker.stop(signal.SIGKILL)
    broker.start()
    assert_complete(read_all(broker.bootstrap, "compacted"), count)
    broker.stop()
    assert not list((broker.directory / "compacted-0").glob("*.cleaned"))
    assert_dump_has_no_complaint(broker, java_tool, "compacted")


def assert_dump_has_no_complaint(broker: Server, java_tool: Callable[..., str], topic: str) -> None:
    files = sorted((broker.directory / f"{topic}-0").glob("0*.*"))
    files = [file for file in files if file.suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")]
    dump = "org.apache.kafka.tools.DumpLogSegments"
    output = java_tool(dump, "--deep-iteration", "--files", ",".join(map(str, files)))
    assert output.count("isvalid: true") >= 10
    indexes = ",".join(str(file) for file in files if file.suffix in (".index", ".timeindex"))
    output += java_tool(dump, "--index-sanity-check", "--files", indexes)
    assert not [line for line in output.splitlines() if any(problem in line for problem in PROBLEMS)]


def test_the_last_batch_of_a_producer_stays_as_an_empty_header(broker):
    create(broker.bootstrap, "emptied", delete_retention_ms="600000")
    settings = {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True}
    for value in ("old", "new"):
        producer = Producer(settings)
        producer.produce("emptied", value, "the key", partition=0)
        assert producer.flush(60) == 0
    produce(broker.bootstrap, "emptied", range(4000))
    wait_until(lambda: clean_to(broker, "emptied") > 2000)
    broker.stop()  # a further pass would replace the file
    first = RecordBatch((broker.directory / "emptied-0" / f"{0:020d}.log").read_bytes())
    assert (first.base_offset, first.last_offset, first.record_count, first.attributes) == (0, 0, 0, 0)
    assert first.has_producer_id
    assert first.base_timestamp == -1
    assert abs(first.max_timestamp / 1000 - time.time()) < 600


def test_cleaner_threads_are_added_at_run_time_and_the_death_of_ones_process_costs_a_pass(tmp_path):
    slow = CLEANING | {"log.cleaner.io.max.bytes.per.second": "100000"}
    with new_server(tmp_path / "data", slow) as broker:
        for topic in ("first", "second"):
            create(broker.bootstrap, topic)
            produce(broker.bootstrap, topic, range(4000))
        wait_until(lambda: len(helpers_of(broker)) == 1)
        set_for_broker(broker, "log.cleaner.threads", "2")
        wait_until(lambda: len(helpers_of(broker)) == 2)
        os.kill(helpers_of(broker)[0], signal.SIGKILL)
        set_for_broker(broker, "log.cleaner.io.max.bytes.per.second", "1e9")
        wait_until(lambda: clean_to(broker, "first") > 2000 and clean_to(broker, "second") > 2000)
        for topic in ("first", "second"):
            assert_complete(read_all(broker.bootstrap, topic), 4000)
        assert len(helpers_of(broker)) <= 2


def helpers_of(broker: Server) -> list[int]:
    """Return the ids of the broker's helper processes."""
    children = Path(f"/proc/{broker.process.pid}/task/{broker.process.pid}/children").read_text().split()
    found = []
    for child in children:
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            if b"helper_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(int(child))
    return found


def set_for_broker(broker: Server, key: str, value: str) -> None:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(60)
