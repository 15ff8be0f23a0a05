"""A broker's partitions on a simulated disk, on a virtual-time loop: what data-plane handlers are tested against."""

import asyncio
from collections.abc import Coroutine, Hashable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from kafkapy.config.load import load
from kafkapy.config.topic import log_config
from kafkapy.machine import Decision
from kafkapy.metadata.delta import difference
from kafkapy.metadata.image import RESOURCE_TOPIC, MetadataImage
from kafkapy.protocol.messages.config_record import ConfigRecord
from kafkapy.protocol.messages.partition_record import PartitionRecord
from kafkapy.protocol.messages.remove_topic_record import RemoveTopicRecord
from kafkapy.protocol.messages.topic_record import TopicRecord
from kafkapy.replication.fetch_session import FetchSessionCache
from kafkapy.replication.hosted_partitions import HostedPartition, HostedPartitions
from kafkapy.replication.replica_manager import ReplicaManager
from kafkapy.runtime.expirer import Expirer
from kafkapy.runtime.logs.flusher import LogFlusher
from kafkapy.runtime.pool import HeavyWork
from kafkapy.runtime.turns import Turns, Walk
from kafkapy.seams import Clock
from kafkapy.storage.log.log import Log
from kafkapy.storage.manager.log_manager import DirectoryWatcher, LogManager
from kafkapy.timer.wheel import TimingWheel
from tests.simulator.disk import SimDisk
from tests.simulator.io_pool import SimIoPool
from tests.simulator.loop import SimClock, SimLoop
from tests.support.batches import build_batch
from tests.support.chance import SeededRandom
from tests.support.controllers import CLUSTER_ID, Cluster
from tests.support.logs import load_logs
from tests.support.metadata_services import PROPERTIES, Deny

NODE_ID = 1
NOW_MS = 1_700_000_000_000


def topic_id(name: str, generation: int = 1) -> bytes:
    return name.encode().ljust(12, b".")[:12] + generation.to_bytes(4)


def config_records(resource_type: int, name: str, configs: Mapping[str, str | None]) -> list[ConfigRecord]:
    return [
        ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)
        for key, value in configs.items()
    ]


def batch(*values: bytes | None, timestamp_ms: int = NOW_MS, **fields: Any) -> memoryview:
    """A batch as a producer sends it: keyless records unless `key` is given."""
    key = fields.pop("key", None)
    return memoryview(build_batch([(timestamp_ms, key, value, ()) for value in values], **fields))


class Hosting:
    """A node of a cluster, the first unless told. Made inside a running SimLoop; `restart` loads its directory."""

    def __init__(
        self,
        loop: SimLoop,
        *,
        broker_count: int = 1,
        disk: SimDisk | None = None,
        now_ms: int = NOW_MS,
        node_id: int = NODE_ID,
        cluster: Cluster | None = None,
        **properties: str,
    ) -> None:
        """`cluster`: one that other nodes are in, too; else one of its own, of `broker_count` brokers."""
        self.loop = loop
        self.node_id = node_id
        self.disk = disk if disk is not None else SimDisk()
        given = {key.replace("_", "."): value for key, value in properties.items()}
        self.config, _ = load({**PROPERTIES, "log.dirs": "/data", **given})
        for directory in self.config.log_dirs:
            self.disk.make_directory(directory)
        self.clock = SimClock(loop, start_wall_ms=now_ms)
        self.cluster = cluster if cluster is not None else Cluster(broker_count)
        self.io_pool = SimIoPool(loop)
        self.log_flusher = LogFlusher(self.io_pool, self.clock)
        self._load()

    def _load(self) -> None:
        self.log_manager = LogManager(
            self.disk,
            list(self.config.log_dirs),
            self.config.log_config,
            random=SeededRandom(),
            watcher=DirectoryWatcher(lambda path: self.manager.directory_failed(path)),
        )
        self.log_manager.directories.lock()
        load_logs(self.log_manager, self.clock.wall_ms())
        self.wheel = TimingWheel(start_ms=self.clock.monotonic_ms())
        self.expirer = Expirer(self.wheel, self.clock)
        partitions = HostedPartitions(
            self.node_id,
            self.log_manager,
            lambda overrides: log_config(overrides, self.config),
            max_lag_ms=lambda: self.config.replication.replica_lag_time_max_ms,
        )
        self.manager = ReplicaManager(partitions, self.clock, self.wheel, self.log_flusher.request)
        self.expirer.start()
        self.sessions = FetchSessionCache(10, new_session_id=_counter())

    def restart(self) -> None:
        self.expirer.stop()
        self.manager.shutdown()
        self.log_manager.close()
        self._load()
        self._publish(MetadataImage())

    # -- metadata -------------------------------------------------------------------------------------------------

    def commit(self, *records: Any) -> None:
        before = self.cluster.image
        self.cluster.commit(Decision(None, list(records)))
        self._publish(before)

    def _publish(self, before: MetadataImage) -> None:
        image = self.cluster.image
        self.manager.announce(image)
        for _ in self.manager.apply_delta(difference(before, image), image, self.clock.wall_ms()):
            pass

    def create_topic(
        self,
        name: str = "orders",
        partition_count: int = 1,
        *,
        replicas: Sequence[int] = (NODE_ID,),
        isr: Sequence[int] | None = None,
        configs: Mapping[str, str] | None = None,
        generation: int = 1,
    ) -> HostedPartition:
        """Create a topic led by its first replica; return its partition 0 (when it is hosted here)."""
        self.commit(
            TopicRecord(name=name, topic_id=topic_id(name, generation)),
            *config_records(RESOURCE_TOPIC, name, configs or {}),
            *(self.partition_record(name, number, generation, replicas, isr) for number in range(partition_count)),
        )
        return self.manager.partitions.find(name, 0)  # type: ignore[return-value]

    def log(self, name: str = "orders") -> Log:
        """Return the log of a topic's partition 0, which must be hosted."""
        partition = self.manager.partitions.find(name, 0)
        assert partition is not None
        assert partition.log is not None
        return partition.log

    def append(self, *batches: memoryview, name: str = "orders", partition_id: int = 0) -> None:
        """Append to a partition that this broker leads alone, and answer who waits for it."""
        partition = self.manager.partitions.find(name, partition_id)
        assert partition is not None
        assert partition.log is not None
        for each in batches:
            partition.log.append_as_leader(each, leader_epoch=partition.leader_epoch, now_ms=NOW_MS)
        partition.maybe_advance_high_watermark(0)
        self.manager.complete_waiting(partition)

    def partition_record(
        self, name: str, number: int, generation: int, replicas: Sequence[int], isr: Sequence[int] | None
    ) -> PartitionRecord:
        return PartitionRecord(
            partition_id=number,
            topic_id=topic_id(name, generation),
            replicas=list(replicas),
            isr=list(isr if isr is not None else replicas),
            leader=replicas[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=[bytes(16)] * len(replicas),
        )

    def alter_configs(self, name: str, configs: Mapping[str, str | None]) -> None:
        self.commit(*config_records(RESOURCE_TOPIC, name, configs))

    def delete_topic(self, name: str = "orders", generation: int = 1) -> None:
        self.commit(RemoveTopicRecord(topic_id=topic_id(name, generation)))

    # -- requests -------------------------------------------------------------------------------------------------

    def services(self, authorizer: Any = None) -> Any:
        return SimpleNamespace(
            cluster_id=CLUSTER_ID,
            node_id=self.node_id,
            config=self.config,
            clock=self.clock,
            random=SeededRandom(),
            io_pool=self.io_pool,
            heavy_work=HeavyWork(self.io_pool),
            log_flusher=self.log_flusher,
            authorizer=authorizer or Deny(),
            metadata=self.cluster,
            log_manager=self.log_manager,
            replica_manager=self.manager,
            fetch_sessions=self.sessions,
            telemetry=None,
            turns=Turns(),
            client_quotas=None,
            node_refusals=None,
        )

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        return self.loop.create_task(coroutine)


def _counter() -> Any:
    numbers = iter(range(1, 1_000_000))
    return lambda: next(numbers)


async def run_scheduled() -> None:
    """Let everything run that needs no time to pass."""
    for _ in range(10):
        await asyncio.sleep(0)


class CountedTurns(Turns):
    """Counts how often a request gives way."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    async def next(self, client: Hashable = None) -> None:
        self.count += 1
        await super().next(client)


def new_walk(clock: Clock) -> Walk:
    """Return the walk of some request, alone."""
    context = SimpleNamespace(is_long=False, client=None, connection=SimpleNamespace(is_held=False))
    return Walk(Turns(), clock, context)
