"""The runtime of coordinators: finds the shard of a key, loads shards that become local and unloads the others.

A key (group id, transactional id) belongs to partition abs(hash of the key) % (partitions of the coordinator's topic).
The leader of that partition is its coordinator. When this node becomes leader, the partition is replayed into a new
shard, in slices, one partition after another. Until then requests fail with COORDINATOR_LOAD_IN_PROGRESS. When
leadership is lost, the shard is dropped.

The subclasses are the kinds of coordinator: group_coordinator.py, transaction_coordinator.py. They are independent.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from kafkapy.errors import ApiError
from kafkapy.metadata.registrations import NO_LEADER
from kafkapy.native import mypyc_attr
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.record.batch import Record, RecordBatch
from kafkapy.record.batches import batches
from kafkapy.replication.replica_manager import ReplicaManager
from kafkapy.runtime.pool import run_in_pool
from kafkapy.runtime.turns import Turn
from kafkapy.seams import Clock, IoPool
from kafkapy.storage.errors import NeedsWarming
from kafkapy.storage.log.reader import FetchIsolation
from kafkapy.storage.log_dir import is_shortage
from kafkapy.timer.wheel import TimingWheel
from kafkapy.types import TopicPartition

if TYPE_CHECKING:  # hosts and shards (sixty modules) are imported with the first one: many nodes have none
    from kafkapy.metadata.delta import MetadataDelta
    from kafkapy.metadata.image import MetadataImage, TopicImage
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.runtime.coordinators.shard_host import ShardHost
    from kafkapy.runtime.turns import Walk

STEPS_PER_SLICE: Final = 200
"""Records and batches replayed before other tasks run, unless TURN_MS is over first: one to four milliseconds."""
LOAD_RETRY_MS: Final = 1000
"""How long after a shortage the load of a shard goes on."""
LOAD_TIME_WINDOW_MS: Final = 30_000
LOAD_TIMES_KEPT: Final = 1000
"""For the metric of the slowest load, over Apache Kafka's window; a failover loads many partitions within it."""
LOGGED_VERSIONS: Final = 5
"""The number of unknown versions that a log line names; the others are counted together."""

T = TypeVar("T")
HostT = TypeVar("HostT", bound="ShardHost[Any]")
ShardT = TypeVar("ShardT")


@mypyc_attr(allow_interpreted_subclasses=True)
class Coordinator(ABC, Generic[HostT, ShardT]):
    """The shards of one kind of coordinator on this node."""

    topic: ClassVar[str]
    """The topic that holds the records of this kind."""
    logger: ClassVar[logging.Logger]

    def __init__(self, *, replica_manager: ReplicaManager, clock: Clock, wheel: TimingWheel, io_pool: IoPool) -> None:
        self._replica_manager = replica_manager
        self._clock = clock
        self._wheel = wheel
        self._io_pool = io_pool
        self._hosts: dict[int, HostT] = {}
        self._topic_image: TopicImage | None = None
        self._to_load: deque[HostT] = deque()
        self._loader: asyncio.Task[None] | None = None
        self._is_closed = False
        self._turn = Turn(clock, STEPS_PER_SLICE)
        self._load_times: deque[tuple[int, int]] = deque(maxlen=LOAD_TIMES_KEPT)
        """(end time of a load in monotonic ms, duration in ms)."""

    # -- for subclasses -------------------------------------------------------------------------------------------

    @abstractmethod
    def _new_host(self, partition: "HostedPartition") -> HostT:
        """Return a host that has not been loaded yet."""

    @property
    @abstractmethod
    def default_partition_count(self) -> int:
        """The number of partitions of the topic if it is yet to be created."""

    def _forget_topic(self, topic: "TopicImage") -> "Iterable[None]":
        """Called when a topic was deleted; in steps, as apply_delta."""
        return ()

    # -- placement ------------------------------------------------------------------------------------------------

    def partition_of(self, key: str) -> int:
        """Return the partition of the coordinator's topic that the key belongs to."""
        count = len(self._topic_image.partitions) if self._topic_image is not None else 0
        return java_hash(key) % (count or self.default_partition_count)

    def is_hosted(self, key: str) -> bool:
        """Whether the key's shard is on this node, loaded or loading."""
        host = self._hosts.get(self.partition_of(key))
        return host is not None and host.is_led_here

    def broker_of(self, key: str) -> int:
        """Return the id of the broker that leads the key's partition in the newest metadata; -1 if there is none."""
        topic = self._replica_manager.partitions.newest_image.topics.by_name.get(self.topic)
        if topic is None:
            return NO_LEADER
        return topic.partitions[java_hash(key) % len(topic.partitions)].leader

    def host_of(self, key: str) -> HostT:
        """Return the host of the key's shard. Raises COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""
        if self._is_closed:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        host = self._hosts.get(self.partition_of(key))
        if host is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        return host

    def active_shards(self) -> "list[ShardT]":
        """Return the shards that are led here and loaded."""
        return [host.shard for host in self._hosts.values() if host.is_led_here and host.is_active]

    def _check_open(self) -> None:
        if self._is_closed:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    # -- reading --------------------------------------------------------------------------------------------------

    async def read(self, key: str, query: Callable[[ShardT], T]) -> T:
        """Return the query's result for the key's shard once the state it read is committed.

        Raises ApiError NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS or COORDINATOR_NOT_AVAILABLE.
        """
        host = self.host_of(key)
        host.check_active()
        host.write_shared()
        result = query(host.shard)
        await host.committed()
        return result

    async def read_all(self, query: Callable[[ShardT], Iterable[T | None]], way: "Walk") -> list[T]:
        """Return the query's results for all local shards, without None; `way` yields to other tasks in between.

        Raises COORDINATOR_LOAD_IN_PROGRESS.
        """
        self._check_open()
        found: list[T] = []
        hosts = [self._hosts[partition_id] for partition_id in self._in_order()]
        for host in [host for host in hosts if host.is_led_here and not host.has_failed]:
            if host.is_led_here:  # may have been lost in the meantime
                host.check_active()
                host.write_shared()
                found += [each async for each in way.over(query(host.shard)) if each is not None]
                await host.committed()
        return found

    def _in_order(self) -> list[int]:
        """Return the hosted partitions in the order of Apache Kafka's map of coordinators."""
        from kafkapy.transaction.hash_order import as_set  # not before it is needed, as all of transactions

        return [each.partition for each in as_set(TopicPartition(self.topic, each) for each in self._hosts)]

    # -- following the metadata -----------------------------------------------------------------------------------

    def apply_delta(self, delta: "MetadataDelta", image: "MetadataImage") -> Iterator[None]:
        """Load and unload shards when leaders change; in steps. Runs after ReplicaManager.apply_delta."""
        if self._is_closed:
            return
        topic = image.topics.by_name.get(self.topic)
        is_applied_again = topic is not None and topic.topic_id in delta.topics.changed  # its logs lacked room
        if topic is not self._topic_image or is_applied_again:
            self._topic_image = topic
            self._host_led(range(len(topic.partitions)) if topic is not None else ())
        for deleted in delta.topics.deleted.values():
            yield from self._forget_topic(deleted)
            yield

    def _host_led(self, partition_ids: Iterable[int]) -> None:
        """Load a shard for each partition that this node now leads, and unload all others."""
        lost = dict(self._hosts)
        for partition_id in partition_ids:
            partition = self._replica_manager.partitions.find(self.topic, partition_id)
            if partition is None or not partition.is_leader:
                continue
            host = lost.get(partition_id)
            if host is not None and host.partition is partition and host.is_led_here:
                del lost[partition_id]
                continue
            self._begin(partition_id, self._new_host(partition))
        for partition_id, host in lost.items():
            self._unload(partition_id, host)

    def on_resigned(self, partition: "HostedPartition") -> None:
        """Unload the shard of a partition that this node ceased to lead before metadata said so."""
        topic, partition_id = partition.topic_partition
        host = self._hosts.get(partition_id)
        if topic == self.topic and host is not None and host.partition is partition:
            self._unload(partition_id, host)

    def _unload(self, partition_id: int, host: HostT) -> None:
        """Close a host, and drop it unless another one has taken its place."""
        host.close()
        if self._hosts[partition_id] is host:
            del self._hosts[partition_id]
            self.logger.info("Unloaded the coordinator shard of %s", host.partition.topic_partition)

    def reload(self, key: str) -> None:
        """Unload the shard of a key and load it from its log, as if the leader had moved away and back.

        Raises COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.
        """
        host = self.host_of(key)
        host.close()
        self._begin(self.partition_of(key), self._new_host(host.partition))

    def _begin(self, partition_id: int, host: HostT) -> None:
        self._hosts[partition_id] = host
        if host.log.is_empty:
            host.replayed_offset = host.log.log_end_offset
            host.activate()
            return
        self._queue(host)

    def _queue(self, host: HostT) -> None:
        """Have a shard loaded after those that are queued already."""
        if self._is_closed or not host.is_loading():
            return
        self._to_load.append(host)
        if self._loader is None:
            self._loader = asyncio.get_running_loop().create_task(self._load_all())

    # -- loading --------------------------------------------------------------------------------------------------

    async def _load_all(self) -> None:
        """Load the queued shards. If one fails, only its partition has no coordinator.

        After a shortage, of descriptors for example, its load goes on after a while.
        """
        try:
            while self._to_load:
                host = self._to_load.popleft()
                try:
                    await self._load(host)
                except Exception as error:
                    if is_shortage(error):  # not if an index is damaged, which only a start rebuilds
                        self.logger.warning(
                            "Could not load %s, trying again: %s", host.partition.topic_partition, error
                        )
                        asyncio.get_running_loop().call_later(LOAD_RETRY_MS / 1000, self._queue, host)
                        continue
                    host.fail()
                    self.logger.exception("Failed to load the coordinator shard of %s", host.partition.topic_partition)
        finally:
            self._loader = None

    async def _load(self, host: HostT) -> None:
        started_ms = self._clock.monotonic_ms()
        await self._replay_log(host)
        self._turn.begin()
        for _ in host.complete_load():
            if self._turn.is_over():
                await self._give_way()
        if host.is_loading():
            host.activate()
            ended_ms = self._clock.monotonic_ms()
            self._load_times.append((ended_ms, ended_ms - started_ms))
            self.logger.info(
                "Loaded %s up to offset %d in %d ms: %s",
                host.partition.topic_partition,
                host.replayed_offset,
                ended_ms - started_ms,
                host.describe_load(),
            )

    @property
    def loading_count(self) -> int:
        """The number of shards led here that are not loaded yet."""
        return sum(host.is_loading() for host in self._hosts.values())

    def count_by_state(self) -> dict[str, int]:
        """Return how many shards led here are loading, active, or failed to load."""
        led = [host for host in self._hosts.values() if host.is_led_here]
        loading, active = sum(host.is_loading() for host in led), sum(host.is_active for host in led)
        return {"loading": loading, "active": active, "failed": len(led) - loading - active}

    def average_load_time_ms(self) -> float:
        """Return the average duration of the loads in the last 30 s, 0 if there was none (Kafka: NaN)."""
        since_ms = self._clock.monotonic_ms() - LOAD_TIME_WINDOW_MS
        recent = [took_ms for ended_ms, took_ms in self._load_times if ended_ms >= since_ms]
        return sum(recent) / len(recent) if recent else 0.0

    def max_load_time_ms(self) -> int:
        """Return the duration of the slowest load in the last 30 s, 0 if there was none (Kafka: NaN)."""
        since_ms = self._clock.monotonic_ms() - LOAD_TIME_WINDOW_MS
        return max((took_ms for ended_ms, took_ms in self._load_times if ended_ms >= since_ms), default=0)

    async def _replay_log(self, host: HostT) -> None:
        """Replay the log into the shard up to its end: only the shard appends to it."""
        unknown: Counter[str] = Counter()
        while host.is_loading() and host.replayed_offset < host.log.log_end_offset:
            data = await self._read(host)
            if not data:  # compaction has removed what was last, or a truncation what came after
                host.replayed_offset = host.log.log_end_offset
            self._turn.begin()
            for batch in batches(data):
                if self._turn.is_over():
                    await self._give_way()
                await self._replay_batch(host, batch, unknown)
                host.replayed_offset = batch.next_offset
                if not host.is_loading():
                    return
        if unknown:
            self.logger.warning(
                "Ignored %d records of %s with unknown versions (%s); they may be left over from an aborted upgrade",
                unknown.total(),
                host.partition.topic_partition,
                "; ".join(f"{count} of {versions}" for versions, count in unknown.items()),
            )

    async def _read(self, host: HostT) -> bytes:
        """Return the next batches; none if there are none before the log's end. Raises ApiError, StorageError."""
        load_buffer_bytes = host.coordinator_log.load_buffer_bytes()
        while True:
            log = host.log
            # retention may have passed the shard by, which loads after others
            host.replayed_offset = max(host.replayed_offset, log.log_start_offset)
            try:
                try:
                    read = log.read(host.replayed_offset, load_buffer_bytes, isolation=FetchIsolation.LOG_END)
                except NeedsWarming as cold:
                    await run_in_pool(self._io_pool, cold.warm)
                    continue
                if read.region is None:
                    return b""
                try:
                    return await run_in_pool(self._io_pool, read.region.read)
                finally:
                    read.region.release()
            except OSError as error:
                raise log.log_dir.handle_os_error(error, f"reading {host.partition.topic_partition}") from error

    async def _replay_batch(self, host: HostT, batch: RecordBatch, unknown: "Counter[str]") -> None:
        """Replay a batch; count its records with unknown versions."""
        from kafkapy.record.control import end_txn_marker_of

        if batch.is_control:
            for record in batch.records():
                host.replay_marker(batch.producer_id, is_commit=end_txn_marker_of(record).is_commit)
            return
        producer_id = batch.producer_id if batch.is_transactional else -1
        decode_record = host.coordinator_log.codec.decode_record
        for record in batch.records():
            if record.offset < host.replayed_offset:
                continue
            decoded = decode_record(record.key, record.value)
            if decoded is None:
                versions = _versions_of(record)
                unknown[versions if versions in unknown or len(unknown) < LOGGED_VERSIONS else "others"] += 1
            else:
                host.shard.replay(decoded, record.offset, producer_id)
            if self._turn.is_over():
                await self._give_way()

    async def _give_way(self) -> None:
        await asyncio.sleep(0)
        self._turn.begin()

    # -- the end --------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Fail pending requests with COORDINATOR_NOT_AVAILABLE; cancel all tasks."""
        self._is_closed = True
        for host in self._hosts.values():
            host.close(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        tasks = [task for task in (self._loader, *self._own_tasks()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _own_tasks(self) -> Iterable["asyncio.Task[None] | None"]:
        """Return further tasks of the kind, to be cancelled by `close`."""
        return ()


def _versions_of(record: Record) -> str:
    """Return the versions of key and value, with which both begin: "key 0, value 2"."""
    return ", ".join(
        f"{name} {int.from_bytes(part[:2], 'big', signed=True)}"
        for name, part in (("key", record.key), ("value", record.value))
        if part is not None
    )


@lru_cache(maxsize=16384)
def java_hash(text: str) -> int:
    """Return Java's abs(String.hashCode()), which assigns keys to partitions. Integer.MIN_VALUE becomes 0."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        code = (31 * code + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    if code >= 0x80000000:
        code = 0x100000000 - code
    return 0 if code == 0x80000000 else code
