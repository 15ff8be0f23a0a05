"""Segments of magic 0 and 1, as Apache Kafka 2.8.2 wrote them (tools/legacy_golden.py): loaded with and without their
indexes, served to new clients and old, found by time, appended to and compacted; Kafka's tool finds nothing wrong.
"""

import json
import signal
import tarfile
from collections import defaultdict
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition

from harness.servers import Server
from tests.compat.conftest import new_server
from tests.compat.test_compaction import PROBLEMS, wait_until

SEGMENTS = Path(__file__).parent.parent / "golden" / "legacy_segments.tar.gz"
RECORDS = 120
TOPICS = [f"{magic}-{kind}" for magic in ("v0", "v1") for kind in ("none", "gzip", "snappy", "lz4", "append-time")]
COMPACTED = ["v0-compact", "v1-compact"]
LEGACY = {"log.cleaner.backoff.ms": "100", "kafkapy.legacy.clients.enable": "true"}
OF_A_LOG = ("*.log", "*.index", "*.timeindex", "*.snapshot", "leader-epoch-checkpoint")
OF_THE_DIRECTORY = ("recovery-point-offset-checkpoint", "cleaner-offset-checkpoint", "replication-offset-checkpoint")


@cache
def expected() -> dict[str, list[dict[str, Any]]]:
    """Return what Apache Kafka 2.8.2 served of each topic."""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    with tarfile.open(SEGMENTS) as archive:
        lines = archive.extractfile("expected.jsonl")
        assert lines is not None
        for row in map(json.loads, lines):
            rows[row.pop("topic")].append(row)
    return rows


@pytest.fixture(params=["stopped", "killed"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Server:
    """A broker that is to be started on the old segments; "killed": without their indexes and the stop's marker."""
    server = new_server(tmp_path / "data", {**LEGACY, "log.cleaner.enable": "false"})
    with server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        kept = {"retention.ms": "-1", "message.timestamp.before.max.ms": str(2**62), "segment.bytes": "1048576"}
        compacted = {**kept, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.0"}
        topics = [NewTopic(name, 1, 1, config=compacted if name in COMPACTED else kept) for name in TOPICS + COMPACTED]
        for created in admin.create_topics(topics).values():
            created.result(60)
    plant(server.directory, is_clean=request.param == "stopped")
    return server


def plant(directory: Path, *, is_clean: bool) -> None:
    """Put the old segments in the place of the new, empty ones."""
    for name in OF_THE_DIRECTORY:
        (directory / name).unlink(missing_ok=True)
    for topic in TOPICS + COMPACTED:
        for pattern in OF_A_LOG:
            for path in (directory / f"{topic}-0").glob(pattern):
                path.unlink()
    with tarfile.open(SEGMENTS) as archive:
        members = [m for m in archive.getmembers() if m.isfile() and m.name.endswith(OF_A_LOG[0][1:])]
        if is_clean:
            members = [m for m in archive.getmembers() if m.isfile() and "/" in m.name and "partition" not in m.name]
        archive.extractall(directory, members, filter="data")
    if not is_clean:
        (directory / ".kafka_cleanshutdown").unlink()


def read(bootstrap: str, *topics: str) -> dict[str, list[dict[str, Any]]]:
    """Read topics from their start to their end."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": True, "fetch.wait.max.ms": 20})
    consumer.assign([TopicPartition(topic, 0, 0) for topic in topics])
    rows: dict[str, list[dict[str, Any]]] = {topic: [] for topic in topics}
    unfinished = set(topics)
    while unfinished:
        message = consumer.poll(60)
        assert message is not None
        error = message.error()
        if error is None:
            rows[message.topic()].append(row_of(message))
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            unfinished.discard(message.topic())
    consumer.close()
    return rows


def row_of(message: Any) -> dict[str, Any]:
    kind, timestamp_ms = message.timestamp()
    key, value = (None if part is None else part.decode() for part in (message.key(), message.value()))
    return {"offset": message.offset(), "type": kind, "timestamp": timestamp_ms, "key": key, "value": value}


def read_with_an_old_client(bootstrap: str, topic: str, pinned: tuple[int, ...], count: int) -> list[tuple[Any, ...]]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, api_version=pinned, auto_offset_reset="earliest", consumer_timeout_ms=60_000
    )
    consumer.assign([PythonPartition(topic, 0)])
    records = [record for _, record in zip(range(count), consumer, strict=False)]
    consumer.close()
    return [
        (r.offset, *(None if part is None else part.decode() for part in (r.key, r.value)), r.timestamp)
        for r in records
    ]


def test_new_clients_read_and_search_them_and_write_behind_them(server: Server, java_tool: Callable[..., str]) -> None:
    with server:
        assert read(server.bootstrap, *TOPICS, *COMPACTED) == expected()
        consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "unused"})
        for topic in ("v1-none", "v1-gzip"):
            requested = TopicPartition(topic, 0, 1_500_000_000_000 + 57_500)
            assert consumer.offsets_for_times([requested], timeout=60)[0].offset == 58
        consumer.close()
        producer = Producer({"bootstrap.servers": server.bootstrap, "compression.type": "zstd"})
        for topic in TOPICS:
            producer.produce(topic, b"new", b"key")
        assert producer.flush(60) == 0
        server.stop(signal.SIGKILL)
        server.start()
        for topic, (*old, new) in read(server.bootstrap, *TOPICS).items():
            assert old == expected()[topic]
            assert (new["offset"], new["value"]) == (RECORDS, "new")
    logs = ",".join(str(path) for topic in TOPICS for path in server.directory.glob(f"{topic}-0/*.log"))
    dumped = java_tool("org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", logs)
    assert not [line for line in dumped.splitlines() if any(problem in line for problem in PROBLEMS)]


@pytest.mark.ours
@pytest.mark.parametrize("server", ["stopped"], indirect=True)
@pytest.mark.parametrize("pinned", [(0, 9), (0, 10, 1)], ids=str)
def test_old_clients_read_them(server: Server, pinned: tuple[int, ...]) -> None:
    with server:
        for topic in TOPICS:
            if topic == "v0-lz4" or (pinned == (0, 9) and topic == "v1-lz4"):
                continue  # kafka-python wants another package for how 0.9 framed lz4
            rows = [
                (row["offset"], row["key"], row["value"], row["timestamp"] if has_time(row, pinned) else None)
                for row in expected()[topic]
            ]
            assert read_with_an_old_client(server.bootstrap, topic, pinned, RECORDS) == rows


def has_time(row: dict[str, Any], pinned: tuple[int, ...]) -> bool:
    return pinned >= (0, 10) and row["type"] != 0


def values_in(rows: list[dict[str, Any]]) -> list[tuple[int, str]]:
    """Leave out tombstones (how long they stay is another test's) and times (magic 0 has none, magic 2 says -1)."""
    return [(row["offset"], row["value"]) for row in rows if row["value"] is not None]


def has_values(bootstrap: str, topic: str, values: list[tuple[int, str]]) -> bool:
    return values_in(read(bootstrap, topic)[topic]) == values


def test_they_are_compacted(server: Server, java_tool: Callable[..., str]) -> None:
    del server.properties["log.cleaner.enable"]
    with server:
        for topic in COMPACTED:
            active_from = max(int(path.stem) for path in server.directory.glob(f"{topic}-0/*.log"))
            latest = {row["key"]: row["offset"] for row in expected()[topic] if row["offset"] < active_from}
            kept = [row for row in expected()[topic] if row["offset"] >= latest.get(row["key"], 0)]
            assert 0 < len(kept) < RECORDS
            wait_until(partial(has_values, server.bootstrap, topic, values_in(kept)))
        logs = ",".join(str(path) for topic in COMPACTED for path in server.directory.glob(f"{topic}-0/*.log"))
        dumped = java_tool("org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", logs)
        assert not [line for line in dumped.splitlines() if any(problem in line for problem in PROBLEMS)]
