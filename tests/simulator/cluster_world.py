"""A whole cluster on one virtual-time loop: the real servers, each a process on a computer of its own.

A computer has a disk, a wall clock and a place in the network. Its process is started again whenever it has ended, as a
supervisor would do. What may happen to it is here; when it happens is cluster_lives.py's.

    async def main(loop):
        world = ClusterWorld(loop, seed, 3)
        world.start()
        await world.until(world.is_whole)
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.load import load
from kafkapy.errors import ApiError, StorageError
from kafkapy.metadata.image import MetadataImage
from kafkapy.metadata.registrations import PartitionRegistration
from kafkapy.replication.hosted_partitions import HostedPartition
from kafkapy.server.broker import BrokerServer
from kafkapy.server.cluster.plan import COMBINED, defaults
from kafkapy.server.controller import ControllerServer
from kafkapy.server.quorum_node import Network
from kafkapy.storage.offline.format import FormatRequest, Voter, format_directories
from kafkapy.types import METADATA_PARTITION, TopicPartition
from tests.simulator.disk import Keep, SimDisk
from tests.simulator.faulty_network import FaultyConnector, FaultyNetwork
from tests.simulator.helper import SimHelper
from tests.simulator.io_pool import SimIoPool
from tests.simulator.loop import START_WALL_MS, SimLoop
from tests.simulator.network import LinkRules, SimListener
from tests.simulator.process_lives import ProcessLife, ProcessLoop
from tests.support.chance import SeededRandom

LOG_DIR: Final = "/data"
CLIENT_PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
CLUSTER_ID: Final = "AAAAAAAAQACAAAAAAAAAAQ"
RESTART_S: Final = (0.05, 0.5)
PROPERTIES: Final[Mapping[str, str]] = {
    "controller.quorum.election.timeout.ms": "300",
    "controller.quorum.fetch.timeout.ms": "1200",
    "controller.quorum.request.timeout.ms": "1000",
    "controller.quorum.retry.backoff.ms": "300",
    "broker.heartbeat.interval.ms": "400",
    "broker.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "1500",
    "replica.socket.timeout.ms": "1500",
    "replica.fetch.wait.max.ms": "1000",
    "replica.fetch.backoff.ms": "100",
    "metadata.max.idle.interval.ms": "2000",
    "num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "metadata.log.max.record.bytes.between.snapshots": "6000",
    "internal.metadata.log.segment.bytes": "5000",
    "internal.metadata.max.batch.size.in.bytes": "5000",
    "internal.metadata.delete.delay.millis": "1000",
    "metadata.max.retention.bytes": "8000",
    "log.flush.offset.checkpoint.interval.ms": "700",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "num.recovery.threads.per.data.dir": "1",
}


def host_of(node_id: int) -> str:
    return f"10.0.0.{node_id}"


def rack_of(node_id: int) -> str:
    return f"rack-{node_id % 2}"


def config_of(properties: Mapping[str, str]) -> BrokerConfig:
    """Return what a server.properties says; parsed once in all runs."""
    return _parsed(tuple(properties.items()))


@cache
def _parsed(properties: tuple[tuple[str, str], ...]) -> BrokerConfig:
    return load(dict(properties))[0]


class SkewedClock:
    """seams.Clock of a computer whose wall clock is wrong by `skew_ms`, which may change."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.skew_ms = 0
        self.ahead_per_s_ms = 0
        """How much it runs ahead each second."""

    def wall_ms(self) -> int:
        now_ms = self._loop.now_ms()
        return START_WALL_MS + self.skew_ms + now_ms + now_ms * self.ahead_per_s_ms // 1000

    def monotonic_ms(self) -> int:
        return self._loop.now_ms()

    def monotonic_ns(self) -> int:
        return self._loop.now_ms() * 1_000_000


class Computer:
    """A node's computer and the process on it."""

    def __init__(self, world: "ClusterWorld", node_id: int, roles: str) -> None:
        self.world = world
        self.node_id = node_id
        self.roles = roles
        self.host = host_of(node_id)
        self.disk = SimDisk(world.seed * 100 + node_id)
        self.clock = SkewedClock(world.loop)
        self.life: ProcessLife | None = None
        self.server: BrokerServer | ControllerServer | None = None
        self.is_serving = False
        self.is_held = False
        """Whether the supervisor is to leave the process stopped."""
        self.has_disk_fault = False
        """Whether the disk was made to fail, or full: the process may end itself."""
        self.has_failed_disk = False
        """Whether a directory may be offline until the process starts again; a full one comes back by itself."""
        self.life_count = 0
        self._ended: asyncio.Event = asyncio.Event()
        world.network.boots[self.host] = 0

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles

    @property
    def directory_id(self) -> bytes:
        return bytes([self.node_id]) * 16

    def properties(self) -> dict[str, str]:
        listeners = []
        if self.is_broker:
            listeners.append(f"PLAINTEXT://{self.host}:{CLIENT_PORT}")
        if self.is_controller:
            listeners.append(f"CONTROLLER://{self.host}:{CONTROLLER_PORT}")
        return {
            **defaults(3),
            **PROPERTIES,
            **self.world.properties,
            "process.roles": self.roles,
            "node.id": str(self.node_id),
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": self.world.bootstrap_controllers,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": self.world.properties.get("log.dirs", LOG_DIR),
            **({"broker.rack": rack_of(self.node_id)} if "replica.selector.class" in self.world.properties else {}),
        }

    def format(self) -> None:
        config = config_of(self.properties())
        voters = [
            Voter(each.node_id, each.host, CONTROLLER_PORT, each.directory_id)
            for each in self.world.computers.values()
            if each.is_controller and self.is_controller
        ]
        request = FormatRequest(config, CLUSTER_ID, voters=voters or None, ignore_formatted=True)
        random = SeededRandom(self.world.seed * 100 + self.node_id)
        format_directories(request, self.disk, random, self.clock, say=lambda line: None)
        self.disk.sync_all()

    # -- the process ----------------------------------------------------------------------------------------------

    async def supervise(self) -> None:
        """Start the process whenever there is none."""
        loop = self.world.loop
        while True:
            while self.is_held:
                await asyncio.sleep(0.05)
            self._begin()
            try:
                await self._run()
            finally:
                if self.life is not None:
                    self._end_process()
            await asyncio.sleep(loop.rng.uniform(*RESTART_S))

    def _begin(self) -> None:
        network = self.world.network
        if network.boots[self.host] is None:
            network.boots[self.host] = self.life_count
        self.life_count += 1
        self.disk.now_ms = self.clock.wall_ms()
        self.life = ProcessLife(self.world.loop, f"node {self.node_id}")
        self._ended = asyncio.Event()
        self.server = None
        self.is_serving = False

    async def _run(self) -> None:
        """Start, and return when the process has ended."""
        assert self.life is not None
        life, ended = self.life, self._ended
        started = life.create_task(self._start())
        waiting = asyncio.ensure_future(ended.wait())
        try:
            await asyncio.wait([started, waiting], return_when=asyncio.FIRST_COMPLETED)
            if ended.is_set():  # also by the last step of its start, before `waiting` could notice
                return
            if (error := started.exception()) is not None:
                self._judge(error)
                return
            self.is_serving = True
            assert self.server is not None
            assert self.server.failed is not None
            await asyncio.wait([self.server.failed, waiting], return_when=asyncio.FIRST_COMPLETED)
            if not ended.is_set():
                self._judge(self.server.failed.result())
        finally:
            waiting.cancel()

    def _judge(self, error: BaseException) -> None:
        """A process may give up where the cluster or the disk gives no choice; all else is a mistake of ours."""
        is_disk = isinstance(error, StorageError | OSError) and self.has_disk_fault
        if is_disk or isinstance(error, ApiError):
            self.world.note(f"node {self.node_id} ends: {error!r}")
            return
        self.world.failures.append(f"node {self.node_id} ended: {error!r}")
        self.world.first_error = self.world.first_error or error

    async def _start(self) -> None:
        config = config_of(self.properties())
        kind: Any = BrokerServer if self.is_broker else ControllerServer
        more = {"new_helper": lambda _loop: SimHelper(self.world.loop, self.disk)} if self.is_broker else {}
        self.server = kind(
            config,
            disk=self.disk,
            clock=self.clock,
            random=SeededRandom(self.world.seed * 10_000 + self.node_id * 1000 + self.life_count),
            new_io_pool=lambda _loop, count: SimIoPool(self.world.loop, worker_count=count, call_ms=self.world.io_ms),
            network=Network(self._listen, lambda _loop: FaultyConnector(self.world.network, self.host)),
            **more,
        )
        await self.server.start()

    def _listen(self, _loop: asyncio.AbstractEventLoop, host: str, port: int, **_options: int) -> SimListener:
        return self.world.network.listen(host, port)

    # -- what may happen to it --------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        return self.life is not None

    def kill(self) -> None:
        """kill -9: what was written stays."""
        self._end_process()

    def cut_power(self, keep: Keep) -> None:
        """Lose what was not synced, and fall silent until the next start."""
        self._end_process(keep)

    def _end_process(self, keep: Keep | None = None) -> None:
        if self.life is None:
            return
        self.life.kill()
        self.life = None
        self.is_serving = False
        if keep is None:
            self.world.network.kill_process(self.host)
        else:
            self.world.network.cut_power(self.host)
            self.world.network.boots[self.host] = None
        self._note_forgotten(self.disk.crash(keep or "all"))
        self._ended.set()

    def _note_forgotten(self, paths: Sequence[str]) -> None:
        """Count a crash that forgot records of a partition, or of the metadata log."""
        logs = [path for path in paths if path.endswith(".log")]
        self.disk.effects["forgotten records"] += any(map(_has_records, logs))
        self.disk.effects["forgotten metadata"] += not all(map(_has_records, logs))

    @property
    def has_unsynced_records(self) -> bool:
        """Whether a loss of power may take records of a partition."""
        return any(path.endswith(".log") and _has_records(path) for path in self.disk.unsynced())

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL where the process takes too long."""
        if self.life is None or not self.is_serving:
            return
        assert self.server is not None
        life = self.life
        stopped = life.create_task(self.server.stop())
        await asyncio.wait(
            [stopped, asyncio.ensure_future(self._ended.wait())], timeout=8, return_when="FIRST_COMPLETED"
        )
        if self.life is not life:
            return
        if stopped.done() and (error := stopped.exception()) is not None:
            self._judge(error)
        self._end_process()

    # -- looking into it --------------------------------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage | None:
        return self.server.node.controller.image if self.server is not None and self.is_serving else None

    def partitions(self) -> Iterator[HostedPartition]:
        """Yield the replicas of a serving broker."""
        if self.is_serving and isinstance(self.server, BrokerServer):
            yield from self.server._replica_manager.partitions

    def partition(self, partition: TopicPartition) -> "HostedPartition | None":
        if self.is_serving and isinstance(self.server, BrokerServer):
            return self.server._replica_manager.partitions.find(*partition)
        return None


class ClusterWorld:
    """Computers by node id. `failures` are what no process should ever do."""

    def __init__(self, loop: ProcessLoop, seed: int, roles: Mapping[int, str], **properties: str) -> None:
        self.loop = loop
        self.seed = seed
        self.io_ms = 1.0
        self.properties = {key.replace("_", "."): value for key, value in properties.items()}
        self.network = FaultyNetwork(loop, LinkRules(min_delay_ms=0.2, max_delay_ms=3.0))
        self.failures: list[str] = []
        self.first_error: BaseException | None = None
        self.history: list[str] = []
        self.bootstrap_controllers = ",".join(
            f"{host_of(node_id)}:{CONTROLLER_PORT}" for node_id, each in roles.items() if "controller" in each
        )
        self.computers: dict[int, Computer] = {}
        for node_id, each in roles.items():
            self.computers[node_id] = Computer(self, node_id, each)
        for computer in self.computers.values():
            computer.format()
        self._tasks: list[asyncio.Task[None]] = []
        self._view: ImageView | None = None

    @property
    def brokers(self) -> list[Computer]:
        return [each for each in self.computers.values() if each.is_broker]

    def links_of(self, computer: Computer, *, is_out: bool = True, is_in: bool = True) -> set[tuple[str, str]]:
        """Return the links between a computer and all others, as network.packets.cut has them."""
        others = [each.host for each in self.computers.values() if each is not computer]
        outbound = {(computer.host, other) for other in others if is_out}
        return outbound | {(other, computer.host) for other in others if is_in}

    def effects(self) -> Counter[str]:
        """Count the faults of disks that took effect so far, by kind."""
        return sum((computer.disk.effects for computer in self.computers.values()), Counter[str]())

    def note(self, text: str) -> None:
        self.history.append(f"{self.loop.now:9.3f} {text}")

    def start(self) -> None:
        self._tasks = [self.loop.create_task(each.supervise()) for each in self.computers.values()]

    async def until(self, holds: Callable[[], bool], limit_s: float, what: str) -> None:
        """Let time pass until something holds. Raises AssertionError."""
        end = self.loop.now + limit_s
        while not holds():
            self.check()
            assert self.loop.now < end, f"I12: not within {limit_s} s: {what}"
            await asyncio.sleep(0.02)

    def check(self) -> None:
        """Raise what a process failed with."""
        for task in self._tasks:
            if task.done():
                task.result()
        if self.first_error is not None:
            raise AssertionError(self.failures[0]) from self.first_error
        if self.loop.errors:
            raise AssertionError(self.loop.errors[0]) from getattr(self.loop, "last_error", None)

    # -- the cluster as its metadata tells --------------------------------------------------------------------------

    def image(self) -> MetadataImage | None:
        """Return the newest image that a node has."""
        images = [image for each in self.computers.values() if (image := each.image) is not None]
        return max(images, key=lambda image: image.provenance.last_offset, default=None)

    def registrations(self) -> dict[TopicPartition, PartitionRegistration]:
        """Return all partitions; the dict is the caller's to read only."""
        image = self.image()
        return self._view_of(image).registrations if image is not None else {}

    def is_whole(self) -> bool:
        """Whether all nodes serve, are unfenced, and every replica is in sync."""
        if not all(each.is_serving for each in self.computers.values()):
            return False
        image = self.image()
        return image is not None and self._view_of(image).is_whole

    def _view_of(self, image: MetadataImage) -> "ImageView":
        if self._view is None or self._view.image is not image:
            self._view = ImageView(image, {each.node_id for each in self.brokers})
        return self._view


class ImageView:
    """What is asked of an image again and again, until there is another."""

    def __init__(self, image: MetadataImage, broker_ids: set[int]) -> None:
        self.image = image
        self.registrations = {
            TopicPartition(topic.name, number): partition
            for topic in image.topics.by_name.values()
            for number, partition in topic.partitions.items()
        }
        alive = {broker.id for broker in image.cluster.brokers.values() if not broker.fenced}
        self.is_whole = alive >= broker_ids and all(
            set(each.isr) == set(each.replicas) and not each.adding_replicas and not each.removing_replicas
            for each in self.registrations.values()
        )


def _has_records(log_path: str) -> bool:
    """Whether a log is a partition's, not that of the metadata."""
    return f"/{METADATA_PARTITION}/" not in log_path


def combined(count: int) -> dict[int, str]:
    return dict.fromkeys(range(1, count + 1), COMBINED)
