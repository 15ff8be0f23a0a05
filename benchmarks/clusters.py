"""The pairs of servers that loads ask for: one node (plaintext, TLS, a cleaner awake, two directories), or three."""

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from benchmarks.workload import CLEANING, THREE_NODES, TLS, TWO_DIRECTORIES
from harness.certificates import make_certificate
from harness.servers import ApacheKafka, Kafkapy, Server, free_port

KINDS: tuple[type[Kafkapy] | type[ApacheKafka], ...] = (Kafkapy, ApacheKafka)


def new_pair(servers: str, directory: Path) -> list[Server]:
    """Return kafkapy and Apache Kafka, not started, with directories of their own below `directory`."""
    if servers == TLS:
        return [_with_tls(kind, directory) for kind in KINDS]
    if servers == THREE_NODES:
        return [ThreeNodes(kind, directory) for kind in KINDS]
    if servers == TWO_DIRECTORIES:
        return [_with_two_directories(kind, directory / kind.__name__) for kind in KINDS]
    properties = {"log.cleaner.backoff.ms": "50"} if servers == CLEANING else {}
    return [kind(directory / kind.__name__, properties) for kind in KINDS]


def _with_two_directories(kind: type[Kafkapy] | type[ApacheKafka], directory: Path) -> Server:
    return kind(directory, {"log.dirs": f"{directory},{second_directory(directory)}"})


def second_directory(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}-second")


def _with_tls(kind: type[Kafkapy] | type[ApacheKafka], directory: Path) -> Server:
    """TLS on the clients' listener with a certificate made for it; the controller's stays plaintext."""
    keys, certificate = make_certificate(directory)
    port = free_port()
    properties = {
        "listeners": f"SSL://127.0.0.1:{port}",
        "security.inter.broker.protocol": "SSL",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,SSL:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate),
    }
    if kind is ApacheKafka:
        controller_port = free_port()
        properties["listeners"] += f",CONTROLLER://127.0.0.1:{controller_port}"
        properties["controller.quorum.bootstrap.servers"] = f"127.0.0.1:{controller_port}"
    server = kind(directory / kind.__name__, properties)
    server.port = port
    server.client_settings = {"security.protocol": "ssl", "ssl.ca.location": str(certificate)}
    server.java_settings = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate),
    }
    return server


class ThreeNodes(Server):
    """Three nodes, each broker and controller, that cost what they cost together."""

    def __init__(self, kind: type[Kafkapy] | type[ApacheKafka], directory: Path) -> None:
        controller_ports = [free_port() for _ in range(3)]
        voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in enumerate(controller_ports, start=1))
        self.nodes: Sequence[Server] = [
            _node(kind, directory / f"{kind.__name__}-{node_id}", node_id, port, voters)
            for node_id, port in enumerate(controller_ports, start=1)
        ]
        super().__init__(self.nodes[0].name, directory)

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes)

    def prepare(self) -> None:
        for node in self.nodes:
            node.prepare()

    def start(self, timeout_s: float = 180) -> Self:
        """Start all; each waits for the others to elect a controller."""
        try:
            for node in self.nodes:
                node.launch()
            for node in self.nodes:
                node.wait_until_ready(timeout_s)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, with_signal: int = signal.SIGTERM, timeout_s: float = 60) -> int:
        return max(node.stop(with_signal, timeout_s) for node in self.nodes)

    def cpu_s(self) -> float:
        return sum(node.cpu_s() for node in self.nodes)

    def memory_mb(self, what: str = "VmRSS") -> float:
        return sum(node.memory_mb(what) for node in self.nodes)

    def forget_peak(self) -> None:
        for node in self.nodes:
            node.forget_peak()


def _node(
    kind: type[Kafkapy] | type[ApacheKafka], directory: Path, node_id: int, controller_port: int, voters: str
) -> Server:
    port = free_port()
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": voters,
        "offsets.topic.replication.factor": "3",
    }
    if kind is ApacheKafka:
        properties["controller.quorum.bootstrap.servers"] = ""
    server = kind(directory, properties)
    server.port = port
    return server
