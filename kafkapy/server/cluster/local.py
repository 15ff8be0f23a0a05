"""A cluster of processes on this machine, kept in a directory: created, started, inspected, stopped, extended.

Every call reads the cluster's state from its directory, so that commands in different processes may share it.
"""

import contextlib
import itertools
import shutil
import signal
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol, Self

from kafkapy.config.load import load
from kafkapy.config.properties import format_properties, parse_properties
from kafkapy.errors import KafkapyError, ProtocolError
from kafkapy.private_file import write_private
from kafkapy.server.cluster import queries
from kafkapy.server.cluster.moving import move, replicas_of, targets
from kafkapy.server.cluster.plan import (
    BROKER,
    CONTROLLER,
    FIRST_CONTROLLER_ID,
    HOST,
    PLAINTEXT,
    ClusterError,
    ClusterPlan,
    NodePlan,
    Proxied,
    add_proxies,
    free_ports,
    new_plan,
)
from kafkapy.server.cluster.processes import POLL_S, STOP_TIMEOUT_S, NodeChannels, NodeProcess
from kafkapy.server.cluster.status import ClusterStatus, NodeStatus, add_partitions, or_none
from kafkapy.server.cluster.voters import CONTROLLER_LISTENER, leave_quorum, replace_voter
from kafkapy.server.process.system_clock import SystemClock, SystemRandom
from kafkapy.storage.checkpoint import META_PROPERTIES_FILE, decode_meta_properties
from kafkapy.storage.offline.format import FormatRequest, Voter, format_directories
from kafkapy.storage.system_disk import SystemDisk
from kafkapy.types import Uuid, uuid_from_string, uuid_to_string

START_TIMEOUT_S: Final = 60.0
"""A cluster is ready in a few seconds, on a busy machine in ten times as many."""


class NodeProxies(Protocol):
    """Proxies through which the nodes of a test's cluster reach each other (embedded/proxies.py)."""

    @property
    def proxied(self) -> Proxied: ...

    def listen(self, node: NodePlan) -> None:
        """Open the proxies of a node: what connects there is forwarded to the node's own ports. Raises OSError."""

    def partition(self, *groups: Collection[int]) -> None:
        """Restrict nodes to their own group: other connections end, new ones are closed at once."""

    def hold(self, sources: Iterable[int], targets: Iterable[int]) -> None:
        """Keep back what the sources send to the targets until `heal`: requests and responses. Nothing is closed."""

    def heal(self) -> None:
        """Reconnect all nodes, and deliver the bytes that were held back."""


class LocalCluster:
    """The nodes of one directory."""

    def __init__(self, data_dir: Path, plan: ClusterPlan, proxies: NodeProxies | None = None) -> None:
        self._proxies = proxies
        self._channels: NodeChannels | None = None
        self.data_dir = data_dir
        self.plan = plan
        self.processes = {node.node_id: NodeProcess(data_dir, node) for node in plan.nodes}

    @classmethod
    def create(
        cls,
        data_dir: Path,
        *,
        broker_count: int,
        controller_count: int = 0,
        properties: Mapping[str, str] | None = None,
        first_port: int = 0,
        proxies: NodeProxies | None = None,
        client_protocol: str = PLAINTEXT,
    ) -> Self:
        """Create a cluster in a directory that has none, and format its nodes. Raises ClusterError, OSError.

        proxies: the nodes reach each other through these only; the caller closes them. client_protocol: of the listener
        for clients; `properties` have what it needs.
        """
        if (data_dir / "cluster.json").exists():
            raise ClusterError(f"{data_dir} holds a cluster already: `kafkapy cluster add` adds a broker to it")
        random = SystemRandom()
        plan = new_plan(
            uuid_to_string(random.uuid()),
            broker_count,
            controller_count,
            properties or {},
            first_port=first_port,
            proxied=Proxied.NONE if proxies is None else proxies.proxied,
            client_protocol=client_protocol,
        )
        for node in plan.nodes:
            load(plan.properties_of(node, str(data_dir)))  # refuses invalid properties before anything is written
        data_dir.mkdir(parents=True, exist_ok=True)
        cluster = cls(data_dir.resolve(), plan, proxies)
        directories = {node.node_id: random.uuid() for node in plan.controllers}
        for node in plan.nodes:
            cluster._format(node, directories)
        plan.save(data_dir)
        if proxies is not None:
            for node in plan.nodes:
                proxies.listen(node)
        return cluster

    @classmethod
    def load(cls, data_dir: Path) -> Self:
        """Return the cluster of a data directory. Raises ClusterError."""
        return cls(data_dir.resolve(), ClusterPlan.load(data_dir))

    def use_channels(self, channels: NodeChannels) -> None:
        """Give nodes that are started from now on a channel to this process."""
        self._channels = channels

    # -- all nodes ------------------------------------------------------------------------------------------------

    def up(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start the nodes that do not run; return once all brokers are unfenced. Raises ClusterError."""
        for process in self.processes.values():
            if process.pid is None:
                process.launch(self._channels)
        self.wait_until_ready(timeout_s=timeout_s)

    def down(self) -> None:
        """Stop all nodes: first the brokers, whose controlled shutdown needs a controller, then the controllers.

        Combined nodes are controllers, too: when too few are left for a quorum, the last ones need not wait for it.
        """
        brokers = [self.processes[node.node_id] for node in self.plan.brokers]
        self._signal(brokers, signal.SIGTERM)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while any(process.pid is not None for process in brokers) and time.monotonic() < deadline:
            if not self.plan.has_quorum([node_id for node_id, each in self.processes.items() if each.pid is not None]):
                break
            time.sleep(POLL_S)
        self._signal(brokers, signal.SIGINT)
        self._wait_until_ended(brokers)
        self._end([node.node_id for node in self.plan.nodes])

    stop_all = down

    def kill_all(self) -> None:
        """Kill all running nodes, and wait until they have ended."""
        self._end([node.node_id for node in self.plan.nodes], signal.SIGKILL)

    def delete(self) -> None:
        """Remove the directory with its data. All nodes have to be stopped. Raises ClusterError."""
        running = [node_id for node_id, process in self.processes.items() if process.pid is not None]
        if running:
            raise ClusterError(f"node {running[0]} runs: `kafkapy cluster down` first")
        shutil.rmtree(self.data_dir)

    def _end(self, node_ids: Iterable[int], with_signal: signal.Signals = signal.SIGTERM) -> None:
        processes = [self.processes[node_id] for node_id in node_ids if self.processes[node_id].pid is not None]
        self._signal(processes, with_signal)
        self._wait_until_ended(processes)

    @staticmethod
    def _signal(processes: Iterable[NodeProcess], with_signal: signal.Signals) -> None:
        for process in processes:
            with contextlib.suppress(ClusterError):  # it does not run, or has ended meanwhile
                process.send(with_signal)

    @staticmethod
    def _wait_until_ended(processes: Iterable[NodeProcess]) -> None:
        for process in processes:
            process.wait_until_ended()

    # -- one node -------------------------------------------------------------------------------------------------

    def start(self, node_id: int, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start a node; return once it answers, and is unfenced if it is a broker. Raises ClusterError."""
        self.plan.node(node_id)
        self.processes[node_id].launch(self._channels)
        self.wait_until_ready([node_id], timeout_s=timeout_s)

    def stop(self, node_id: int) -> None:
        """Stop a node cleanly. Raises ClusterError."""
        self.plan.node(node_id)
        self.processes[node_id].send(signal.SIGTERM)
        self.processes[node_id].wait_until_ended()

    def kill(self, node_id: int) -> None:
        """Kill a node as in a crash. Raises ClusterError."""
        self.plan.node(node_id)
        self.processes[node_id].send(signal.SIGKILL)
        self.processes[node_id].wait_until_ended()

    def add(self, port: int = 0, timeout_s: float = START_TIMEOUT_S) -> NodePlan:
        """Add a broker, start it and return once it is unfenced. It gets only new partitions. Raises ClusterError."""
        node = self.prepare_broker(port)
        self.start(node.node_id, timeout_s)
        return node

    def prepare_broker(self, port: int = 0) -> NodePlan:
        """Format the directory of a new broker without starting it."""
        return self._prepare(
            NodePlan(max(each.node_id for each in self.plan.brokers) + 1, BROKER, port or free_ports(1)[0])
        )

    def add_controller(self, port: int = 0, timeout_s: float = START_TIMEOUT_S) -> NodePlan:
        """Add a separate controller, start it and return once it is a voter. Raises ClusterError."""
        node = self.prepare_controller(port)
        self.start(node.node_id, timeout_s)
        self.make_voter(node, self.ask_broker(), timeout_s)
        return node

    def prepare_controller(self, port: int = 0) -> NodePlan:
        """Format the directory of a new controller; it is neither started nor a voter yet."""
        node_id = max((each.node_id + 1 for each in self.plan.nodes), default=0)
        added = NodePlan(max(node_id, FIRST_CONTROLLER_ID), CONTROLLER, controller_port=port or free_ports(1)[0])
        return self._prepare(added)

    def make_voter(self, node: NodePlan, ask: queries.Ask, timeout_s: float) -> None:
        """Make a running controller a voter, by a request to a broker, in place of one of its former directory.

        Raises OSError, KafkapyError.
        """
        voter = Voter(node.node_id, HOST, node.advertised_controller_port, uuid_from_string(self._directory_id(node)))
        replace_voter(ask, self.plan.cluster_id, voter, CONTROLLER_LISTENER, timeout_s=timeout_s)

    def _directory_id(self, node: NodePlan) -> str:
        """Return the id of a node's directory as text; empty if there is none."""
        path = self.processes[node.node_id].log_dir / META_PROPERTIES_FILE
        try:
            directory_id = decode_meta_properties(path.read_bytes(), str(path)).directory_id
        except FileNotFoundError:
            return ""
        return uuid_to_string(directory_id) if directory_id is not None else ""

    def add_voter(self, node_id: int) -> None:
        """Make a running controller a voter again, for example after its directory was lost. Raises as `make_voter`."""
        node = self.plan.node(node_id)
        if not node.is_controller:
            raise ClusterError(f"node {node_id} is no controller")
        if not self.is_running(node_id):
            raise ClusterError(f"node {node_id} is not running: `kafkapy cluster start {node_id}` starts it")
        self.make_voter(node, self.ask_broker(), START_TIMEOUT_S)

    def _prepare(self, node: NodePlan) -> NodePlan:
        if self._proxies is not None:
            ports = [port for port in free_ports(5) if port not in (node.port, node.controller_port)]
            add_proxies(node, ports, to_clients=self._proxies.proxied is Proxied.CLIENTS_TOO)
            self._proxies.listen(node)
        elif node.is_broker and self.plan.client_protocol != PLAINTEXT:
            node.peer_port = next(port for port in free_ports(2) if port != node.port)
        self.plan.nodes.append(node)
        self.processes[node.node_id] = NodeProcess(self.data_dir, node)
        self._format(node, {})
        self._write_controllers()
        self.plan.save(self.data_dir)
        return node

    def is_running(self, node_id: int) -> bool:
        process = self.processes.get(node_id)
        return process is not None and process.pid is not None

    def pause(self, node_id: int) -> None:
        """Freeze a node with its connections open. Raises ClusterError."""
        self.plan.node(node_id)
        self.processes[node_id].send(signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        """Continue a paused node. Raises ClusterError."""
        self.plan.node(node_id)
        self.processes[node_id].send(signal.SIGCONT)

    def log_of(self, node_id: int) -> str:
        """Return the output of a node so far. Raises ClusterError."""
        self.plan.node(node_id)
        return self.processes[node_id].log_file.read_text(errors="replace")

    def partition(self, *groups: Collection[int], one_way: bool = False) -> None:
        """Partition the network of nodes that reach each other through proxies. Raises ClusterError."""
        for node_id in itertools.chain(*groups):
            self.plan.node(node_id)
        proxies = self._require_proxies()
        if one_way:
            proxies.hold(groups[0], itertools.chain(*groups[1:]))
        else:
            proxies.partition(*groups)

    def heal(self) -> None:
        """End all network partitions. Raises ClusterError."""
        self._require_proxies().heal()

    def _require_proxies(self) -> NodeProxies:
        if self._proxies is None:
            raise ClusterError("only a cluster in a temporary directory (without data_dir) can be partitioned")
        return self._proxies

    def move(self, topic: str, broker_ids: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Move a topic's partitions to these brokers; yield (completed, total) counts. Raises ClusterError."""
        ask = self.ask_broker()
        yield from move(ask, topic, targets(replicas_of(ask, topic), broker_ids))

    def remove(self, node_id: int) -> None:
        """Remove a node and its directory: a broker without replicas, or a separate controller.

        Raises ClusterError.
        """
        node = self.plan.node(node_id)
        if node.is_controller and node.is_broker:
            raise ClusterError(f"node {node_id} is broker and controller: only nodes of one role are removed")
        if node.is_controller:
            self._leave_quorum(node)
        else:
            self._unregister(node)
        self.plan.nodes.remove(node)
        self.plan.save(self.data_dir)
        process = self.processes.pop(node_id)
        self._write_controllers()
        shutil.rmtree(process.log_dir, ignore_errors=True)
        process.properties_file.unlink(missing_ok=True)

    def _leave_quorum(self, node: NodePlan) -> None:
        """Remove a controller from the voters, then stop it."""
        if len(self.plan.controllers) == 1:
            raise ClusterError(f"node {node.node_id} is the only controller")
        leave_quorum(self.ask_broker(), self.plan.cluster_id, node.node_id, timeout_s=START_TIMEOUT_S)
        if self.processes[node.node_id].pid is not None:
            self.stop(node.node_id)

    def _unregister(self, node: NodePlan) -> None:
        """Stop a broker that holds no replicas, and unregister it."""
        node_id = node.node_id
        count = queries.partitions(self.ask_broker()).replica_counts.get(node_id, 0)
        if count:
            move = "move them with `kafkapy cluster move` first"
            raise ClusterError(f"node {node_id} has replicas of {count} partitions: {move}")
        if self.processes[node_id].pid is not None:
            self.stop(node_id)
        with contextlib.suppress(ProtocolError):  # a controller without UnregisterBroker keeps it as a fenced one
            queries.unregister(self.ask_broker(), node_id)

    # -- status ---------------------------------------------------------------------------------------------------

    def wait_until_ready(self, node_ids: Iterable[int] | None = None, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return once the nodes (all, if none are named) answer, and the brokers among them are unfenced.

        Raises ClusterError if a node ends, or on time-out.
        """
        nodes = [self.plan.node(node_id) for node_id in node_ids] if node_ids is not None else self.plan.nodes
        deadline = time.monotonic() + timeout_s
        waiting = [node for node in nodes if not self._is_ready(node)]
        while waiting:
            for node in waiting:
                self.processes[node.node_id].check_runs()
            if time.monotonic() > deadline:
                process = self.processes[waiting[0].node_id]
                message = (
                    f"node {waiting[0].node_id} is not ready after {timeout_s:.0f} s: look into {process.log_file}"
                )
                raise ClusterError(message)
            time.sleep(POLL_S)
            waiting = [node for node in waiting if not self._is_ready(node)]

    def _is_ready(self, node: NodePlan) -> bool:
        """Return whether a node answers; a broker answers clients once it is unfenced."""
        try:
            if node.is_broker:
                return queries.brokers(queries.asking(node.query_address)).get(node.node_id, False)
            queries.api_versions(queries.asking(node.query_address))
        except (OSError, KafkapyError):
            return False
        return True

    def status(self) -> ClusterStatus:
        """Return the state of the cluster, as far as nodes answer."""
        ask = self._find_broker()
        quorum = or_none(lambda: queries.quorum(ask)) if ask is not None else None
        found = or_none(lambda: queries.partitions(ask)) if ask is not None else None
        unfenced = (or_none(lambda: queries.brokers(ask)) if ask is not None else None) or {}
        nodes = [
            NodeStatus(
                node.node_id,
                node.roles,
                f"{node.address[0]}:{node.address[1]}",
                self.processes[node.node_id].pid,
                self._state(node, unfenced.get(node.node_id, False), quorum),
            )
            for node in self.plan.nodes
        ]
        own = {(node.node_id, self._directory_id(node)) for node in self.plan.controllers}
        followers = quorum.others if quorum is not None else []
        without_vote = [each for each in followers if (each.node_id, each.directory_id) in own]
        at_risk = [] if found is None else found.led_by(self._silent_brokers())
        status = ClusterStatus(nodes, quorum, found, at_risk, without_vote)
        if ask is not None and found is not None:
            or_none(lambda: add_partitions(ask, status))
        return status

    def _silent_brokers(self) -> set[int]:
        """Return the brokers that do not run, or do not answer."""
        return {
            node.node_id
            for node in self.plan.brokers
            if self.processes[node.node_id].pid is None or not self._is_ready(node)
        }

    def _state(self, node: NodePlan, is_unfenced: bool, quorum: queries.QuorumView | None) -> str:
        if self.processes[node.node_id].pid is None:
            return "stopped"
        if node.is_broker and not is_unfenced:
            return "fenced"
        return "running, active controller" if quorum is not None and quorum.leader_id == node.node_id else "running"

    def _find_broker(self) -> queries.Ask | None:
        """Return the function that sends requests to a broker that answers; None if none does."""
        for node in self.plan.brokers:
            if self.processes[node.node_id].pid is not None and self._is_ready(node):
                return queries.asking(node.query_address)
        return None

    def ask_broker(self) -> queries.Ask:
        """Return the function that sends requests to a broker that answers. Raises ClusterError."""
        ask = self._find_broker()
        if ask is None:
            raise ClusterError("no broker answers: `kafkapy cluster up` starts what does not run")
        return ask

    # -- formatting -----------------------------------------------------------------------------------------------

    def _format(self, node: NodePlan, directories: Mapping[int, Uuid]) -> None:
        """Write a node's properties, format its log directory. `directories`: the voters' ids. Raises KafkapyError."""
        config, _ = load(self._write_properties(node))
        voters = [
            Voter(each.node_id, each.address[0], each.advertised_controller_port, directories[each.node_id])
            for each in self.plan.controllers
            if node.node_id in directories
        ]
        request = FormatRequest(
            config,
            self.plan.cluster_id,
            voters=voters or None,
            has_no_initial_controllers=node.is_controller and not voters,
            ignore_formatted=True,
        )
        format_directories(request, SystemDisk(), SystemRandom(), SystemClock(), say=lambda line: None)

    def _write_properties(self, node: NodePlan) -> dict[str, str]:
        """Write a node's server.properties and return its content. Raises OSError."""
        process = self.processes[node.node_id]
        properties = self.plan.properties_of(node, str(process.log_dir))
        write_private(process.properties_file, format_properties(properties))
        return properties

    def _write_controllers(self) -> None:
        """Write the list of controllers into all nodes' properties, for their next start. Raises OSError."""
        for process in self.processes.values():
            properties = parse_properties(process.properties_file.read_text())
            properties["controller.quorum.bootstrap.servers"] = self.plan.quorum_bootstrap_servers
            write_private(process.properties_file, format_properties(properties))
