"""Several nodes that form a cluster: of one kind, or kafkapy and Apache Kafka in one quorum."""

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self, TypeAlias

from harness.servers import ApacheKafka, Kafkapy, Server, free_port

Kind: TypeAlias = type[Kafkapy] | type[ApacheKafka]


class ThreeNodes(Server):
    """Three nodes, each broker and controller, that cost what they cost together."""

    def __init__(
        self,
        kinds: Kind | Sequence[Kind],
        directory: Path,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """`kinds`: of all nodes, or of each. `properties`: what each node has besides its listeners and voters."""
        kinds = [kinds] * 3 if isinstance(kinds, type) else list(kinds)
        controller_ports = [free_port() for _ in range(3)]
        voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in enumerate(controller_ports, start=1))
        self.nodes: Sequence[Server] = [
            _node(kind, directory / f"{kind.__name__}-{node_id}", node_id, port, voters, properties or {})
            for node_id, (kind, port) in enumerate(zip(kinds, controller_ports, strict=True), start=1)
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
    kind: Kind, directory: Path, node_id: int, controller_port: int, voters: str, more: Mapping[str, str]
) -> Server:
    port = free_port()
    properties = {
        "offsets.topic.replication.factor": "3",
        **more,
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": voters,
    }
    if kind is ApacheKafka:
        properties["controller.quorum.bootstrap.servers"] = ""
    server = kind(directory, properties)
    server.port = port
    return server
