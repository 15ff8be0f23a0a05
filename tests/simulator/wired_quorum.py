"""Quorums whose messages travel as Apache Kafka's requests over a simulated network: reactors, peers, the real wire."""

import asyncio
from typing import Any

from kafkapy.config.dynamic import DynamicConfig
from kafkapy.config.embedded import embedded_properties
from kafkapy.config.load import load
from kafkapy.config.quorum import QuorumConfig
from kafkapy.handlers.context import ControllerServices
from kafkapy.metadata.image import EMPTY_IMAGE, MetadataImage
from kafkapy.protocol.serving import Serving
from kafkapy.raft.voters import Endpoint, Voter, VoterSet
from kafkapy.raft.wire import WirePeer
from kafkapy.reactor.limits import ReactorLimits
from kafkapy.reactor.reactor import Reactor
from kafkapy.runtime.peer import Peer, PeerSettings
from kafkapy.runtime.quorum.hand_over import hand_over
from kafkapy.runtime.quorum.quorum import Quorum
from kafkapy.runtime.quorum.transport import NetworkRaftTransport
from kafkapy.security.authorizer import AllowAll, Authorizer
from kafkapy.server.quorum_node import GOODBYE_S
from kafkapy.serving.router import Router
from kafkapy.types import ReplicaKey
from tests.simulator.disk import SimDisk
from tests.simulator.io_pool import SimIoPool
from tests.simulator.loop import SimClock, SimLoop
from tests.simulator.network import SimConnector, SimNetwork
from tests.support.chance import SeededRandom
from tests.support.quorums import ValueList, format_standalone, new_quorum

LISTENER = "CONTROLLER"
CLUSTER_ID = "c"
CONFIG, _ = load(embedded_properties(data_dir="/logs"))


def host_of(node_id: int) -> str:
    return f"10.0.0.{node_id}"


def voter_of(node_id: int) -> Voter:
    key = ReplicaKey(node_id, bytes([node_id]) * 16)
    return Voter(key, (Endpoint(LISTENER, host_of(node_id), 9093),))


NO_CONTROLLER: Any = None
"""Nothing asks a quorum without a controller over it to decide."""


class NoMetadata:
    """handlers.context.MetadataView of a cluster without metadata."""

    image: MetadataImage = EMPTY_IMAGE


class ChangingAuthorizer:
    """An Authorizer that passes each question to another one, which `use` replaces."""

    def __init__(self) -> None:
        self._current: Authorizer = AllowAll()

    def use(self, authorizer: Authorizer) -> None:
        self._current = authorizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._current, name)


class WiredNode:
    """One controller: its disk, its quorum, and the reactor that serves the others."""

    def __init__(
        self, cluster: "WiredCluster", node_id: int, disk: SimDisk, *, directory_id: bytes | None = None
    ) -> None:
        self.node_id = node_id
        self.disk = disk
        self.listener = ValueList()
        self.authorizer: Any = ChangingAuthorizer()
        loop, network = cluster.loop, cluster.network
        connector = SimConnector(network, host_of(node_id), lambda address: cluster.connects(node_id, address))
        self.transport = NetworkRaftTransport(
            wire=WirePeer(CLUSTER_ID, LISTENER),
            new_peer=lambda host, port: Peer(
                host,
                port,
                connector=connector,
                clock=SimClock(loop),
                random=SeededRandom(node_id),
                settings=PeerSettings(
                    client_id=f"raft-client-{node_id}", software_version="0", connection_setup_timeout_ms=1000
                ),
            ),
            request_timeout_ms=cluster.config.controller_quorum_request_timeout_ms,
            bootstrap_servers=cluster.bootstrap_servers,
        )
        self.quorum = new_quorum(
            loop,
            disk,
            node_id=node_id,
            listener=self.listener,
            config=cluster.config,
            on_fatal=cluster.fatal.append,
            endpoints=voter_of(node_id).endpoints,
            bootstrap_ids=tuple(cluster.bootstrap_servers),
            transport=self.transport,
            directory_id=directory_id or bytes([node_id]) * 16,
        )
        router = Router(
            ControllerServices(
                cluster_id=CLUSTER_ID,
                node_id=node_id,
                config=CONFIG,
                dynamic_config=DynamicConfig(CONFIG),
                clock=SimClock(loop),
                random=SeededRandom(node_id),
                io_pool=SimIoPool(loop),
                metadata_changes=NO_CONTROLLER,
                authorizer=self.authorizer,
                metadata=NoMetadata(),
                controller=NO_CONTROLLER,
                quorum=self.quorum,
            )
        )
        self.reactor = Reactor(loop, ReactorLimits(), serving=Serving(router.route), io_pool=SimIoPool(loop))
        self.reactor.add_listener(LISTENER, "PLAINTEXT", network.listen(host_of(node_id), 9093))

    async def start(self) -> None:
        self.reactor.start()
        await self.quorum.start()

    async def stop(self) -> None:
        """Stop as QuorumNode.close_quorum does: a leader hands over."""
        await hand_over(self.quorum, GOODBYE_S)
        await self.quorum.close()
        self.transport.close()
        self.reactor.close()


class WiredCluster:
    """Controllers by node id. `cut` holds pairs of nodes between which nothing new arrives."""

    def __init__(self, loop: SimLoop, *node_ids: int, config: QuorumConfig | None = None) -> None:
        self.loop = loop
        self.network = SimNetwork(loop)
        self.config = config or QuorumConfig()
        self.voters = VoterSet([voter_of(node_id) for node_id in node_ids])
        self.bootstrap_servers = {-2 - index: (host_of(node_id), 9093) for index, node_id in enumerate(node_ids)}
        """controller.quorum.bootstrap.servers: nobody knows their node ids."""
        self.disks: dict[int, SimDisk] = {}
        for node_id in node_ids:
            self.disks[node_id] = SimDisk()
            format_standalone(self.disks[node_id], self.voters)
        self.nodes: dict[int, WiredNode] = {}
        self.fatal: list[BaseException] = []
        self.cut: set[frozenset[int]] = set()

    def isolate(self, node_id: int) -> None:
        """Cut a node off from all others: what stands is reset, nothing new arrives."""
        self.cut |= {frozenset((node_id, other)) for other in self.nodes if other != node_id}
        self.network.reset_connections(lambda a, b: host_of(node_id) in (a, b))

    def heal(self) -> None:
        self.cut.clear()

    def connects(self, node_id: int, address: tuple[str, int]) -> bool:
        other = int(address[0].rpartition(".")[2])
        return frozenset((node_id, other)) not in self.cut

    async def start(self, *node_ids: int) -> None:
        for node_id in node_ids or tuple(self.disks):
            node = self.nodes[node_id] = WiredNode(self, node_id, self.disks[node_id])
            await node.start()

    async def stop(self, *node_ids: int) -> None:
        for node_id in node_ids or tuple(self.nodes):
            await self.nodes.pop(node_id).stop()

    async def leader(self) -> Quorum:
        for _ in range(10_000):
            for node in self.nodes.values():
                quorum = node.quorum
                if quorum.is_leader and (node.node_id, quorum.leader_epoch) in node.listener.leaders:
                    return quorum
            await asyncio.sleep(0.01)
        raise AssertionError("no leader")

    async def all_have(self, values: list[bytes]) -> None:
        for _ in range(3000):
            if all(node.listener.values == values for node in self.nodes.values()):
                return
            await asyncio.sleep(0.01)
        raise AssertionError({node.node_id: node.listener.values for node in self.nodes.values()})
