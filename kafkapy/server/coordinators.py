"""A broker's coordinators of groups, transactions and share groups, and the other parts that transactions need."""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from kafkapy.config.dynamic import DynamicConfig
from kafkapy.group.settings import GroupSettings
from kafkapy.metadata.image import RESOURCE_GROUP, TRANSACTION_VERSION
from kafkapy.metadata.topic_names import SHARE_STATE_TOPIC
from kafkapy.named_tuple import NamedTuple
from kafkapy.runtime.broker.producer_ids import ProducerIdManager
from kafkapy.runtime.coordinators.group_coordinator import GroupCoordinator
from kafkapy.runtime.coordinators.late_transactions import LateTransactions
from kafkapy.runtime.coordinators.remote_verification import RoutedGate
from kafkapy.runtime.coordinators.share_groups import ShareGroups
from kafkapy.runtime.coordinators.transaction_coordinator import TransactionCoordinator, TransactionKeys
from kafkapy.runtime.coordinators.transaction_verification import CountedGate, TransactionVerification
from kafkapy.server.share_reads import ShareReads, ShareSettings
from kafkapy.server.stopping import StopOrder, Stops
from kafkapy.server.transaction_links import TransactionLinks

if TYPE_CHECKING:
    from kafkapy.handlers.context import Services
    from kafkapy.metadata.delta import MetadataDelta
    from kafkapy.metadata.image import MetadataImage
    from kafkapy.metrics.registry import NodeCounts
    from kafkapy.metrics.verifications import VerificationCounts
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.replication.replica_manager import ReplicaManager
    from kafkapy.runtime.coordinators.markers import MarkerSink
    from kafkapy.runtime.coordinators.share_coordinator import ShareCoordinator
    from kafkapy.runtime.coordinators.share_persister import RoutedPersister
    from kafkapy.runtime.peer import Peer
    from kafkapy.runtime.share.share_partitions import ShareParts
    from kafkapy.seams import Random, System
    from kafkapy.timer.wheel import TimingWheel


class ClusterAccess(NamedTuple):
    """The access of a broker's coordinators to the cluster.

    image: returns the newest committed image. allocate_producer_ids: asks the controller for a block. new_peer: makes a
    connection to another node.
    """

    image: "Callable[[], MetadataImage]"
    allocate_producer_ids: Callable[[], Awaitable[range]]
    new_peer: "Callable[[str, int], Peer]"


class Coordinators:
    """Creates the coordinators; adds the stop step of each one to `stops`."""

    def __init__(
        self,
        replica_manager: "ReplicaManager",
        dynamic_config: DynamicConfig,
        cluster: ClusterAccess,
        *,
        system: "System",
        wheel: "TimingWheel",
        stops: Stops,
        counts: "NodeCounts | None" = None,
    ) -> None:
        """counts: what share groups and appends of coordinators are counted in, if anywhere."""
        self._replica_manager = replica_manager
        self._dynamic_config = dynamic_config
        self._image = cluster.image
        self._new_peer = cluster.new_peer
        self._services: Services | None = None
        self._clock = system.clock
        self._counts = None if counts is None else counts.shares
        self._share_counts = None if counts is None else counts.share_coordinator
        self._wheel = wheel
        self._io_pool = system.io_pool
        self.groups = self._new_groups(system.random)
        if counts is not None:
            self.groups.count_in(counts.shares, counts.group_coordinator)
        stops.add(StopOrder.GROUPS, self.groups.close)
        self.share = ShareGroups(self._new_share_coordinator, self._new_persister)
        stops.add(StopOrder.SHARE_GROUPS, self.share.close)
        self.share_reads = ShareReads(
            self._new_share_parts, lambda: self._dynamic_config.current.share.group_share_max_share_sessions
        )
        stops.add(StopOrder.SHARE_READS, self.share_reads.close)
        self.producer_ids = ProducerIdManager(cluster.allocate_producer_ids)
        stops.add(StopOrder.PRODUCER_IDS, self.producer_ids.close)
        # transactions write their markers on other brokers by these links, so they are made before and closed later
        self._links = self._new_links(cluster.new_peer)
        self.groups.reach_brokers(self._links.new_channels)
        stops.add(StopOrder.TRANSACTION_LINKS, self._links.close)
        self.transactions = self._new_transactions()
        stops.add(StopOrder.TRANSACTIONS, self.transactions.close)
        self.late_transactions = self._new_late_transactions()
        stops.add(StopOrder.LATE_TRANSACTIONS, self.late_transactions.close)

    def start(self) -> None:
        """Start the periodic tasks."""
        self.groups.start()
        self.share.start()
        self.transactions.start()
        self.late_transactions.start()

    @property
    def missing(self) -> str | None:
        """Why requests to a coordinator would have to wait (partitions that are still loading), or None."""
        counts = {
            "groups": self.groups.loading_count,
            "transactions": self.transactions.loading_count,
            "share groups": self.share.loading_count,
        }
        return ", ".join(f"loading {count} partitions of {name}" for name, count in counts.items() if count) or None

    def apply_delta(self, delta: "MetadataDelta", image: "MetadataImage") -> Iterator[None]:
        """Apply a metadata change; each next() does one step."""
        yield from self.groups.apply_delta(delta, image)
        yield from self.transactions.apply_delta(delta, image)
        yield from self.share.apply_delta(delta, image)
        self.share_reads.apply_image(image)

    def on_resigned(self, partition: "HostedPartition") -> None:
        """Unload the shard of a partition that this node ceased to lead before metadata said so."""
        for coordinator in (self.groups, self.transactions, self.share.made):
            if coordinator is not None:
                coordinator.on_resigned(partition)

    def new_verification(self, counts: "VerificationCounts | None" = None) -> TransactionVerification:
        """Return the check that a transaction is open, made before a partition is added to it.

        `counts`: what the checks are counted in, if anywhere.
        """
        node_id = self._replica_manager.node_id
        gate = RoutedGate(self.transactions, node_id=node_id, new_remote=self._links.remote_gate)
        return TransactionVerification(
            gate if counts is None else CountedGate(gate, counts),
            self._replica_manager,
            config=lambda: self._dynamic_config.current.transaction,
            request_timeout_ms=self._dynamic_config.static.node.request_timeout_ms,
            clock=self._clock,
        )

    def _new_groups(self, random: "Random") -> GroupCoordinator:
        settings = GroupSettings(
            partial(attrgetter("current.group"), self._dynamic_config),  # read by every heartbeat: no call of our own
            lambda group_id: self._image().configs.of(RESOURCE_GROUP, group_id),
            lambda: self._dynamic_config.current.share,
        )
        return GroupCoordinator(
            replica_manager=self._replica_manager,
            settings=settings,
            clock=self._clock,
            random=random,
            wheel=self._wheel,
            io_pool=self._io_pool,
            persister=lambda: self.share.persister,
        )

    def use(self, services: "Services") -> None:
        """Keep the services, with which the topic of the share coordinator is created."""
        self._services = services

    def _new_share_coordinator(self) -> "ShareCoordinator":
        from kafkapy.runtime.coordinators.share_coordinator import ShareCoordinator, ShareKeys

        return ShareCoordinator(
            replica_manager=self._replica_manager,
            keys=ShareKeys(
                lambda: self._dynamic_config.current.share,
                lambda: self._image().features.share_version,
            ),
            clock=self._clock,
            wheel=self._wheel,
            io_pool=self._io_pool,
            counts=self._counts,
            own_counts=self._share_counts,
        )

    def _new_persister(self, coordinator: "ShareCoordinator") -> "RoutedPersister":
        from kafkapy.runtime.coordinators.share_persister import RoutedPersister

        return RoutedPersister(
            coordinator,
            self._links.new_channels_of_caller(),
            node_id=self._replica_manager.node_id,
            create_topic=self._create_share_topic,
            clock=self._clock,
            timeout_ms=self._dynamic_config.static.node.request_timeout_ms,
        )

    async def _create_share_topic(self) -> None:
        """Create the topic of the share coordinator; not before the start has made the services: it is tried again."""
        from kafkapy.handlers.topics.auto_create import create_topic

        if self._services is not None:
            await create_topic(self._services, SHARE_STATE_TOPIC)

    def _new_share_parts(self) -> "ShareParts":
        from kafkapy.runtime.share.share_partitions import ShareParts
        from kafkapy.server.dead_letters import has_dead_letters, new_dead_letters

        assert self._services is not None, "a request of a share group came before the services"
        has_any = has_dead_letters(self._dynamic_config.static.share)
        return ShareParts(
            persister=lambda: self.share.persister,
            settings=ShareSettings(self._dynamic_config, self._image).of,
            clock=self._clock,
            wheel=self._wheel,
            io_pool=self._io_pool,
            replica_manager=self._replica_manager,
            dead_letters=new_dead_letters(self._services, self._new_peer, self._counts) if has_any else None,
            counts=self._counts,
        )

    def _new_transactions(self) -> TransactionCoordinator:
        return TransactionCoordinator(
            replica_manager=self._replica_manager,
            keys=TransactionKeys(
                lambda: self._dynamic_config.current.transaction,
                lambda: self._image().features.levels.get(TRANSACTION_VERSION, 0),
                self._dynamic_config.static.node.request_timeout_ms,
            ),
            producer_ids=self.producer_ids,
            new_sink=self._new_marker_sink,
            clock=self._clock,
            wheel=self._wheel,
            io_pool=self._io_pool,
        )

    def _new_marker_sink(self) -> "MarkerSink":
        from kafkapy.runtime.coordinators.markers import LocalMarkers  # most brokers have no transactions

        return self._links.marker_sink(LocalMarkers(self._replica_manager, self.groups, self._clock))

    def _new_links(self, new_peer: "Callable[[str, int], Peer]") -> TransactionLinks:
        config = self._dynamic_config.static
        return TransactionLinks(
            node_id=self._replica_manager.node_id,
            listener_name=config.inter_broker_listener_name,
            request_timeout_ms=config.node.request_timeout_ms,
            image=partial(attrgetter("newest_image"), self._replica_manager.partitions),
            new_peer=new_peer,
        )

    def _new_late_transactions(self) -> LateTransactions:
        return LateTransactions(
            self._replica_manager.partitions,
            lambda: self._dynamic_config.current.transaction,
            is_expected=self.transactions.takes_part,
            is_known_here=self.transactions.is_only_coordinator,
            clock=self._clock,
        )
