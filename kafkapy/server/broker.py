"""A node with the broker role, with or without the controller role: its parts and their start and stop order.

Start: lock and check the log directories -> recover the metadata log, join the quorum -> bind listeners -> register ->
load the logs with the topics' configs -> lead and follow partitions as in the image -> be unfenced -> accept
connections. Stop is the reverse: controlled shutdown -> accept no connections, answer parked requests -> flush and
checkpoint the logs, write the clean-shutdown file -> close the quorum -> unlock the directories.

server/node.py has what every node needs; broker_logs.py, client_edge.py, coordinators.py and replication.py are parts.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkapy.config.broker import BrokerConfig
from kafkapy.errors import ApiError
from kafkapy.handlers.context import Services
from kafkapy.metadata.delta import MetadataDelta, difference_steps
from kafkapy.metadata.image import EMPTY_IMAGE, MetadataImage, QuotaEntity
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.reactor.io_pool import ThreadIoPool
from kafkapy.replication.fetch_session import FetchSessionCache
from kafkapy.replication.hosted_partitions import HostedPartitions
from kafkapy.replication.replica_manager import ReplicaManager
from kafkapy.runtime.broker.active_controller import ActiveController
from kafkapy.runtime.broker.directory_assignments import DirectoryAssignments
from kafkapy.runtime.broker.lifecycle import BrokerLifecycle, Incarnation
from kafkapy.runtime.broker.metadata_publisher import MetadataPublisher
from kafkapy.runtime.expirer import Expirer
from kafkapy.runtime.logs.cleaner import LogCleaner
from kafkapy.runtime.logs.closing import close_logs
from kafkapy.runtime.logs.flusher import LogFlusher
from kafkapy.runtime.logs.full_directories import FullDirectories
from kafkapy.runtime.logs.log_dir_mover import LogDirMover
from kafkapy.runtime.logs.maintenance import LogMaintenance
from kafkapy.runtime.pool import HeavyWork
from kafkapy.runtime.turns import in_turns
from kafkapy.server import listeners
from kafkapy.server.broker_logs import BrokerLogs
from kafkapy.server.client_edge import ClientEdge
from kafkapy.server.coordinators import ClusterAccess, Coordinators
from kafkapy.server.node import Node
from kafkapy.server.quorum_node import SOCKETS, Network
from kafkapy.server.replication import Replication
from kafkapy.server.stopping import StopOrder
from kafkapy.server.telemetry import new_telemetry
from kafkapy.storage.cleaner.manager import CleanerManager
from kafkapy.timer.wheel import TimingWheel

if TYPE_CHECKING:
    from kafkapy import seams
    from kafkapy.gauge import Measured
    from kafkapy.machine import Decided
    from kafkapy.metadata.controller import Controller
    from kafkapy.protocol.serving import Coalesce, Route
    from kafkapy.seams import Clock, Disk, IoPool, Random

GRACE_MS: Final = 2000
"""At a stop: how long parked requests may still be answered, and committed metadata changes applied."""
MAX_SESSION_ID: Final = 2**31
DIFFERENCE_STEPS_PER_TURN: Final = 20
"""A step covers some hundred partitions of the initial image and takes about 0.1 ms."""
R = TypeVar("R")

logger = logging.getLogger("kafkapy.server")


class BrokerServer:
    """A broker on one event loop. All access to disk, clock, network and randomness goes through the seams."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        disk: "Disk",
        clock: "Clock",
        random: "Random",
        new_io_pool: "Callable[[asyncio.AbstractEventLoop, int], IoPool]" = ThreadIoPool,
        network: Network = SOCKETS,
        new_helper: "Callable[[asyncio.AbstractEventLoop], seams.HelperProcess] | None" = None,
    ) -> None:
        """`new_io_pool(loop, worker_count)`."""
        self.config = config
        self.node_id = config.node_id
        self._node = node = Node(
            config, disk=disk, clock=clock, random=random, new_io_pool=new_io_pool, network=network
        )
        self._clock = clock
        self._random = random
        self._stops = node.stops
        self._dynamic_config = node.dynamic_config
        self._new_helper = new_helper if new_helper is not None else _new_helper
        self._new_background_helper = new_helper if new_helper is not None else _new_background_helper
        self._services: Services | None = None

    @property
    def node(self) -> Node:
        return self._node

    @property
    def services(self) -> Services | None:
        return self._services

    @property
    def cluster_id(self) -> str:
        return self._node.cluster_id

    @property
    def failed(self) -> "asyncio.Future[BaseException] | None":
        """Completed with the error when the node cannot continue; the owner of the node then stops it."""
        return self._node.failed

    @property
    def bootstrap_servers(self) -> str:
        """host:port of the first client listener, as bound."""
        host, port = self._edge.first_address
        return f"{host}:{port}"

    async def start(self) -> None:
        """Start; clients may connect on return. Raises ConfigError, StorageError, OSError, after undoing all steps."""
        await self._node.run(self._start)
        logger.info("Kafka Server started (kafkapy.server.BrokerServer)")

    async def change(self, decide: "Callable[[Controller, int], Decided[Any, R]]") -> "R":
        """Have the controller decide, and return once this broker has applied the change. Raises ApiError."""
        return await self._publisher.change(decide)

    def intercept(self, intercepted: "Callable[[Services, Route, Coalesce], tuple[Route, Coalesce]]") -> None:
        """Let what `intercepted` makes of the services and the router's functions serve all clients' connections."""
        assert self._services is not None, "a broker that has started"
        self._edge.intercept(partial(intercepted, self._services))

    async def stop(self) -> None:
        """Stop in order; every acknowledged record is on disk when this returns.

        If a step fails, the remaining steps are still taken; the first error is raised at the end.
        """
        logger.info("Beginning controlled shutdown")
        await self._stops.stop()
        logger.info("Shut down completed")

    async def kill(self) -> None:
        """End as in a crash: connections are cut without responses, nothing is flushed or marked clean."""
        self._log_manager.abandon()
        await self._stops.undo()

    async def _apply_last_changes(self) -> None:
        """Apply committed metadata changes, for at most GRACE_MS."""
        if not await self._publisher.caught_up(GRACE_MS):
            logger.info("Stopping before all metadata changes were applied; the next start applies the rest")

    async def _close_logs(self) -> None:
        await close_logs(
            self._log_manager,
            io_pool=self._io_pool,
            clock=self._clock,
            threads_per_directory=self._dynamic_config.current.log.num_recovery_threads_per_data_dir,
            broker_epoch=self._lifecycle.broker_epoch,
        )

    async def _start(self) -> None:
        """Start part by part. Each part adds its stop step as soon as it holds a resource."""
        node = self._node
        self._io_pool = node.io_pool
        node.gauges = self._gauges
        if node.counts is not None:
            from kafkapy.server.admin.serve import serve_admin  # not needed by most nodes

            serve_admin(node)
        node.open_directories(self._close_logs)
        self._log_manager = node.log_manager
        await node.start_quorum()
        self._quorum_node, self._controller = node.quorum_node, node.controller
        await node.wait_at_start(self._register(), "the registration of the broker")
        await self._start_replicas()
        await self._start_serving()

    async def _register(self) -> None:
        """Bind the client listeners and register; return once the image contains that registration.

        So no log is judged a stray, and no partition is led, by older metadata. Raises ApiError.
        """
        self._node.update_dynamic_config(self._controller.image)
        self._edge = ClientEdge(self._node)
        self._reactor = self._edge.reactor
        self._stops.add_apart(StopOrder.SERVING, self._reactor.stop_serving, undo=self._reactor.stop_accepting)
        shut_down = partial(self._reactor.shut_down, GRACE_MS)
        self._stops.add_apart(StopOrder.CONNECTIONS, shut_down, undo=self._reactor.close)
        self._edge.bind()
        self._lifecycle = self._new_lifecycle()
        self._node.add_directory_listener(self._report_failed_directory)
        self._stops.add_apart(StopOrder.REGISTRATION, self._lifecycle.shut_down, undo=self._lifecycle.close)
        self._stops.hurry = self._lifecycle.hurry
        timeout_ms = self.config.quorum.initial_broker_registration_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._quorum_node.caught_up_to(await self._registered())
        except TimeoutError:
            raise self._registration_timed_out(timeout_ms) from None
        self._node.metadata_is_known()
        self._node.conditions["registration"] = lambda: self._lifecycle.missing

    async def _registered(self) -> int:
        """Register; return the broker epoch. Raises ApiError; for an unsupported level it says how to lower it."""
        try:
            return await self._lifecycle.register()
        except ApiError as error:
            if error.code != ErrorCode.UNSUPPORTED_VERSION:
                raise
            raise await self._quorum_node.explained_refusal(error) from error

    def _registration_timed_out(self, timeout_ms: int) -> ApiError:
        """Return the error of a start without registration, with the last reason why it was retried."""
        refusal = self._lifecycle.refusal
        reason = "Is a majority of the controllers running?"
        if refusal is not None and refusal.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            reason = f"DUPLICATE_BROKER_REGISTRATION: another process is registered with node.id={self.node_id}"
        elif refusal is not None and refusal.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            reason = (
                "CLUSTER_AUTHORIZATION_FAILED: the controllers do not allow this node's principal CLUSTER_ACTION on "
                "the cluster. Name it in super.users of the controllers, or add an ACL"
            )
        elif refusal is not None:
            reason = f"{str(refusal).rstrip('.')}. {reason}"
        return ApiError(
            ErrorCode.REQUEST_TIMED_OUT,
            "The broker did not register with a controller within "
            f"initial.broker.registration.timeout.ms={timeout_ms} ms. {reason}",
        )

    async def _start_replicas(self) -> None:
        """Load the logs, then lead and follow partitions as in the metadata."""
        self._logs = BrokerLogs(self._node, self._new_helper)
        await self._logs.load()
        # the pool was made before the metadata was known, which may set another size
        self._io_pool.resize(self._dynamic_config.current.node.num_io_threads)
        self._node.check_not_failed()
        self._flusher = LogFlusher(self._io_pool, self._clock)
        self._stops.add(StopOrder.FLUSHES, self._flusher.close)
        self._replica_manager = self._new_replica_manager()
        self._stops.add_apart(StopOrder.WAITING_REQUESTS, self._replica_manager.shutdown, undo=None)
        self._node.add_directory_listener(self._replica_manager.directory_failed)
        self._coordinators = self._new_coordinators()
        self._telemetry = new_telemetry(self._node, self._wheel)
        self._reactor.disconnect_listeners.append(self._coordinators.share_reads.disconnected)
        if self._telemetry is not None:
            self._reactor.disconnect_listeners.append(self._telemetry.disconnected)
        self._mover = self._new_mover()
        self._stops.add(StopOrder.MOVES, self._mover.stop)
        self._stops.add(StopOrder.FULL_DIRECTORIES, self._full_directories.stop)
        self._node.add_directory_listener(lambda path: self._mover.end_unwanted())
        self._replication = self._new_replication()
        self._stops.add(StopOrder.REPLICATION, self._replication.stop)
        node = self._node
        self._publisher = MetadataPublisher(
            self._controller, self._publish, clock=self._clock, on_fatal=node.fail, on_steps=node.notify_applied
        )
        self._stops.add_apart(StopOrder.COMMITTED_CHANGES, self._apply_last_changes, undo=None)
        self._stops.add_apart(StopOrder.LAST_CHANGES, self._apply_last_changes, undo=None)
        self._stops.add(StopOrder.METADATA_PUBLISHER, self._publisher.close)
        await self._publish_metadata()
        self._node.conditions["metadata"] = self._missing_metadata
        self._node.conditions["coordinators"] = lambda: self._coordinators.missing
        self._cleaner = self._new_cleaner()
        self._stops.add(StopOrder.CLEANER, self._cleaner.stop)

    async def _start_serving(self) -> None:
        """Wait to be unfenced, start periodic tasks, then accept connections."""
        config = self.config
        self._services = self._new_services()
        self._coordinators.use(self._services)
        for _ in self._apply_quotas(self._controller.image, self._controller.image.client_quotas):
            pass
        self._edge.serve(self._services)
        # Once unfenced it may be made leader; clients would get NOT_LEADER_OR_FOLLOWER until it has applied that.
        await self._node.wait_at_start(self._lifecycle.unfence(), "the broker to be unfenced")
        await self._node.wait_at_start(self._publisher.caught_up(), "the broker to apply the metadata")
        self._stops.add(StopOrder.TIMERS, self._expirer.stop)
        self._expirer.start()
        self._mover.start()
        self._full_directories.start()
        self._coordinators.start()
        self._maintenance = LogMaintenance(
            self._log_manager, config, clock=self._clock, io_pool=self._io_pool, reserve=self._node.reserve
        )
        self._stops.add(StopOrder.MAINTENANCE, self._maintenance.stop)
        self._maintenance.start()
        self._cleaner.start(self._dynamic_config.current.log)
        self._dynamic_config.add_listener(self._apply_config)
        self._node.check_not_failed()  # a part may have failed while the start waited for another one
        # The listeners were bound before the metadata was known, which may have other limits, logins and listeners.
        self._edge.update(self._dynamic_config.current)
        # These were set up when it was known, but it may have changed while the logs were loaded.
        self._logs.configure_manager()
        self._io_pool.resize(self._dynamic_config.current.node.num_io_threads)
        self._reactor.start()
        self._node.conditions["listeners"] = lambda: None

    # -- the parts ------------------------------------------------------------------------------------------------

    def _new_replica_manager(self) -> ReplicaManager:
        self._wheel = wheel = TimingWheel(start_ms=self._clock.monotonic_ms())
        self._expirer = Expirer(wheel, self._clock)
        partitions = HostedPartitions(
            self.node_id,
            self._log_manager,
            self._dynamic_config.log_config,
            max_lag_ms=lambda: self._dynamic_config.current.replication.replica_lag_time_max_ms,
            traffic=self._node.counts.traffic if self._node.counts is not None else None,
        )
        return ReplicaManager(partitions, self._clock, wheel, self._flusher.request)

    def _new_coordinators(self) -> Coordinators:
        return Coordinators(
            self._replica_manager,
            self._dynamic_config,
            ClusterAccess(
                image=partial(attrgetter("image"), self._controller),  # read by each transaction: no call of our own
                allocate_producer_ids=lambda: self._lifecycle.allocate_producer_ids(),
                new_peer=self._quorum_node.peers.new_broker_peer,
            ),
            system=self._node.system,
            wheel=self._wheel,
            stops=self._stops,
            counts=self._node.counts,
        )

    def _new_replication(self) -> Replication:
        return Replication(
            self._replica_manager,
            self._log_manager,
            self._quorum_node,
            dynamic_config=self._dynamic_config,
            broker_epoch=lambda: self._lifecycle.broker_epoch,
            flush=self._flusher.flush,
            clock=self._clock,
        )

    async def _publish_metadata(self) -> None:
        """Apply the current image, then each later change."""
        published = EMPTY_IMAGE
        while published is not self._controller.image:
            image = self._controller.image
            delta = await in_turns(difference_steps(published, image), self._clock, DIFFERENCE_STEPS_PER_TURN)
            self._on_image(delta, image)
            published = image
        self._controller.add_image_listener(self._on_image)
        await self._publisher.caught_up()
        self._node.check_not_failed()

    def _missing_metadata(self) -> str | None:
        count = self._publisher.waiting_count
        return self._node.missing_metadata() or (f"{count} changes are not applied yet" if count else None)

    def _on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._replica_manager.announce(image)
        self._publisher.on_image(delta, image)

    def _publish(self, delta: MetadataDelta, image: MetadataImage) -> Iterator[None]:
        if delta.config_changes:
            self._node.apply_config_changes(delta.config_changes, image)
            if self._telemetry is not None:
                self._telemetry.apply_delta(delta.config_changes, image)
        if delta.quota_changes:
            yield from self._apply_quotas(image, delta.quota_changes)
        yield from self._replication.apply_delta(delta, image, self._clock.wall_ms())
        yield from self._mover.apply_delta(delta, image)
        yield from self._coordinators.apply_delta(delta, image)

    def _apply_quotas(self, image: MetadataImage, changed: Collection[QuotaEntity]) -> Iterator[None]:
        if changed and self._services is not None:
            from kafkapy.server.client_quotas import apply_ip_rates, apply_quotas  # most brokers have none

            of_controller = self._quorum_node.services
            yield from apply_quotas([self._services, *([of_controller] if of_controller else [])], image, changed)
            yield from apply_ip_rates(self._reactor, image, changed)

    def _apply_config(self, before: BrokerConfig, config: BrokerConfig) -> None:
        """Apply configuration keys that changed at run time, but defaults of topics: HostedPartitions updates the logs.

        num.network.threads is accepted but has no effect: processors share one thread, so their number does not matter.
        """
        self._edge.update(config)
        self._logs.configure_manager()
        self._lifecycle.cordoned_changed()
        self._io_pool.resize(config.node.num_io_threads)
        self._cleaner.reconfigure(config.log)

    def _new_services(self) -> Services:
        return Services(
            cluster_id=self.cluster_id,
            node_id=self.node_id,
            config=self.config,
            dynamic_config=self._dynamic_config,
            clock=self._clock,
            random=self._random,
            io_pool=self._io_pool,
            heavy_work=HeavyWork(self._io_pool),
            authorizer=self._node.authorizer,
            metadata=self._controller,  # by this name handlers read its image, by the other they have it decide
            controller=self._controller,
            active_controller=self._quorum_node.active,
            metadata_changes=self._publisher,
            quorum=self._quorum_node.quorum,
            log_manager=self._log_manager,
            replica_manager=self._replica_manager,
            log_dir_mover=self._mover,
            log_flusher=self._flusher,
            fetch_sessions=FetchSessionCache(
                self.config.node.max_incremental_fetch_session_cache_slots,
                new_session_id=lambda: self._random.randrange(1, MAX_SESSION_ID),
            ),
            producer_ids=self._coordinators.producer_ids,
            groups=self._coordinators.groups,
            share=self._coordinators.share,
            transactions=self._coordinators.transactions,
            transaction_verification=self._coordinators.new_verification(
                None if self._node.counts is None else self._node.counts.verifications
            ),
            telemetry=self._telemetry,
            share_partitions=self._coordinators.share_reads.partitions,
        )

    def _new_mover(self) -> LogDirMover:
        assignments = DirectoryAssignments(self._quorum_node.active, self.node_id, lambda: self._lifecycle.broker_epoch)
        resigned = self._coordinators.on_resigned
        self._full_directories = FullDirectories(
            self._replica_manager, assignments, on_resigned=resigned, apply_again=self._on_image
        )
        return LogDirMover(
            self._replica_manager,
            assignments,
            self._full_directories,
            node_id=self.node_id,
            settings=lambda: self._dynamic_config.current,
            system=self._node.system,
            flusher=self._flusher,
        )

    def _new_cleaner(self) -> LogCleaner:
        return LogCleaner(
            CleanerManager(self._log_manager, self._log_manager.disk),
            self._log_manager,
            new_helper=self._new_background_helper,
            clock=self._clock,
            io_pool=self._io_pool,
        )

    def _gauges(self) -> "Iterator[Measured | None]":
        from kafkapy.server.admin.broker_state import broker_state, state_gauges  # used by /metrics only
        from kafkapy.server.admin.gauges import BrokerParts, broker_gauges

        node, lifecycle = self._node, None if self._services is None else self._lifecycle.state
        state = broker_state(node.conditions, lifecycle, has_begun_to_stop=node.stops.has_begun)
        if self._services is None:
            return state_gauges(state)
        parts = BrokerParts(
            state, self._services, node, self._coordinators, self._cleaner.manager, self._replication, self._reactor
        )
        return broker_gauges(parts)

    def _new_lifecycle(self) -> BrokerLifecycle:
        return BrokerLifecycle(
            controller=ActiveController(self._controller, self._quorum_node.new_heartbeat_channel),
            config=self.config,
            incarnation=Incarnation(
                self.cluster_id,
                self._node.incarnation_id,
                listeners.advertised(self.config, self._edge.addresses),
                [each.directory_id for each in self._log_manager.directories.live if each.directory_id is not None],
                previous_broker_epoch=self._node.previous_broker_epoch,
            ),
            cordoned_directories=lambda: self._log_manager.directories.cordoned_ids,
            on_fatal=self._node.fail,
        )

    # -- failures -------------------------------------------------------------------------------------------------

    def _report_failed_directory(self, path: str) -> None:
        for each in self._log_manager.directories:
            if each.path == path and each.directory_id is not None:
                self._lifecycle.directory_failed(each.directory_id)


def _new_helper(loop: asyncio.AbstractEventLoop) -> "seams.HelperProcess":
    from kafkapy.reactor.helper import SubprocessHelper  # not needed by most brokers

    return SubprocessHelper(loop)


def _new_background_helper(loop: asyncio.AbstractEventLoop) -> "seams.HelperProcess":
    from kafkapy.reactor.helper import SubprocessHelper

    return SubprocessHelper(loop, is_background=True)
