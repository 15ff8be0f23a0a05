"""Brokers of one cluster on a simulated network: coordinators, replicas, and what is asked between them, all real.

The metadata is one Cluster, which elects nobody by itself; brokers that are `behind` do not follow it.
"""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from kafkapy.handlers.encoded_responses import VersionResponses
from kafkapy.handlers.table import BROKER_APIS
from kafkapy.machine import Decision
from kafkapy.metadata.delta import difference
from kafkapy.metadata.image import MetadataImage
from kafkapy.metadata.topic_names import SHARE_STATE_TOPIC
from kafkapy.protocol.api import API_VERSIONS, request_type
from kafkapy.protocol.headers import read_request_header
from kafkapy.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.protocol.messages.topic_record import TopicRecord
from kafkapy.protocol.serving import Serving
from kafkapy.reactor.limits import ReactorLimits
from kafkapy.reactor.reactor import Reactor
from kafkapy.runtime.broker_channels import BrokerChannels
from kafkapy.runtime.coordinators.markers import LocalMarkers, MarkerSink
from kafkapy.runtime.coordinators.remote_verification import RoutedGate
from kafkapy.runtime.coordinators.share_coordinator import ShareCoordinator, ShareKeys
from kafkapy.runtime.coordinators.share_groups import ShareGroups
from kafkapy.runtime.coordinators.share_persister import RoutedPersister
from kafkapy.runtime.coordinators.transaction_verification import TransactionGate
from kafkapy.runtime.decoded_requests import DecodedRequests
from kafkapy.runtime.followers.replica_fetchers import ReplicaFetchers
from kafkapy.runtime.peer import Peer, PeerSettings
from kafkapy.security.authorizer import AclOperation, AllowAll
from kafkapy.server.transaction_links import TransactionLinks
from kafkapy.serving.router import Router
from tests.simulator.disk import Keep, SimDisk
from tests.simulator.io_pool import SimIoPool
from tests.simulator.loop import SimClock, SimLoop
from tests.simulator.network import SimConnector, SimNetwork
from tests.support.chance import SeededRandom
from tests.support.controllers import Cluster
from tests.support.hosting import topic_id
from tests.support.metadata_services import Deny
from tests.support.transaction_hosting import TransactionHosting

LISTENER = "PLAINTEXT"
PORT = 9092
REQUEST_TIMEOUT_MS = 30_000


class FinalizedNothing:
    """What ApiVersions asks of a quorum."""

    finalized_kraft_version = 0


class LinkedBroker(TransactionHosting):
    """One broker, which listens and asks others."""

    def __init__(self, brokers: "LinkedBrokers", node_id: int, disk: SimDisk | None = None, **properties: str) -> None:
        self._brokers = brokers
        self.requests: list[Any] = []
        """What others have asked this broker, ApiVersions apart."""
        self.responses = asyncio.Event()
        """Cleared: the broker answers nothing but ApiVersions."""
        self.responses.set()
        super().__init__(brokers.loop, disk=disk, node_id=node_id, cluster=brokers.cluster, **properties)
        self._services = self.services(AllowAll())
        self._router = Router(self._services)
        self.reactor = Reactor(
            brokers.loop, ReactorLimits(), serving=Serving(self._route), io_pool=SimIoPool(brokers.loop)
        )
        self.reactor.add_listener(LISTENER, "PLAINTEXT", brokers.network.listen(self.host, PORT))
        self.reactor.start()
        self.fetchers = ReplicaFetchers(
            self.manager,
            self.log_manager,
            config=lambda: self.config,
            broker_epoch=lambda: brokers.cluster.epochs[node_id],
            new_peer=self._new_peer,
            flush=self.log_flusher.flush,
            clock=self.clock,
        )

    def _load(self) -> None:
        self.links = TransactionLinks(
            node_id=self.node_id,
            listener_name=LISTENER,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            image=lambda: self.manager.partitions.newest_image,
            new_peer=self._new_peer,
        )
        self.share = ShareGroups(self._new_share_coordinator, self._new_persister)
        super()._load()
        self.groups.reach_brokers(self.links.new_channels)

    def _group_persister(self) -> RoutedPersister:
        return self.share.persister

    def _new_share_coordinator(self) -> ShareCoordinator:
        return ShareCoordinator(
            replica_manager=self.manager,
            keys=ShareKeys(lambda: self.config.share, lambda: 1),
            clock=self.clock,
            wheel=self.wheel,
            io_pool=self.io_pool,
        )

    def _new_persister(self, coordinator: ShareCoordinator) -> RoutedPersister:
        newest = lambda: self.manager.partitions.newest_image  # noqa: E731
        return RoutedPersister(
            coordinator,
            BrokerChannels(image=newest, listener_name=LISTENER, new_peer=self._new_peer),
            node_id=self.node_id,
            create_topic=self._brokers.create_share_topic,
            clock=self.clock,
            timeout_ms=REQUEST_TIMEOUT_MS,
        )

    def _publish(self, before: MetadataImage) -> None:
        super()._publish(before)
        for _ in self.share.apply_delta(difference(before, self.cluster.image), self.cluster.image):
            pass

    async def _route(self, connection: Any, frame: memoryview) -> Any:
        header, position = read_request_header(frame)
        if header.api_key != API_VERSIONS:
            self.requests.append(request_type(header.api_key).decode(frame[position:], header.api_version))
            await self.responses.wait()
        return await self._router.route(connection, frame)

    def _new_peer(self, host: str, port: int) -> Peer:
        brokers = self._brokers
        return Peer(
            host,
            port,
            connector=SimConnector(brokers.network, self.host, self._reaches),
            clock=SimClock(brokers.loop),
            random=SeededRandom(self.node_id),
            settings=PeerSettings(client_id=str(self.node_id), software_version="0", connection_setup_timeout_ms=1000),
        )

    @property
    def host(self) -> str:
        return f"host{self.node_id}"

    def _reaches(self, address: tuple[str, int]) -> bool:
        return not self._brokers.unreachable & {self.host, address[0]}

    def _new_sink(self) -> MarkerSink:
        return self.links.marker_sink(LocalMarkers(self.manager, self.groups, self.clock))

    def _new_gate(self) -> TransactionGate:
        return RoutedGate(self.transactions, node_id=self.node_id, new_remote=self.links.remote_gate)

    def services(self, authorizer: Any = None) -> Any:
        services = super().services(authorizer)
        services.apis = BROKER_APIS
        services.groups = self.groups
        services.transactions = self.transactions
        services.share = self.share
        services.quorum = FinalizedNothing()
        services.active_controller = SimpleNamespace(api_versions=None)
        services.version_responses = VersionResponses()
        services.decoded = DecodedRequests()
        return services

    def deny(self) -> None:
        """Let other brokers ask nothing more."""
        self._services.authorizer = Deny((AclOperation.CLUSTER_ACTION, ""), (AclOperation.ALTER, ""))

    def follow(self, before: MetadataImage) -> None:
        """Do as the metadata says now."""
        self._publish(before)

    async def close(self) -> None:
        """Stop, as a broker that is killed does: what others asked is not answered."""
        self.reactor.close()
        await self.fetchers.stop()
        await self.share.close()
        await self.transactions.close()
        self.links.close()
        await self.groups.close()
        self.expirer.stop()


class LinkedBrokers:
    """Brokers by node id, from 1 on; broker n listens at host<n>:9092."""

    def __init__(self, loop: SimLoop, count: int = 2, **properties: str) -> None:
        self.loop = loop
        self.network = SimNetwork(loop)
        self.cluster = Cluster(count)
        self.unreachable: set[str] = set()
        self.share_topics = 0
        """How often the topic of share coordinators was created."""
        self.behind: set[int] = set()
        self._properties = properties
        self.nodes = {node_id: LinkedBroker(self, node_id, **properties) for node_id in range(1, count + 1)}
        self._seen = {node_id: MetadataImage() for node_id in self.nodes}
        self.catch_up()

    def cut_off(self, broker_id: int) -> None:
        """Let a broker reach nobody, and nobody it, until it is no more `unreachable`."""
        host = self.nodes[broker_id].host
        self.unreachable.add(host)
        self.network.reset_connections(lambda a, b: host in (a, b))

    async def restart(self, broker_id: int, keep: Keep) -> None:
        """Let a broker die, its disk keep what `keep` says, and another one start from that, behind."""
        dying = self.nodes[broker_id]
        self.behind.add(broker_id)
        await dying.close()
        dying.disk.crash(keep)
        self.nodes[broker_id] = LinkedBroker(self, broker_id, dying.disk, **self._properties)
        self._seen[broker_id] = MetadataImage()

    def catch_up(self) -> None:
        """Let all brokers follow the metadata that are not behind."""
        for node_id, broker in self.nodes.items():
            if node_id not in self.behind:
                before, self._seen[node_id] = self._seen[node_id], self.cluster.image
                broker.follow(before)

    def create_topic(self, name: str, leader_id: int, partition_count: int = 1, others: Sequence[int] = ()) -> None:
        """Create a topic led by one broker; replicas on `others` follow, outside of the ISR."""
        partition = self.nodes[leader_id].partition_record
        self.commit(
            TopicRecord(name=name, topic_id=topic_id(name)),
            *(partition(name, number, 1, (leader_id, *others), (leader_id,)) for number in range(partition_count)),
        )

    async def create_share_topic(self) -> None:
        """Create the topic of share coordinators, as the controller does for a broker that needs it."""
        self.share_topics += 1
        await asyncio.sleep(0.01)
        self.create_topic(SHARE_STATE_TOPIC, 1)

    def lead(self, name: str, leader_id: int, partition_id: int = 0) -> None:
        """Let another replica lead, or one that is added for it."""
        partition = self.cluster.image.topics.partition(name, partition_id)
        assert partition is not None
        change = PartitionChangeRecord(partition_id=partition_id, topic_id=topic_id(name), leader=leader_id)
        if leader_id >= 0 and leader_id not in partition.replicas:
            change.replicas = [*partition.replicas, leader_id]
        change.isr = [leader_id] if leader_id >= 0 else None
        self.commit(change)

    def join_isr(self, name: str, *isr: int, partition_id: int = 0) -> None:
        """Let the in-sync replicas be these."""
        self.commit(PartitionChangeRecord(partition_id=partition_id, topic_id=topic_id(name), isr=list(isr)))

    def fence(self, broker_id: int, *, is_fenced: bool = True) -> None:
        change = BrokerRegistrationChangeRecord(
            broker_id, broker_epoch=self.cluster.epochs[broker_id], fenced=1 if is_fenced else -1
        )
        self.commit(change)

    def commit(self, *records: Any) -> None:
        """Let the metadata have records, and the brokers follow."""
        self.cluster.commit(Decision(None, list(records)))
        self.catch_up()

    async def close(self) -> None:
        for broker in self.nodes.values():
            await broker.close()
