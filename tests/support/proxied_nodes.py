"""Three nodes, each broker and controller, that reach each other through proxies only; clients reach them directly."""

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from harness.servers import Kafkapy, free_port
from kafkapy.embedded.proxies import Proxies
from kafkapy.errors import KafkapyError
from kafkapy.server.cluster import queries

NODE_IDS = (1, 2, 3)
START_S = 180


class ProxiedNode(Kafkapy):
    """A node whose environment a test may change before it starts it."""

    def __init__(self, directory: Path, node_id: int, properties: dict[str, str]) -> None:
        super().__init__(directory, properties)
        self.node_id = node_id
        self.more_environment: dict[str, str] = {}
        self.is_paused = False

    def environment(self) -> dict[str, str]:
        return {**os.environ, **self.more_environment}

    @property
    def has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def kill(self) -> None:
        self.is_paused = False
        self.stop(signal.SIGKILL)

    def pause(self) -> None:
        self._send(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        self._send(signal.SIGCONT)
        self.is_paused = False

    def _send(self, with_signal: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(with_signal)


class ProxiedNodes:
    """A context manager. `nodes`: by id."""

    def __init__(self, directory: Path, properties: Mapping[str, str]) -> None:
        self.proxies = Proxies()
        ports = _free_ports(5 * len(NODE_IDS))
        by_node = {node_id: [ports.pop() for _ in range(5)] for node_id in NODE_IDS}
        voters = ",".join(f"{node_id}@127.0.0.1:{each[4]}" for node_id, each in by_node.items())
        self.controller_ports = {node_id: each[3] for node_id, each in by_node.items()}
        self.nodes: dict[int, ProxiedNode] = {}
        for node_id, (port, peer_port, peer_proxy, controller_port, controller_proxy) in by_node.items():
            listens = f"PLAINTEXT://127.0.0.1:{port},PEERS://127.0.0.1:{peer_port}"
            advertised = f"PLAINTEXT://127.0.0.1:{port},PEERS://127.0.0.1:{peer_proxy}"
            own = {
                "process.roles": "broker,controller",
                "node.id": str(node_id),
                "listeners": f"{listens},CONTROLLER://127.0.0.1:{controller_port}",
                "advertised.listeners": f"{advertised},CONTROLLER://127.0.0.1:{controller_proxy}",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PEERS:PLAINTEXT",
                "inter.broker.listener.name": "PEERS",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": voters,
            }
            node = ProxiedNode(directory / f"node-{node_id}", node_id, {**properties, **own})
            node.port = port
            self.nodes[node_id] = node
            self.proxies.forward(node_id, peer_proxy, peer_port)
            self.proxies.forward(node_id, controller_proxy, controller_port)

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def __enter__(self) -> Self:
        try:
            for node in self.nodes.values():
                node.prepare()
            for node in self.nodes.values():
                node.launch()
            for node in self.nodes.values():
                node.wait_until_ready(START_S)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for node in self.nodes.values():
            node.kill()
        self.proxies.close()

    def stop(self) -> None:
        """Stop all at once, with SIGTERM."""
        processes = [node.process for node in self.nodes.values() if node.process is not None]
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            try:
                process.wait(START_S)
            except subprocess.TimeoutExpired:
                process.kill()

    def leader_of(self, topic: str, partition: int) -> int | None:
        """Return the leader that any node tells, None if none does."""
        for node in self._answering():
            try:
                leader = queries.partitions(queries.asking(("127.0.0.1", node.port))).leaders[topic][partition]
            except (OSError, KafkapyError, KeyError):
                continue
            if leader in self.nodes:
                return leader
        return None

    def controller(self) -> int | None:
        """Return the active controller that any node tells, None if none does."""
        for node in self._answering():
            try:
                leader_id, _ = queries.controllers(queries.asking(("127.0.0.1", self.controller_ports[node.node_id])))
            except (OSError, KafkapyError):
                continue
            if leader_id in self.nodes:
                return leader_id
        return None

    def _answering(self) -> list[ProxiedNode]:
        return [node for node in self.nodes.values() if not node.has_ended and not node.is_paused]


def _free_ports(count: int) -> list[int]:
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
    return list(found)
