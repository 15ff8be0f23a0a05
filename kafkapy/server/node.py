"""The parts that every node has, whatever its roles: log directories, IO pool, metadata quorum, failure handling.

A role (server/broker.py, server/controller.py) passes its start function to `run`. That function calls
`open_directories` and `start_quorum` when it needs them, and adds a stop step to `stops` for each part that it starts.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.dynamic import DynamicConfig
from kafkapy.errors import ApiError, StorageError
from kafkapy.metadata.image import RESOURCE_BROKER, ConfigResource, MetadataImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.runtime.quorum.identity import MetadataDirectory
from kafkapy.seams import System
from kafkapy.security.authorizer import AllowAll, Authorizer
from kafkapy.server.formatted import check_identity, check_metadata_log
from kafkapy.server.limits import limits_of_controllers, open_file_capacity
from kafkapy.server.quorum_node import ControllerEdge, Failures, Network, NodeIdentity, QuorumNode
from kafkapy.server.stopping import StopOrder, Stops
from kafkapy.storage.log_dir import LogDirState
from kafkapy.storage.manager.log_manager import DirectoryWatcher, LogManager
from kafkapy.storage.manager.space_reserve import SpaceReserve
from kafkapy.storage.segment.open_files import OpenFiles
from kafkapy.types import METADATA_PARTITION, ZERO_UUID

if TYPE_CHECKING:
    from kafkapy import seams
    from kafkapy.gauge import Measured
    from kafkapy.metadata.delta import MetadataDelta
    from kafkapy.metrics.registry import NodeCounts
    from kafkapy.runtime.controller.controller import MetadataRuntime

R = TypeVar("R")


class HeapGrowth(Protocol):
    """Learns how many long-lived objects a node has made (server/process/heap.py)."""

    def on_image(self, delta: "MetadataDelta", image: MetadataImage) -> None: ...

    def count_changes(self, change_count: int) -> None: ...


MAX_TIMEOUT_S: Final = 24 * 3600.0
"""A time-out longer than this is treated as no time-out, so that no loop timer is set that far ahead."""

logger = logging.getLogger("kafkapy.server")


class Node:
    """The parts of a node that its roles share. Disk, clock, network and randomness are accessed through the seams."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        disk: "seams.Disk",
        clock: "seams.Clock",
        random: "seams.Random",
        new_io_pool: "Callable[[asyncio.AbstractEventLoop, int], seams.IoPool]",
        network: Network,
    ) -> None:
        self.config = config
        self.disk = disk
        self.clock = clock
        self.random = random
        self.network = network
        self.cluster_id = ""
        self.failed: asyncio.Future[BaseException] | None = None
        """Completed with the error when the node cannot continue; the owner of the node then stops it."""
        self.dynamic_config = DynamicConfig(config)
        self.incarnation_id = random.uuid()
        self.stops = Stops()
        self.authorizer = self._new_authorizer()
        self.loop: asyncio.AbstractEventLoop
        self.io_pool: seams.IoPool
        self._quorum_pool: seams.IoPool
        """A worker for the fsyncs of the metadata log, which wait for no other call."""
        self.log_manager: LogManager
        self.quorum_node: QuorumNode
        self.previous_broker_epoch = -1
        """The broker epoch that the last clean shutdown wrote, or -1."""
        self.reserve: SpaceReserve
        self._new_io_pool = new_io_pool
        self.conditions: dict[str, Callable[[], str | None]] = {}
        """The conditions of /readyz by name: each returns what is still missing, or None. Each part of the start adds
        its own."""
        self.gauges: Callable[[], Iterable[Measured | None]] = tuple
        """Returns the metrics for /metrics; None is a step without a value. Taken on the event loop, a few at a
        time."""
        self.counts: NodeCounts | None = _new_counts(config)
        """What the parts of the node count; None without an admin listener, so that nothing is counted."""
        self._on_directory_failed: list[Callable[[str], None]] = []
        self._heap_growth: HeapGrowth | None = None
        self._has_metadata = False
        self._started_at = 0.0
        """In seconds of the event loop's clock."""

    @property
    def system(self) -> System:
        """Disk, clock, randomness and IO pool; once `run` has opened the pool."""
        return System(self.disk, self.clock, self.random, self.io_pool)

    @property
    def unfinished_count(self) -> int:
        """The number of calls that the threads of the IO pools have not finished."""
        return sum(getattr(pool, "unfinished_count", 0) for pool in (self.io_pool, self._quorum_pool))

    async def run(self, start: Callable[[], Awaitable[None]]) -> None:
        """Open the IO pool and run `start`. If that fails, undo what was started and raise."""
        self.loop = asyncio.get_running_loop()
        self._started_at = self.loop.time()
        self.failed = self.loop.create_future()
        try:
            self._quorum_pool = self._new_io_pool(self.loop, 1)
            self.io_pool = self._new_io_pool(self.loop, self.config.node.num_io_threads)
            self.stops.add(StopOrder.IO_POOL, self._close_io_pools)
            await start()
        except BaseException:
            await self.stops.undo()
            raise

    def _close_io_pools(self) -> None:
        self._quorum_pool.close()
        self.io_pool.close()

    async def wait_at_start(self, awaited: Awaitable[R], for_what: str) -> R:
        """Await a part of the start, until at most server.max.startup.time.ms after the start began; return its result.

        Raises the error that the node fails with meanwhile, or has failed with; else ApiError REQUEST_TIMED_OUT with a
        message that names the key and `for_what`.
        """
        assert self.failed is not None, "a node runs when it starts"
        timeout_ms = self.config.node.server_max_startup_time_ms
        left_s = timeout_ms / 1000 - (self.loop.time() - self._started_at)
        part = asyncio.ensure_future(awaited)
        if self.failed.done():
            part.cancel()  # before its first step
        try:
            async with asyncio.timeout(left_s if left_s < MAX_TIMEOUT_S else None):
                await asyncio.wait((part, self.failed), return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            message = f"The start took longer than server.max.startup.time.ms={timeout_ms} ms, waiting for {for_what}"
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, message) from None
        finally:
            part.cancel()
            await asyncio.gather(part, return_exceptions=True)
        self.check_not_failed()
        return part.result()

    @property
    def controller(self) -> "MetadataRuntime":
        """This node's controller, which holds the metadata image."""
        return self.quorum_node.controller

    def open_directories(self, close_logs: Callable[[], Awaitable[None]]) -> None:
        """Lock and check the log directories; a stop calls `close_logs`. Raises ConfigError, StorageError."""
        self.log_manager = self._new_log_manager()
        directories = self.log_manager.directories
        if self.counts is not None:
            directories.set_flush_listener(self.counts.record_flush)
        directories.lock()
        self.stops.add(StopOrder.LOCKS, directories.unlock)
        self.stops.add_apart(StopOrder.LOGS, close_logs, undo=self.log_manager.close)
        self.conditions["directories"] = self._offline_directories
        self.check_not_failed()
        self.cluster_id = check_identity(self.disk, directories, self.config)
        check_metadata_log(self.disk, directories, self.config)
        self.reserve = SpaceReserve(self.disk, self.config.metadata_log_dir)
        self._keep_room_for_metadata()
        self.stops.add_apart(StopOrder.METADATA_ROOM, self._keep_room_for_metadata, undo=None)
        self.previous_broker_epoch = directories.last_broker_epoch()

    async def start_quorum(self) -> None:
        """Recover the metadata and join the quorum.

        If the metadata log cannot be read, it is not truncated; the clean-shutdown file is restored, so that the next
        start fails in the same way.
        """
        self.quorum_node = node = self._new_quorum_node()
        self.stops.add(StopOrder.METADATA_LOG, self._close_quorum)
        self.stops.add(StopOrder.CONTROLLER, node.close_controller)
        self.conditions["metadata"] = self.missing_metadata
        if self._heap_growth is not None:
            node.controller.add_image_listener(self._heap_growth.on_image)
            node.controller.set_load_listener(self._heap_growth.count_changes)
        if self.counts is not None and self.config.is_controller:
            node.controller.add_image_listener(self._count_elections)
        try:
            await node.start()
        except StorageError:
            if not node.quorum.is_recovered:
                self.log_manager.directories.give_back_clean_shutdown()
            raise

    def _count_elections(self, delta: "MetadataDelta", _image: MetadataImage) -> None:
        topics = delta.topics_changed
        if self.counts is not None and topics is not None:
            self.counts.count_elections(unclean=topics.unclean_election_count, eligible=topics.eligible_election_count)

    def metadata_is_known(self) -> None:
        """Let the authorizer use the image's ACLs. Called when the image has reached the first high watermark found."""
        self._has_metadata = True
        quorum = self.quorum_node.quorum
        if self.config.is_controller and not quorum.is_voter:
            logger.warning(
                "Node %d is a controller and no voter of the metadata quorum, whose voters are %s: it does not count "
                "for a majority until it is added, as by `kafkapy cluster voters add`",
                self.config.node_id,
                quorum.voters,
            )
        self.authorizer.refresh()
        self.quorum_node.acls_are_loaded()

    def missing_metadata(self) -> str | None:
        """Return why the metadata is not complete yet, or None."""
        if self.quorum_node.quorum.leader_id < 0:
            return "no leader of the metadata quorum is known"
        return None if self._has_metadata else "it is not known up to the high watermark of this start"

    def _offline_directories(self) -> str | None:
        offline = self.log_manager.directories.offline_paths
        return f"offline: {', '.join(offline)}" if offline else None

    def update_dynamic_config(self, image: MetadataImage) -> None:
        """Apply the dynamic broker configs of the image: those of this node and the cluster-wide defaults."""
        cluster = image.configs.of(RESOURCE_BROKER, "")
        node = image.configs.of(RESOURCE_BROKER, str(self.config.node_id))
        for warning in self.dynamic_config.update(cluster=cluster, broker=node):
            logger.warning("%s", warning)

    def apply_config_changes(self, changed: Collection[ConfigResource], image: MetadataImage) -> None:
        """Like update_dynamic_config, if a change is of this node or of the defaults. That rereads certificates."""
        names = {resource.name for resource in changed if resource.resource_type == RESOURCE_BROKER}
        if names & {"", str(self.config.node_id)}:
            self.update_dynamic_config(image)

    def set_heap_growth(self, heap_growth: "HeapGrowth") -> None:
        """Tell `heap_growth` of metadata and logs, which stay in memory. Set before the start, which makes most."""
        self._heap_growth = heap_growth

    def notify_applied(self, step_count: int) -> None:
        """Count the steps that the broker took in a turn: logs loaded, or metadata applied, some for each partition."""
        if self._heap_growth is not None:
            self._heap_growth.count_changes(step_count)

    # -- failures -------------------------------------------------------------------------------------------------

    def add_directory_listener(self, on_failed: Callable[[str], None]) -> None:
        """Call `on_failed(path)` when a log directory fails."""
        self._on_directory_failed.append(on_failed)

    def check_not_failed(self) -> None:
        """Raise the error that the node failed with, if it has failed."""
        if self.failed is not None and self.failed.done():
            raise self.failed.result()

    def fail(self, error: BaseException) -> None:
        """Mark the node as failed, as it cannot continue; its owner stops it."""
        if self.failed is not None and not self.failed.done():
            self.failed.set_result(error)

    def _directory_failed(self, path: str) -> None:
        """Take a failed log directory's partitions offline. Fail the node if it was the metadata's, or the last one."""
        for act in self._on_directory_failed:
            act(path)
        directories = self.log_manager.directories
        failed = directories.at(path)
        reason = failed.state.offline_reason if failed is not None else None
        if path == self.config.metadata_log_dir:
            self.fail(StorageError(path, f"the metadata log dir has failed: {reason}"))
        elif not directories.live:
            self.fail(StorageError(path, f"all log dirs in {', '.join(self.config.log_dirs)} have failed: {reason}"))

    def _quorum_failed(self, error: BaseException) -> None:
        """Fail the node: it cannot run without metadata. Its metadata directory counts as unclean and is recovered."""
        self.fail(error)
        for directory in self.log_manager.directories:
            if directory.path == self.config.metadata_log_dir:
                directory.state.go_offline(str(error))

    async def _close_quorum(self) -> None:
        """Close the metadata log. If that fails, do not mark the directory clean: the next start recovers the log."""
        try:
            await self.quorum_node.close_quorum()
        except BaseException:
            self.log_manager.directories.forget_clean_stop(self.config.metadata_log_dir)
            raise

    # -- room for metadata ----------------------------------------------------------------------------------------

    def _directory_full(self, state: LogDirState) -> None:
        """When a disk that holds the metadata log is full, release the reserved space: it is for metadata only."""
        if state.path == self.config.metadata_log_dir:
            _try_reserve(self.reserve.give_up)
        self._keep_room_for_metadata()

    def _directory_has_room(self, _state: LogDirState) -> None:
        _try_reserve(self.reserve.renew)

    def _keep_room_for_metadata(self) -> None:
        states = [directory.state for directory in self.log_manager.directories.live]
        _try_reserve(lambda: self.reserve.keep_for_metadata(states))

    # -- the parts ------------------------------------------------------------------------------------------------

    def _new_authorizer(self) -> Authorizer:
        """Return the node's only authorizer. The listeners of clients and of controllers share it."""
        if not self.config.security.authorizer_class_name:
            return AllowAll()
        from kafkapy.server.login.authorization import LoadedAcls, new_authorizer  # not needed by most brokers

        acls = LoadedAcls(lambda: self.controller.image if self._has_metadata else None)
        return new_authorizer(self.config.security, acls)

    def share_open_files(self, node_count: int) -> None:
        """Keep to this node's part of the open files, one of `node_count` running nodes of this process."""
        self.log_manager.files.resize(open_file_capacity(node_count))

    def _new_log_manager(self) -> LogManager:
        return LogManager(
            self.disk,
            self.config.log_dirs,
            self.config.log_config,
            random=self.random,
            metadata_path=self.config.metadata_log_dir,
            files=OpenFiles(self.disk, open_file_capacity()),
            watcher=DirectoryWatcher(self._directory_failed, self._directory_full, self._directory_has_room),
        )

    def _new_quorum_node(self) -> QuorumNode:
        config = self.config
        directories = self.log_manager.directories
        directory = directories.at(config.metadata_log_dir)
        directory_id = directory.directory_id if directory is not None else None
        return QuorumNode(
            self.dynamic_config,
            NodeIdentity(self.cluster_id, directory_id or ZERO_UUID, self.incarnation_id),
            MetadataDirectory(
                f"{config.metadata_log_dir}/{METADATA_PARTITION}",
                was_clean_shutdown=directories.pop_clean_shutdown(config.metadata_log_dir),
                make_room=self._keep_room_for_metadata,
                on_flushed=None if self.counts is None else self.counts.record_flush,
                flush_pool=self._quorum_pool,
            ),
            system=self.system,
            network=self.network,
            edge=ControllerEdge(limits_of_controllers(config), self.authorizer, self.counts),
            failures=Failures(self._quorum_failed, self.fail),
        )


def _new_counts(config: BrokerConfig) -> "NodeCounts | None":
    if not config.node.kafkapy_admin_listener:
        return None
    from kafkapy.metrics.registry import NodeCounts  # not needed by most nodes

    return NodeCounts(time.monotonic(), time.perf_counter_ns)


def _try_reserve(change: Callable[[], None]) -> None:
    """Change the space reserved for metadata; an OSError is only logged, as the reserve is an optional safeguard."""
    try:
        change()
    except OSError as error:
        logger.warning("Could not change the file that reserves disk space for metadata: %s", error)
