"""A node with 128 MiB of memory and one core: nothing fails, whatever its clients do at once.

The limit is the kernel's (RLIMIT_DATA): heap, private mappings and the stacks of threads, of each process on its own.
"""

import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from harness.servers import API_VERSIONS_FRAME, Kafkapy

pytestmark = pytest.mark.ours  # a JVM of 128 MiB does not start a broker

MEMORY_BYTES = 128 << 20
CONNECTIONS = 300
RECORDS, RECORD_BYTES = 20_000, 1_024
LARGE_BYTES = 900_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PROPERTIES = {
    "queued.max.request.bytes": str(16 << 20),  # unless set, requests may take 256 MiB
    "socket.request.max.bytes": str(16 << 20),
    "log.cleaner.dedupe.buffer.size": str(8 << 20),
    "log.cleaner.backoff.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
}
LIMITED = """
import json, os, resource, sys
limit, core, command = json.loads(sys.argv[1])
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
os.sched_setaffinity(0, {core})
os.execvp(command[0], command)
"""


class SmallKafkapy(Kafkapy):
    """Started with the limits, which the processes that it starts inherit."""

    def command(self) -> list[str]:
        core = min(os.sched_getaffinity(0))
        return [sys.executable, "-c", LIMITED, json.dumps([MEMORY_BYTES, core, super().command()])]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[SmallKafkapy]:
    with SmallKafkapy(tmp_path / "small", PROPERTIES) as server:
        yield server


def test_a_node_serves_in_128_mib_and_on_one_core(small: SmallKafkapy, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": small.bootstrap})
    compacted = NewTopic("compacted", 1, config={"cleanup.policy": "compact", "segment.bytes": str(1 << 20)})
    for created in admin.create_topics([NewTopic("plain", 12), compacted]).values():
        created.result(60)
    idle = [_connected(small) for _ in range(CONNECTIONS)]
    for codec in CODECS:
        _produce(small.bootstrap, "plain", codec, RECORDS // len(CODECS), RECORD_BYTES)
    _produce(small.bootstrap, "plain", "zstd", 20, LARGE_BYTES)
    _produce(small.bootstrap, "compacted", "lz4", RECORDS, 200)
    assert _count_read(small.bootstrap, "plain", RECORDS + 20) == RECORDS + 20
    assert _are_answered(idle)
    assert small.process is not None
    assert small.process.poll() is None
    assert small.memory_mb("VmHWM") < 2 * MEMORY_BYTES / 1e6, "with its helper processes"
    assert small.stop() == 0
    log = Path(f"{small.directory}.log").read_text()
    assert not [line for line in log.splitlines() if " ERROR " in line or "MemoryError" in line], log


def _connected(server: SmallKafkapy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


def _are_answered(connections: list[socket.socket]) -> bool:
    """Ask on each connection for ApiVersions, on all before the first response is read; close them."""
    for connection in connections:
        connection.sendall(API_VERSIONS_FRAME)
    responses = [connection.recv(4) for connection in connections]
    for connection in connections:
        connection.close()
    return all(responses)


def _produce(bootstrap: str, topic: str, codec: str, count: int, size_bytes: int) -> None:
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    settings = {"compression.type": codec, "linger.ms": 5, "enable.idempotence": True, "message.max.bytes": 1_000_000}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for number in range(count):
        value = os.urandom(size_bytes // 2).hex().encode()
        producer.produce(topic, value, str(number % 100), on_delivery=on_delivery)
        producer.poll(0)
    assert producer.flush(120) == 0
    assert not failures, failures[0]


def _count_read(bootstrap: str, topic: str, wanted: int) -> int:
    """Read as a group until there are so many records; return how many came."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "small", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    count = 0
    while count < wanted:
        found = consumer.consume(1_000, timeout=30)
        assert found, f"only {count} of {wanted} records came"
        assert not any(message.error() for message in found)
        count += len(found)
    consumer.close()
    return count
