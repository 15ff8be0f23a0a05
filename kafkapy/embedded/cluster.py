"""`kafkapy.Cluster`: several nodes for a test, each a process of its own.

    with Cluster(3) as cluster:
        Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        cluster.kill(cluster.leader_of("orders", 0))
        cluster.partition({1}, {2, 3})

    async with Cluster(3) as cluster:           # other calls block: await asyncio.to_thread(cluster.kill, 1)
        ...

    with Cluster(3, tls=True, users={"alice": "secret"}) as cluster:
        Producer(cluster.client_config("alice"))

Node ids: brokers are 1, 2, ...; separate controllers, if requested, are 101, 102, ... Without a data_dir the data is in
a temporary directory that is removed with the cluster, and the nodes are killed at the end; they reach each other
through proxies in this process, so that their network can be partitioned.
"""

import asyncio
import contextlib
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from kafkapy.embedded.controlled.cluster import ControlledNodes
from kafkapy.embedded.in_process import InProcessCluster
from kafkapy.embedded.loop_thread import refuse_in_child
from kafkapy.embedded.network import ClusterClientNetwork, NodeNetwork
from kafkapy.embedded.observer import QUESTION_TIMEOUT_S, ClusterObserver
from kafkapy.embedded.options import (
    CLUSTER_OPTIONS,
    check_data_dir,
    check_options,
    client_config,
    is_count,
    is_virtual,
    security_of,
    texts_of,
)
from kafkapy.embedded.proxies import Proxies
from kafkapy.embedded.temporary import TemporaryDirectory
from kafkapy.embedded.topics import raise_first, request_of_controller, topic_creation, topic_deletion
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.server.cluster import queries
from kafkapy.server.cluster.local import START_TIMEOUT_S, LocalCluster
from kafkapy.server.cluster.plan import HOST, PLAINTEXT, STATE_FILE, ClusterError
from kafkapy.server.process.system_clock import SystemRandom

if TYPE_CHECKING:
    from typing import Unpack

    from kafkapy.embedded.faults.actions import ActingFaults
    from kafkapy.embedded.observed.groups import Groups
    from kafkapy.embedded.observed.observation import Observation
    from kafkapy.embedded.observed.requests import Requests
    from kafkapy.embedded.observed.topics import Topics
    from kafkapy.embedded.options import ClusterOptions
    from kafkapy.embedded.virtual_time import BrokerClock
    from kafkapy.registry.embedded import EmbeddedRegistry

SYNC_TIMEOUT_S: Final = 60.0
"""A follower that was started again joins the ISR within seconds; on a busy machine it may take ten times as long."""


class Cluster:
    """Brokers and controllers on this machine; a sync and async context manager.

    | argument | |
    |---|---|
    | `broker_count` | the first three are also controllers (if fewer than three, the first) |
    | `controller_count` | separate controllers, in place of those |
    | `data_dir` | the data is kept there; None: in a temporary directory |
    | `properties` | Kafka's keys, for every node. Topics have three replicas unless they say otherwise |
    | `in_process` | all nodes on one event loop in a thread; they cannot be killed or paused, but isolated |
    | `tls`, `users`, `acls` | as those of `Broker`; nodes reach each other without them, by ports of their own |
    | `disk_faults` | whether `faults.fill_disk()` and the like work; every access to a file takes longer then |
    | `network_faults` | whether clients reach the nodes through proxies, so that `client_network` can be cut or slow; |
    | | with in_process, nodes reach each other through proxies, too: `network`. Not with data_dir or virtual time |
    | `clock` | "virtual", with in_process: `clock.advance("7d")` moves the time of all nodes on; "system" |
    | `registry` | a schema registry beside it, at `schema_registry_url` (extra `registry`) |
    """

    def __init__(
        self, broker_count: int = 3, *, data_dir: str | Path | None = None, **options: "Unpack[ClusterOptions]"
    ) -> None:
        check_options("Cluster", options, CLUSTER_OPTIONS)
        check_data_dir("Cluster", data_dir)
        if not is_count(broker_count):
            raise TypeError(f"Cluster(broker_count) is a number, not {broker_count!r}")
        self._broker_count = broker_count
        self._controller_count = options.get("controller_count", 0)
        self._data_dir = Path(data_dir) if data_dir is not None else None
        self._properties = texts_of(options.get("properties"))
        self._is_in_process = options.get("in_process", False)
        self._is_virtual = is_virtual(options)
        if self._is_virtual and not self._is_in_process:
            raise ValueError('clock="virtual" moves the time of nodes in this process: add in_process=True')
        self._security = security_of(options)
        self._temporary: TemporaryDirectory | None = None
        self._proxies: Proxies | None = None
        self._found: LocalCluster | InProcessCluster | None = None
        self._paused: set[int] = set()
        self._has_disk_faults = options.get("disk_faults", False)
        if self._has_disk_faults and self._is_in_process:
            raise ValueError("disk_faults need nodes that are processes: leave in_process out")
        self._client_proxies: Proxies | None = None
        self._client_network: ClusterClientNetwork | None = None
        self._has_network_faults = options.get("network_faults", False)
        if self._has_network_faults:
            _check_network_faults(self._data_dir, is_virtual=self._is_virtual)
        self._controlled: ControlledNodes | None = None
        self._wants_registry = options.get("registry", False)
        self._registry: EmbeddedRegistry | None = None
        self._pid = 0
        """Of the process that has started the nodes. A forked child ends none of them."""

    def __enter__(self) -> Self:
        if self._found is not None:
            raise RuntimeError("this cluster runs already")
        self._pid = os.getpid()
        try:
            found = self._open()
            self._found = InProcessCluster(found, is_virtual=self._is_virtual) if self._is_in_process else found
            if not self._is_in_process:
                self._controlled = ControlledNodes(found, self._paused, has_disk_faults=self._has_disk_faults)
                found.use_channels(self._controlled)
            self._found.up(START_TIMEOUT_S)
            if self._security is not None:
                self._security.apply_to_cluster(self._observer.ask(), SystemRandom())
                self._observer.wait_for_each(
                    self._security.is_known_to, "a broker does not know the users and the ACLs"
                )
            if self._wants_registry:
                from kafkapy.registry.embedded import new_beside

                self._registry = new_beside(self.client_config, self._security).start()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if os.getpid() != self._pid:
            return
        nodes = self._found if isinstance(self._found, InProcessCluster) else self._controlled
        try:
            if self._controlled is not None and kind is None:
                with contextlib.suppress(ClusterError):  # of a node that does not answer: it is not known what came
                    self._controlled.collect_nearly_hit()
        finally:
            self._close()
        if kind is None and nodes is not None:
            nodes.check_hit()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    @property
    def faults(self) -> "ActingFaults":
        """Faults by name, of all brokers; requests of nodes to each other are not hit.

        Nodes that are processes are asked over a channel that this process alone has. Raises ClusterError for a node
        that another one has started (with a data_dir), until it is restarted here.
        """
        found = self._cluster
        return found.faults if isinstance(found, InProcessCluster) else self._nodes.faults(lambda: self._observer)

    @property
    def clock(self) -> "BrokerClock":
        """The time of all nodes; with in_process=True and clock="virtual", `advance("7d")` moves it on."""
        from kafkapy.embedded.virtual_time import BrokerClock

        found = self._cluster
        return found.clock if isinstance(found, InProcessCluster) else BrokerClock(None, lambda: 0, list)

    @property
    def topics(self) -> "Topics":
        """The topics and their records: `cluster.topics["orders"].wait_for(3)`."""
        return self._observation.topics

    @property
    def groups(self) -> "Groups":
        """The groups, their members and lag: `cluster.groups["service"].lag`."""
        return self._observation.groups

    @property
    def requests(self) -> "Requests":
        """The last requests of clients to all brokers, once `requests.on()` has turned that on."""
        return self._observation.requests

    @property
    def _observation(self) -> "Observation":
        found = self._cluster
        if isinstance(found, InProcessCluster):
            return found.observation(self._registry_url)
        return self._nodes.observation(lambda: self._observer, self._registry_url)

    def _registry_url(self) -> str | None:
        return None if self._registry is None else self._registry.url

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of all brokers, comma-separated: the address for clients."""
        return self._cluster.plan.bootstrap_servers

    @property
    def bootstrap_controllers(self) -> str:
        """`host:port` of all controllers, for tools that take --bootstrap-controller."""
        return self._cluster.plan.bootstrap_controllers

    def client_config(self, user: str | None = None, mechanism: str = "PLAIN") -> dict[str, str]:
        """Return the properties of a confluent-kafka client: the address, and what `tls` and `users` require.

        `mechanism`: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. Raises ValueError for an unknown user or mechanism.
        """
        return client_config(self._security, self.bootstrap_servers, user, mechanism)

    @property
    def ca_pem(self) -> str | None:
        """The CA certificate that clients trust (PEM); None without `tls`."""
        return None if self._security is None else self._security.ca_pem

    @property
    def schema_registry_url(self) -> str:
        """Where the schema registry serves, as http://127.0.0.1:PORT. Raises ClusterError without `registry=True`."""
        if self._registry is None:
            raise ClusterError("this cluster has no schema registry: `with Cluster(3, registry=True) as cluster:`")
        return self._registry.url

    def create_topics(
        self,
        *names: str,
        partitions: int = -1,
        replicas: int = -1,
        configs: Mapping[str, object] | None = None,
        timeout_s: float = QUESTION_TIMEOUT_S,
    ) -> None:
        """Create topics that clients can use, by any broker, on return. Raises ApiError, ClusterError.

        partitions=-1: num.partitions. replicas=-1: default.replication.factor, here 3 (with fewer brokers, as many).
        """
        texts = texts_of(configs)
        request = topic_creation(names, partitions=partitions, replicas=replicas, configs=texts, timeout_s=timeout_s)
        observer = self._observer
        raise_first(request_of_controller(observer.ask, request, timeout_s=timeout_s))
        observer.wait_for_leaders(names, timeout_s)

    def delete_topics(self, *names: str, timeout_s: float = QUESTION_TIMEOUT_S) -> None:
        """Delete topics; those that do not exist are ignored. Raises ApiError, ClusterError."""
        request = topic_deletion(names, timeout_s=timeout_s)
        response = request_of_controller(self._observer.ask, request, timeout_s=timeout_s)
        raise_first(response, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def wait_in_sync(self, *topics: str, timeout_s: float = SYNC_TIMEOUT_S) -> None:
        """Return once all replicas are in sync, of these topics or of all. Raises ClusterError, which names the others.

        Every running broker has to say so, as one that was started again knows first what it has missed.
        """
        self._observer.wait_in_sync(topics, timeout_s)

    @property
    def cluster_id(self) -> str:
        return self._cluster.plan.cluster_id

    @property
    def broker_ids(self) -> list[int]:
        return [node.node_id for node in self._cluster.plan.brokers]

    @property
    def controller_ids(self) -> list[int]:
        return [node.node_id for node in self._cluster.plan.controllers]

    @property
    def controller(self) -> int:
        """The active controller; waits for one. Raises ClusterError after 30 s."""
        return self._observer.controller()

    def address_of(self, node_id: int) -> str:
        """Return a node's `host:port`: a broker's client listener, else its controller listener."""
        node = self._cluster.plan.node(node_id)
        return f"{HOST}:{node.advertised_port or node.controller_port}"

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """Return the broker that leads a partition; waits for a leader that runs. Raises ClusterError after 30 s.

        Raises ClusterError at once if there is no such topic or partition.
        """
        return self._observer.leader_of(topic, partition)

    def partitions(self) -> queries.TopicPartitions:
        """Return the partitions of all topics, from a running broker. Raises ClusterError after 30 s."""
        return self._observer.partitions()

    def restart(self, *node_ids: int) -> None:
        """Stop nodes as on SIGTERM and start them again, with the same data and ports; after `kill` only start them.

        Nodes that are named restart one after another, as in a rolling restart; if none is named, all at once.
        """
        self._check_not_in_child()
        for node_id in node_ids:
            if self._cluster.is_running(node_id):
                self.stop(node_id)
            self.start(node_id)
        if not node_ids:
            self._cluster.stop_all()
            self._cluster.up(START_TIMEOUT_S)

    def kill(self, node_id: int) -> None:
        """Kill a node as in a crash (SIGKILL)."""
        self._paused.discard(node_id)
        self._cluster.kill(node_id)

    def stop(self, node_id: int) -> None:
        """Stop a node cleanly (SIGTERM)."""
        self._check_not_paused(node_id)
        self._cluster.stop(node_id)

    def start(self, node_id: int) -> None:
        """Start a node that was killed or stopped; return once it answers, unfenced if it is a broker."""
        self._check_not_in_child()
        self._cluster.start(node_id)

    def pause(self, node_id: int) -> None:
        """Freeze a node with its connections open (SIGSTOP)."""
        self._cluster.pause(node_id)
        self._paused.add(node_id)

    def resume(self, node_id: int) -> None:
        """Continue a paused node (SIGCONT)."""
        self._cluster.resume(node_id)
        self._paused.discard(node_id)
        if self._controlled is not None:
            self._controlled.resumed(node_id)

    def partition(self, *groups: Collection[int], one_way: bool = False) -> None:
        """Partition the network: nodes reach only their own group, as in partition({1}, {2, 3}); clients reach all.

        Connections between the groups end, and new ones are closed at once. one_way: none ends, but what the nodes of
        the first group send to the others, requests and responses, arrives only after `heal`.
        """
        self._cluster.partition(*groups, one_way=one_way)

    def heal(self) -> None:
        """End all network partitions."""
        self._cluster.heal()

    @property
    def network(self) -> NodeNetwork:
        """The network between nodes, to cut, delay or limit.

        Raises ClusterError with a data_dir, and with in_process unless there are `network_faults`.
        """
        if self._proxies is None:
            raise ClusterError(
                "the nodes have no network to slow down: leave data_dir out, and with in_process=True add "
                "network_faults=True"
            )
        return NodeNetwork(self._proxies, self._cluster.plan.node)

    @property
    def client_network(self) -> ClusterClientNetwork:
        """The network between clients and nodes. Raises ClusterError without `network_faults`."""
        if self._client_network is None:
            raise ClusterError("the cluster has no such network: Cluster(3, network_faults=True) makes one")
        return self._client_network

    def add(self) -> int:
        """Add a broker and return its id once it is unfenced. It gets only new partitions."""
        self._check_not_in_child()
        return self._cluster.add().node_id

    def add_controller(self) -> int:
        """Add a separate controller and return its id once it is a voter."""
        self._check_not_in_child()
        return self._cluster.add_controller().node_id

    def log_of(self, node_id: int) -> str:
        """Return the output of a node so far."""
        return self._cluster.log_of(node_id)

    @property
    def _cluster(self) -> "LocalCluster | InProcessCluster":
        if self._found is None:
            raise RuntimeError("this cluster is not running: use it as `with Cluster(3) as cluster:`")
        return self._found

    @property
    def _nodes(self) -> ControlledNodes:
        assert self._controlled is not None, "a cluster of processes that runs"
        return self._controlled

    @property
    def _observer(self) -> ClusterObserver:
        return ClusterObserver(self._cluster.plan, self._answers)

    def _answers(self, node_id: int) -> bool:
        """Return whether a node should answer: it runs, and is not paused."""
        return node_id not in self._paused and self._cluster.is_running(node_id)

    def _check_not_in_child(self) -> None:
        if self._found is not None:
            refuse_in_child(self._pid)  # the node would end with the forked child

    def _check_not_paused(self, node_id: int) -> None:
        if node_id in self._paused:
            raise ClusterError(f"node {node_id} is paused, and would not stop: resume it first")

    def _open(self) -> LocalCluster:
        """Return the cluster of the given directory, created if there is none; else of a new temporary one."""
        if self._data_dir is None:
            self._temporary = TemporaryDirectory("cluster-")
            directory = Path(self._temporary.name)
            self._proxies = self._new_proxies()
        elif (self._data_dir / STATE_FILE).exists():
            if self._security is not None:
                raise ClusterError(
                    f"{self._data_dir} holds a cluster, whose tls, users and acls are those of its begin"
                )
            return LocalCluster.load(self._data_dir)
        else:
            directory = self._data_dir
        return LocalCluster.create(
            directory,
            broker_count=self._broker_count,
            controller_count=self._controller_count,
            properties=self._properties
            if self._security is None
            else self._security.properties_of_nodes(self._properties),
            proxies=self._proxies,
            client_protocol=self._security.protocol if self._security is not None else PLAINTEXT,
        )

    def _new_proxies(self) -> Proxies | None:
        """Return the proxies between the nodes of a temporary directory; open those of their clients, if wanted."""
        if not self._has_network_faults:
            return None if self._is_in_process else Proxies()
        self._client_proxies = Proxies(is_between_nodes=False)
        self._client_network = ClusterClientNetwork(self._client_proxies, lambda: self.broker_ids)
        return Proxies(clients=self._client_proxies)

    def _close(self) -> None:
        registry, self._registry = self._registry, None
        found, self._found = self._found, None
        temporary, self._temporary = self._temporary, None
        proxies, self._proxies = self._proxies, None
        client_proxies, self._client_proxies, self._client_network = self._client_proxies, None, None
        controlled, self._controlled = self._controlled, None
        with contextlib.ExitStack() as ending:  # in the reverse order; each is done even if one before it fails
            ending.callback(self._paused.clear)
            if temporary is not None:
                ending.callback(temporary.cleanup)
            if proxies is not None:
                ending.callback(proxies.close)
            if client_proxies is not None:
                ending.callback(client_proxies.close)
            if controlled is not None:
                ending.callback(controlled.close)
            ending.callback(self._end_nodes, found, has_data=temporary is None)
            if registry is not None:
                ending.callback(registry.stop)

    def _end_nodes(self, found: "LocalCluster | InProcessCluster | None", *, has_data: bool) -> None:
        if found is not None and not has_data:
            found.kill_all()
        elif found is not None:
            for node_id in self._paused:
                found.resume(node_id)
            found.down()


def _check_network_faults(data_dir: Path | None, *, is_virtual: bool) -> None:
    """Raise ValueError if a cluster cannot have proxies."""
    if data_dir is not None:  # the quorum's log would keep the proxies' ports, which end with this process
        raise ValueError(
            "Cluster(network_faults=True) has its data in a temporary directory: leave data_dir out. "
            "Broker(data_dir=..., network_faults=True) works"
        )
    if is_virtual:  # bytes in a proxy are not counted as work, so that `advance` would not wait for them
        raise ValueError(
            'the proxies of Cluster(network_faults=True) delay in the system\'s time: leave clock="virtual" out. '
            'Broker(clock="virtual", network_faults=True) works'
        )
