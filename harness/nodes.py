"""Several nodes that form a cluster: of one kind, or kafkapy and Apache Kafka together, of whatever roles."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

from harness.servers import QUICK_JVM, ApacheKafka, Kafkapy, Server, free_port

Kind: TypeAlias = type[Kafkapy] | type[ApacheKafka]

COMBINED = "broker,controller"
BROKER = "broker"
CONTROLLER = "controller"


@dataclass(frozen=True)
class Plan:
    """What one node is to be."""

    kind: Kind
    node_id: int
    roles: str = COMBINED


class Nodes(Server):
    """Nodes that cost what they cost together. `bootstrap`: of the brokers; `controllers_bootstrap`."""

    def __init__(
        self,
        plans: Sequence[Plan],
        directory: Path,
        properties: Mapping[str, str] | None = None,
        *,
        heap: str = "",
        more_listeners: Sequence[str] = (),
    ) -> None:
        """`properties`: what each node has besides its roles, listeners and voters.

        `heap`: of each JVM, which is then told to compile little; without, they are as Kafka's scripts start them.
        `more_listeners`: names of listeners that each broker has beside PLAINTEXT, at free ports.
        """
        ports = {plan.node_id: free_port() for plan in plans if plan.roles != BROKER}
        voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in ports.items())
        self.by_id: Mapping[int, Server] = {
            plan.node_id: _node(
                plan, directory, ports.get(plan.node_id), voters, properties or {}, heap, more_listeners
            )
            for plan in plans
        }
        self.brokers = [self.by_id[plan.node_id] for plan in plans if plan.roles != CONTROLLER]
        self.controllers_bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports.values())
        super().__init__(self.nodes[0].name, directory)

    @property
    def nodes(self) -> Sequence[Server]:
        return list(self.by_id.values())

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.brokers)

    def prepare(self) -> None:
        for node in self.nodes:
            node.prepare()

    def start(self, timeout_s: float = 300) -> Self:
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

    def revive(self) -> bool:
        are_running = [node.revive() for node in self.nodes]
        return all(are_running)

    def stop(self, with_signal: int = signal.SIGTERM, timeout_s: float = 120) -> int:
        """Stop the brokers, then the controllers: a broker that stops asks them for leave."""
        ordered = [*self.brokers, *(node for node in self.nodes if node not in self.brokers)]
        return max(node.stop(with_signal, timeout_s) for node in ordered)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill all: those that stop last would wait 5 s each for the leave of controllers that are gone."""
        self.stop(signal.SIGKILL)

    def cpu_s(self) -> float:
        return sum(node.cpu_s() for node in self.nodes)

    def kernel_s(self) -> float:
        return sum(node.kernel_s() for node in self.nodes)

    def memory_mb(self, what: str = "VmRSS") -> float:
        return sum(node.memory_mb(what) for node in self.nodes)

    def forget_peak(self) -> None:
        for node in self.nodes:
            node.forget_peak()


class ThreeNodes(Nodes):
    """Three nodes, each broker and controller."""

    def __init__(
        self,
        kinds: Kind | Sequence[Kind],
        directory: Path,
        properties: Mapping[str, str] | None = None,
        *,
        heap: str = "",
        more_listeners: Sequence[str] = (),
    ) -> None:
        """`kinds`: of all nodes, or of each."""
        kinds = [kinds] * 3 if isinstance(kinds, type) else list(kinds)
        plans = [Plan(kind, number) for number, kind in enumerate(kinds, start=1)]
        super().__init__(plans, directory, properties, heap=heap, more_listeners=more_listeners)


def _node(
    plan: Plan,
    directory: Path,
    controller_port: int | None,
    voters: str,
    more: Mapping[str, str],
    heap: str,
    more_listeners: Sequence[str],
) -> Server:
    port = free_port()
    listeners = []
    if plan.roles != CONTROLLER:
        listeners.append(f"PLAINTEXT://127.0.0.1:{port}")
        listeners += [f"{name}://127.0.0.1:{free_port()}" for name in more_listeners]
    if controller_port is not None:
        listeners.append(f"CONTROLLER://127.0.0.1:{controller_port}")
    properties = {
        "offsets.topic.replication.factor": "3",
        **more,
        "process.roles": plan.roles,
        "node.id": str(plan.node_id),
        "listeners": ",".join(listeners),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": voters,
    }
    if issubclass(plan.kind, ApacheKafka):
        properties["controller.quorum.bootstrap.servers"] = ""
    server: Kafkapy | ApacheKafka = plan.kind(directory / f"{plan.kind.__name__}-{plan.node_id}", properties)
    if isinstance(server, ApacheKafka):
        server.heap = heap or server.heap
        server.jvm_options = QUICK_JVM if heap else server.jvm_options
    server.port = controller_port if plan.roles == CONTROLLER and controller_port is not None else port
    return server
