"""A cluster whose nodes share one event loop in a thread: starts quickly, uses one core, and can be partitioned.

A single node cannot be killed or paused; such calls raise an error.
"""

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn, cast

from kafkapy.config.load import load
from kafkapy.embedded.interception import Interception
from kafkapy.embedded.links import LinkedConnector, Links
from kafkapy.embedded.loop_thread import LoopThread
from kafkapy.embedded.virtual_time import CLUSTER_PROPERTIES, BrokerClock, VirtualClock, VirtualLoop, WorkCount
from kafkapy.server.cluster.local import START_TIMEOUT_S, LocalCluster
from kafkapy.server.cluster.plan import ClusterError, ClusterPlan, NodePlan
from kafkapy.server.cluster.queries import asking
from kafkapy.server.run import NodeServer, new_node

if TYPE_CHECKING:
    from kafkapy.embedded.faults.actions import ActingFaults
    from kafkapy.embedded.observed.observation import Observation
    from kafkapy.server.broker import BrokerServer

REFUSED: Final = "nodes of one process cannot be {}: stop them or cut them off, or leave in_process out"


class InProcessCluster:
    """Runs the nodes of a LocalCluster without processes; its methods are those of that class."""

    def __init__(self, cluster: LocalCluster, *, is_virtual: bool = False) -> None:
        """is_virtual: whether a test moves the time of all nodes on."""
        self._cluster = cluster
        self._node_at: dict[int, int] = {}
        self._node_ids: set[int] = set()
        self._links = Links(self._node_at)
        self._servers: dict[int, NodeServer] = {}
        self._virtual = VirtualLoop() if is_virtual else None
        self._work = WorkCount()
        self._thread = LoopThread(self._virtual)
        self._interception = Interception()
        self._observation: Observation | None = None
        for node in cluster.plan.nodes:
            self._add_ports(node)

    @property
    def plan(self) -> ClusterPlan:
        return self._cluster.plan

    def is_running(self, node_id: int) -> bool:
        server = self._servers.get(node_id)
        return server is not None and server.failed is not None and not server.failed.done()

    def up(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start all nodes concurrently: brokers wait for controllers, which wait for each other."""

        async def start_all() -> None:
            async with asyncio.timeout(timeout_s), asyncio.TaskGroup() as group:
                for node in self.plan.nodes:
                    group.create_task(self._start(node))

        try:
            self._thread.call(start_all)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    def start(self, node_id: int, timeout_s: float = START_TIMEOUT_S) -> None:
        node = self.plan.node(node_id)
        if self.is_running(node_id):
            raise ClusterError(f"node {node_id} runs already")

        async def start() -> None:
            async with asyncio.timeout(timeout_s):
                await self._start(node)

        self._thread.call(start)

    def stop(self, node_id: int) -> None:
        self.plan.node(node_id)
        server = self._servers.pop(node_id, None)
        if server is None:
            raise ClusterError(f"node {node_id} does not run")
        self._thread.call(server.stop)

    def down(self) -> None:
        """Stop all nodes and end the thread."""
        self.stop_all()
        self._thread.close()

    def stop_all(self) -> None:
        """Stop all nodes, brokers before separate controllers.

        As LocalCluster.down: the last combined nodes need not wait for a quorum that is gone.
        """

        async def stop(node_id: int) -> None:
            try:
                await self._servers[node_id].stop()
            finally:
                del self._servers[node_id]
                if not self.plan.has_quorum(self._servers):
                    for server in self._servers.values():
                        server.node.stops.hurry()

        for nodes in (self.plan.brokers, self.plan.nodes):
            node_ids = [node.node_id for node in nodes if node.node_id in self._servers]

            async def stop_all(node_ids: list[int] = node_ids) -> None:
                await asyncio.gather(*(stop(node_id) for node_id in node_ids), return_exceptions=True)

            self._thread.call(stop_all)

    kill_all = down

    def add(self, port: int = 0, timeout_s: float = START_TIMEOUT_S) -> NodePlan:
        node = self._cluster.prepare_broker(port)
        self._add_ports(node)
        self.start(node.node_id, timeout_s)
        return node

    def add_controller(self, port: int = 0, timeout_s: float = START_TIMEOUT_S) -> NodePlan:
        node = self._cluster.prepare_controller(port)
        self._add_ports(node)
        self.start(node.node_id, timeout_s)
        broker = next((each for each in self.plan.brokers if self.is_running(each.node_id)), None)
        if broker is None:
            raise ClusterError("no broker runs that could be asked to add a voter")
        self._cluster.make_voter(node, asking(broker.query_address), timeout_s)
        return node

    def partition(self, *groups: Collection[int], one_way: bool = False) -> None:
        """Restrict nodes to their own group; clients reach all. Existing connections are cut."""
        if self.plan.is_proxied:
            self._cluster.partition(*groups, one_way=one_way)
            return
        if one_way:
            raise ClusterError(
                "nodes of one process are cut off in both directions only: leave in_process out, or add "
                "network_faults=True"
            )
        for group in groups:
            for node_id in group:
                self.plan.node(node_id)
        self._thread.run_soon(lambda: self._links.partition(*groups))

    def heal(self) -> None:
        if self.plan.is_proxied:
            self._cluster.heal()
        self._thread.run_soon(self._links.heal)

    @property
    def clock(self) -> BrokerClock:
        """The time of all nodes."""
        return BrokerClock(self._virtual, self._count_unfinished, self.servers)

    def _count_unfinished(self) -> int:
        return self._work.unfinished + sum(server.node.unfinished_count for server in list(self._servers.values()))

    @property
    def faults(self) -> "ActingFaults":
        """Faults by name, of all brokers. Requests of nodes to each other are not hit."""
        if self._interception.faults is None:
            from kafkapy.embedded.faults.actions import ActingFaults
            from kafkapy.embedded.faults.worlds import OneLoop

            world = OneLoop(self.servers, lambda: asking(self.plan.node(self.servers()[0].node_id).query_address))
            self._interception.faults = ActingFaults(self._intercept, world)
        return self._interception.faults

    def check_hit(self) -> None:
        """Raise FaultNeverHit if there is a fault that has hit nothing."""
        self._interception.check_hit()

    def servers(self) -> "list[BrokerServer]":
        """Return the brokers that run. Raises RuntimeError in a forked child."""
        self._thread.check_not_in_child()
        ids = {node.node_id for node in self.plan.brokers}
        found = list(self._servers.items())  # another thread may start or stop nodes
        return [cast("BrokerServer", server) for node_id, server in found if node_id in ids]

    def observation(self, registry: Callable[[], str | None]) -> "Observation":
        """Return the observation of all brokers. `registry`: returns the URL of the schema registry, if any."""
        if self._observation is None:
            from kafkapy.embedded.observed.observation import of_servers

            self._observation = of_servers(self.servers, self._intercept, registry)
            self._interception.requests = self._observation.requests
        return self._observation

    def _intercept(self) -> None:
        for server in self.servers():
            self._thread.run_soon(partial(self._intercept_at, server))

    def _intercept_at(self, server: "BrokerServer") -> None:
        self._interception.install(server, self._node_ids)

    def kill(self, node_id: int) -> NoReturn:
        raise ClusterError(REFUSED.format("killed"))

    def pause(self, node_id: int) -> NoReturn:
        raise ClusterError(REFUSED.format("paused"))

    resume = pause

    def log_of(self, node_id: int) -> NoReturn:
        raise ClusterError("nodes of one process have no logs of their own: theirs are the process's")

    def _add_ports(self, node: NodePlan) -> None:
        self._node_ids.add(node.node_id)
        ports = (node.port, node.peer_port, node.controller_port)
        self._node_at.update({port: node.node_id for port in ports if port})

    async def _start(self, node: NodePlan) -> None:
        log_dir = str(self._cluster.processes[node.node_id].log_dir)
        properties = self.plan.properties_of(node, log_dir)
        clock, new_helper = None, None
        if self._virtual is not None:
            properties, clock = {**CLUSTER_PROPERTIES, **properties}, VirtualClock(self._virtual)
            new_helper = self._work.new_helper
        config, _ = load(properties)
        server = new_node(
            config,
            new_connector=lambda loop: LinkedConnector(loop, self._links, node.node_id),
            clock=clock,
            new_helper=new_helper,
        )
        await server.start()
        self._servers[node.node_id] = server
        if self._interception.is_used and node.is_broker:
            self._intercept_at(cast("BrokerServer", server))
        for each in self._servers.values():
            each.node.share_open_files(len(self._servers))
