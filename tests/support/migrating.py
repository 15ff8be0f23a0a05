"""A cluster whose nodes become the other kind on their directories, one by one; clients that go on meanwhile."""

import json
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from harness.nodes import BROKER, COMBINED, CONTROLLER, Kind
from harness.servers import QUICK_JVM, ApacheKafka, Kafkapy, PreviousKafka, free_port, java

TIMEOUT_S = 120


def served_by(kinds: Iterable[Kind]) -> tuple[str, ...]:
    """Return how to format nodes of these kinds together: at the level of the oldest."""
    return ("--release-version", "4.3") if PreviousKafka in kinds else ()


class MigratingNode(ApacheKafka):
    """A node, formatted by Apache Kafka, that either of both runs on its directory and server.properties."""

    def __init__(self, directory: Path, properties: dict[str, str]) -> None:
        super().__init__(directory, properties)
        self.kind: Kind = ApacheKafka
        """What runs next. Its `version` is that of the Apache Kafka that formats the directory."""
        self.heap, self.jvm_options = "256m", QUICK_JVM

    def command(self) -> list[str]:
        if issubclass(self.kind, ApacheKafka):
            self.version = self.kind.version
            return super().command()
        return [sys.executable, "-m", "kafkapy", "start", str(self.properties_file)]

    def become(self, kind: Kind) -> None:
        """Stop what runs, start the other one."""
        assert self.stop(timeout_s=TIMEOUT_S) in (0, 143)
        self.kind = kind
        self.start(TIMEOUT_S)


@contextmanager
def java_in_place_of(node: Kafkapy, heap: str = "384m") -> Iterator[ApacheKafka]:
    """Run Apache Kafka on the directory and with the properties of a node that does not run."""
    java_node = ApacheKafka(node.directory, dict(node.properties))
    java_node.port = node.port
    java_node.heap, java_node.jvm_options = heap, QUICK_JVM
    if node.properties.get("controller.quorum.voters"):
        java_node.properties["controller.quorum.bootstrap.servers"] = ""
    java_node.write_properties()
    with java_node:
        yield java_node


def combined_nodes(directory: Path, more: dict[str, str]) -> dict[int, MigratingNode]:
    """Return three nodes, each broker and controller; none runs."""
    return _nodes(directory, more, dict.fromkeys((1, 2, 3), COMBINED))


def isolated_nodes(directory: Path, more: dict[str, str]) -> dict[int, MigratingNode]:
    """Return three brokers and three controllers, in this order; none runs."""
    return _nodes(directory, more, {**dict.fromkeys((1, 2, 3), BROKER), **dict.fromkeys((101, 102, 103), CONTROLLER)})


def _nodes(directory: Path, more: dict[str, str], roles: dict[int, str]) -> dict[int, MigratingNode]:
    ports = {node_id: free_port() for node_id, role in roles.items() if role != BROKER}
    nodes = {}
    for node_id, role in roles.items():
        node = MigratingNode(directory / f"node-{node_id}", {})
        listeners = [f"PLAINTEXT://127.0.0.1:{node.port}"] if role != CONTROLLER else []
        listeners += [f"CONTROLLER://127.0.0.1:{ports[node_id]}"] if role != BROKER else []
        node.properties = {
            **more,
            "process.roles": role,
            "node.id": str(node_id),
            "listeners": ",".join(listeners),
            "controller.quorum.voters": ",".join(f"{each}@127.0.0.1:{port}" for each, port in ports.items()),
            "controller.quorum.bootstrap.servers": "",
        }
        node.port = node.port if role != CONTROLLER else ports[node_id]
        nodes[node_id] = node
    return nodes


def brokers_of(nodes: dict[int, MigratingNode]) -> list[MigratingNode]:
    return [node for node in nodes.values() if node.properties["process.roles"] != CONTROLLER]


class JavaProducer:
    """An idempotent producer of Java's that writes 0, 1, 2, ... until it is stopped; keys bind each to a partition."""

    def __init__(
        self, directory: Path, bootstrap: str, topic: str, records_per_s: int, more_settings: str = ""
    ) -> None:
        settings = directory / "producer.properties"
        common = "enable.idempotence=true\nretries=2147483647\nlinger.ms=5\ncompression.type=lz4\n"
        settings.write_text(common + more_settings)
        self._printed = directory / "producer.json"
        self._command = java(
            "org.apache.kafka.tools.VerifiableProducer", "--bootstrap-server", bootstrap, "--topic", topic,
            "--throughput", str(records_per_s), "--acks", "-1", "--repeating-keys", "24",
            "--command-config", str(settings), heap="128m", options=QUICK_JVM,
        )  # fmt: skip

    def __enter__(self) -> Self:
        with self._printed.open("wb") as printed:
            self._process = subprocess.Popen(self._command, stdout=printed, stderr=subprocess.DEVNULL)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Let it send what it has, and end."""
        self._process.terminate()
        self._process.wait(TIMEOUT_S)

    def acknowledged(self) -> list[int]:
        return [int(each["value"]) for each in self._reported("producer_send_success")]

    def acknowledged_count(self) -> int:
        return self._printed.read_bytes().count(b'"producer_send_success"')

    def failures(self) -> list[dict[str, Any]]:
        return self._reported("producer_send_error")

    def _reported(self, name: str) -> list[dict[str, Any]]:
        lines = [line for line in self._printed.read_text().splitlines() if line.startswith("{") and line.endswith("}")]
        return [each for each in map(json.loads, lines) if each["name"] == name]


class GroupMember:
    """A member of a group that commits what it has seen, in a thread of its own."""

    def __init__(self, bootstrap: str, topic: str, group: str, protocol: str) -> None:
        self.group = group
        self.seen: dict[int, list[int]] = defaultdict(list)
        """Offsets by partition, in the order in which they came."""
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._assignment_count = 0
        self._consumer.subscribe([topic], on_assign=self._on_assign)
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopped.set()
        self._thread.join()
        self._consumer.close()

    def check_saw_all(self, ends: dict[int, int]) -> None:
        """Check that each record came, in order and once; again only if the group was joined anew (at least once)."""
        for partition, end in ends.items():
            offsets = self.seen[partition]
            assert (offsets if self._assignment_count == 1 else sorted(set(offsets))) == list(range(end))

    def _on_assign(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._assignment_count += 1

    def _run(self) -> None:
        while not self._is_stopped.is_set():
            for message in self._consumer.consume(200, 0.2):
                if message.error() is None:
                    self.seen[message.partition()].append(message.offset())
            self._commit()

    def _commit(self) -> None:
        """Commit the positions; a broker that stops may refuse, and the next commit says it again."""
        positions = [TopicPartition(each.topic, each.partition, each.offset) for each in self._positions()]
        try:
            if positions:
                self._consumer.commit(offsets=positions, asynchronous=False)
        except KafkaException:
            return

    def _positions(self) -> list[TopicPartition]:
        found: list[TopicPartition] = self._consumer.position(self._consumer.assignment())
        return [each for each in found if each.offset >= 0]


def records_of(bootstrap: str, topic: str, isolation_level: str = "read_uncommitted") -> dict[int, list[int]]:
    """Return all values of a topic by partition, in their order."""
    settings = {
        "bootstrap.servers": bootstrap,
        "isolation.level": isolation_level,
        "group.id": "none",
        "enable.partition.eof": True,
        "log_level": 0,
    }
    consumer = Consumer({**settings, "enable.auto.commit": False})
    partitions = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    found: dict[int, list[int]] = {partition: [] for partition in partitions}
    open_partitions = set(partitions)
    deadline = time.monotonic() + TIMEOUT_S
    while open_partitions:
        assert time.monotonic() < deadline
        for message in consumer.consume(500, 1):
            if message.error() is None:
                found[message.partition()].append(int(message.value()))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition())
    consumer.close()
    return found


def log_of(directory: Path, partition: str) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((directory / partition).glob("*.log")))


def differing_logs(directories: Iterable[Path], topics: Iterable[str]) -> list[str]:
    """Return the partitions of which the directories' logs are not all the same."""
    directories = list(directories)
    names = {path.name for topic in topics for path in directories[0].glob(f"{topic}-*") if path.is_dir()}
    assert names
    return sorted(name for name in names if len({log_of(directory, name) for directory in directories}) > 1)
