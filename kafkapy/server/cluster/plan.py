"""The plan of a cluster on one machine: its nodes, their roles and ports, and the configuration of each.

DATA_DIR/cluster.json keeps it. Node N has the files node-N.properties, node-N.log (its output), node-N.pid and the log
directory node-N. The quorum's voters are in its log (kraft.version 1, KIP-853).
"""

import enum
import json
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path
from random import SystemRandom
from typing import Final

from kafkapy.config.embedded import PROTOCOL_MAP
from kafkapy.dataclass import dataclass
from kafkapy.errors import KafkapyError
from kafkapy.private_file import write_private

HOST: Final = "127.0.0.1"
LISTENING_PORTS: Final = range(15_000, 32_000)
"""Ports below the kernel's ephemeral ones, of which an outgoing connection could take one that was free."""
STATE_FILE: Final = "cluster.json"
STATE_VERSION: Final = 1
FIRST_CONTROLLER_ID: Final = 101
"""Ids of separate controllers; brokers are numbered from 1."""
MAX_COMBINED: Final = 3
"""How many brokers are also controllers if no separate ones are requested: three tolerate the loss of one."""
MAX_REPLICATION_FACTOR: Final = 3
BROKER: Final = "broker"
CONTROLLER: Final = "controller"
COMBINED: Final = "broker,controller"
PEERS_LISTENER: Final = "PEERS"
"""The listener for other brokers, if there are proxies or clients log in; it is PLAINTEXT."""
PLAINTEXT: Final = "PLAINTEXT"


class ClusterError(KafkapyError):
    """A request that the cluster cannot fulfil; one line that says what to do instead."""


class Proxied(enum.Enum):
    """Whose connections to the nodes go through proxies: a test may cut those."""

    NONE = enum.auto()
    NODES = enum.auto()
    CLIENTS_TOO = enum.auto()


@dataclass(slots=True)
class NodePlan:
    """One node. `port`: for clients, 0 for a separate controller; `controller_port`: 0 if it is only a broker.

    `peer_port`, where a broker listens for other nodes, is 0 if they use the clients' listener. The proxies' ports,
    which a node advertises to others, are 0 without proxies between the nodes, or to clients.
    """

    node_id: int
    roles: str
    port: int = 0
    controller_port: int = 0
    peer_port: int = 0
    peer_proxy_port: int = 0
    controller_proxy_port: int = 0
    client_proxy_port: int = 0

    @property
    def is_proxied(self) -> bool:
        return bool(self.peer_proxy_port or self.controller_proxy_port)

    @property
    def has_own_listener(self) -> bool:
        """Whether other nodes reach it elsewhere than clients."""
        return self.is_proxied or bool(self.peer_port)

    @property
    def query_address(self) -> tuple[str, int]:
        """The address where it answers plain requests without a login."""
        return HOST, self.peer_port or self.port or self.controller_port

    @property
    def advertised_port(self) -> int:
        """The port of the client listener that clients get."""
        return self.client_proxy_port or self.port

    @property
    def advertised_controller_port(self) -> int:
        """The port of the controller listener that other nodes get."""
        return self.controller_proxy_port or self.controller_port

    @property
    def is_broker(self) -> bool:
        return self.roles != CONTROLLER

    @property
    def is_controller(self) -> bool:
        return self.roles != BROKER

    @property
    def address(self) -> tuple[str, int]:
        """The address where the node answers: its client listener, else its controller listener."""
        return HOST, self.port or self.controller_port


@dataclass(slots=True)
class ClusterPlan:
    """A whole cluster. `properties`: common to all nodes, in addition to those that their plans define.

    client_protocol: of the listener for clients. If it is not PLAINTEXT, each broker has a `peer_port`.
    """

    cluster_id: str
    nodes: list[NodePlan]
    properties: dict[str, str] = field(default_factory=dict)
    client_protocol: str = PLAINTEXT

    @property
    def brokers(self) -> list[NodePlan]:
        return [node for node in self.nodes if node.is_broker]

    @property
    def controllers(self) -> list[NodePlan]:
        return [node for node in self.nodes if node.is_controller]

    def has_quorum(self, running: Collection[int]) -> bool:
        """Return whether a majority of the controllers is among the nodes that run."""
        return sum(node.node_id in running for node in self.controllers) > len(self.controllers) // 2

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{node.advertised_port}" for node in self.brokers)

    @property
    def bootstrap_controllers(self) -> str:
        return ",".join(f"{HOST}:{node.controller_port}" for node in self.controllers)

    @property
    def quorum_bootstrap_servers(self) -> str:
        """`host:port` of all controllers, comma-separated, for the nodes."""
        return ",".join(f"{HOST}:{node.advertised_controller_port}" for node in self.controllers)

    @property
    def is_proxied(self) -> bool:
        """Whether the nodes reach each other through proxies only."""
        return any(node.is_proxied for node in self.nodes)

    def node(self, node_id: int) -> NodePlan:
        """Return the plan of one node. Raises ClusterError."""
        for node in self.nodes:
            if node.node_id == node_id:
                return node
        known = ", ".join(str(node.node_id) for node in self.nodes)
        raise ClusterError(f"there is no node {node_id}: this cluster has the nodes {known}")

    def properties_of(self, node: NodePlan, log_dir: str) -> dict[str, str]:
        """Return the node's complete server.properties."""
        listeners = []
        if node.is_broker:
            listeners.append(f"{self.client_protocol}://{HOST}:{node.port}")
        if node.is_controller:
            listeners.append(f"CONTROLLER://{HOST}:{node.controller_port}")
        return {
            **self.properties,
            "process.roles": node.roles,
            "node.id": str(node.node_id),
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": self.quorum_bootstrap_servers,
            "listener.security.protocol.map": PROTOCOL_MAP,
            "log.dirs": log_dir,
            **(_peer_properties(node, listeners, self.client_protocol) if node.has_own_listener else {}),
        }

    def save(self, data_dir: Path) -> None:
        """Write cluster.json. Raises OSError."""
        text = json.dumps({"version": STATE_VERSION, **asdict(self)}, indent=2)
        write_private(data_dir / STATE_FILE, text + "\n")

    @classmethod
    def load(cls, data_dir: Path) -> "ClusterPlan":
        """Read the plan that a data directory holds. Raises ClusterError."""
        path = data_dir / STATE_FILE
        try:
            state = json.loads(path.read_text())
            nodes = [NodePlan(**node) for node in state["nodes"]]
            return cls(state["cluster_id"], nodes, state["properties"], state.get("client_protocol", PLAINTEXT))
        except FileNotFoundError:
            raise ClusterError(
                f"{data_dir} holds no cluster: `kafkapy cluster up --data-dir {data_dir}` makes one"
            ) from None
        except (ValueError, LookupError, TypeError) as error:
            raise ClusterError(
                f"{path} cannot be read ({error}): restore it, or start again in another --data-dir"
            ) from error


OWN_KEYS: Final = frozenset(
    (
        "process.roles",
        "node.id",
        "broker.id",
        "listeners",
        "advertised.listeners",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "listener.security.protocol.map",
        "log.dirs",
        "log.dir",
        "metadata.log.dir",
    )
)
"""Keys that differ from node to node, which must not be set for all."""


def _peer_properties(node: NodePlan, listeners: Sequence[str], client_protocol: str) -> dict[str, str]:
    """Return the keys by which a node has a listener for other nodes, and advertises its proxies to them."""
    peer_port = node.peer_proxy_port or node.peer_port
    advertised = [f"{client_protocol}://{HOST}:{node.advertised_port}", f"{PEERS_LISTENER}://{HOST}:{peer_port}"]
    properties = {"listener.security.protocol.map": f"{PROTOCOL_MAP},{PEERS_LISTENER}:PLAINTEXT"}
    if node.is_broker:
        properties["inter.broker.listener.name"] = PEERS_LISTENER
        listeners = [*listeners, f"{PEERS_LISTENER}://{HOST}:{node.peer_port}"]
    else:
        advertised = []
    if node.is_controller:
        advertised.append(f"CONTROLLER://{HOST}:{node.advertised_controller_port}")
    return {**properties, "listeners": ",".join(listeners), "advertised.listeners": ",".join(advertised)}


def add_proxies(node: NodePlan, ports: list[int], *, to_clients: bool) -> None:
    """Give a node a listener for other nodes, and proxies, at the first of these ports, which are removed."""
    if node.is_broker:
        node.peer_port, node.peer_proxy_port = ports.pop(0), ports.pop(0)
    if node.is_controller:
        node.controller_proxy_port = ports.pop(0)
    if node.is_broker and to_clients:
        node.client_proxy_port = ports.pop(0)


def new_plan(
    cluster_id: str,
    broker_count: int,
    controller_count: int,
    properties: Mapping[str, str],
    first_port: int = 0,
    *,
    proxied: Proxied = Proxied.NONE,
    client_protocol: str = PLAINTEXT,
) -> ClusterPlan:
    """Return the plan of a new cluster. Without separate controllers, the first brokers are also controllers.

    first_port: of the first broker, the next ports for the others; 0 for free ones. `proxied`: who connects to the
    nodes through proxies. Raises ClusterError.
    """
    _check_arguments(broker_count, controller_count, properties)
    is_proxied, has_client_proxies = proxied is not Proxied.NONE, proxied is Proxied.CLIENTS_TOO
    combined = 0 if controller_count else combined_count(broker_count)
    all_controllers = max(combined, controller_count)
    has_peer_ports = client_protocol != PLAINTEXT and not is_proxied
    count = broker_count + all_controllers + (2 * broker_count + all_controllers if is_proxied else 0)
    count += broker_count * (has_peer_ports + has_client_proxies)
    # the brokers' come first: theirs are the ports that clients know, all others only the cluster itself
    ports = (
        free_ports(count)
        if first_port == 0
        else [*_ports_from(first_port, broker_count), *free_ports(count - broker_count)]
    )
    nodes = [
        NodePlan(number, COMBINED if number <= combined else BROKER, port=ports.pop(0))
        for number in range(1, broker_count + 1)
    ]
    nodes += [NodePlan(FIRST_CONTROLLER_ID + number, CONTROLLER) for number in range(controller_count)]
    for node in nodes:
        if node.is_controller:
            node.controller_port = ports.pop(0)
        if is_proxied:
            add_proxies(node, ports, to_clients=has_client_proxies)
        elif has_peer_ports and node.is_broker:
            node.peer_port = ports.pop(0)
    all_properties = {**defaults(broker_count), **topic_defaults(broker_count), **properties}
    return ClusterPlan(cluster_id, nodes, all_properties, client_protocol)


def _check_arguments(broker_count: int, controller_count: int, properties: Mapping[str, str]) -> None:
    """Raise ClusterError if no cluster is planned with these."""
    if broker_count < 1:
        raise ClusterError(f"{broker_count} brokers are too few: a cluster has at least one")
    if controller_count < 0:
        raise ClusterError(f"{controller_count} separate controllers are too few: 0 lets brokers be controllers, too")
    taken = sorted(OWN_KEYS.intersection(properties))
    if taken:
        raise ClusterError(f"{taken[0]} differs from node to node: leave it out, the cluster sets it")


def combined_count(broker_count: int) -> int:
    """Return how many brokers are also controllers: of two only one, as with two voters the loss of either is fatal."""
    return MAX_COMBINED if broker_count >= MAX_COMBINED else 1


def defaults(broker_count: int) -> dict[str, str]:
    """Return the settings that internal topics need with so many brokers: Kafka's defaults if there are three."""
    factor = str(min(broker_count, MAX_REPLICATION_FACTOR))
    min_isr = "2" if broker_count >= MAX_REPLICATION_FACTOR else "1"
    return {
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": min_isr,
        "share.coordinator.state.topic.replication.factor": factor,
        "share.coordinator.state.topic.min.isr": min_isr,
        "group.initial.rebalance.delay.ms": "0",
    }


def topic_defaults(broker_count: int) -> dict[str, str]:
    """Return the replication defaults of new topics; three replicas survive the loss of a node.

    The cluster keeps these when it grows. One or two brokers could not write after the loss of one with 2 in sync.
    """
    return {
        "default.replication.factor": str(min(broker_count, MAX_REPLICATION_FACTOR)),
        "min.insync.replicas": "2" if broker_count >= MAX_REPLICATION_FACTOR else "1",
    }


def free_ports(count: int) -> list[int]:
    """Return `count` ports that are free now. Raises ClusterError if there are not enough."""
    found: list[int] = []
    for port in SystemRandom().sample(LISTENING_PORTS, len(LISTENING_PORTS)):
        if len(found) == count:
            return found
        try:
            socket.create_server((HOST, port)).close()
        except OSError:
            continue
        found.append(port)
    raise ClusterError(f"{count} ports are wanted, of {LISTENING_PORTS} only {len(found)} are free")


def _ports_from(first_port: int, count: int) -> Sequence[int]:
    """Return `count` ports from `first_port` on. Raises ClusterError if one is in use."""
    ports = range(first_port, first_port + count)
    for port in ports:
        try:
            socket.create_server((HOST, port)).close()
        except (OSError, OverflowError):
            raise ClusterError(f"port {port} cannot be used: --port takes another first one, 0 free ones") from None
    return ports
