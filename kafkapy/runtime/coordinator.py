"""The group coordinator: which shard a group belongs to, which shards live here, loading and unloading them.

A group belongs to partition abs(hash of its id) % (partitions of `__consumer_offsets`); whoever leads that partition
coordinates the group. A partition that comes to be led here is replayed into a new shard, in slices, one partition
after another; requests are answered COORDINATOR_LOAD_IN_PROGRESS meanwhile. One that is lost takes its shard along.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkapy.errors import ApiError
from kafkapy.group.settings import GroupSettings
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.record.batch import RecordBatch, batches
from kafkapy.replication.replica_manager import ReplicaManager
from kafkapy.runtime.pool import run_in_pool
from kafkapy.seams import Clock, IoPool, Random
from kafkapy.storage.errors import NeedsWarming
from kafkapy.storage.log.reader import FetchIsolation
from kafkapy.timer.wheel import TimingWheel

if TYPE_CHECKING:  # a shard's modules, sixty, are imported with the first one: many a node never has groups
    from kafkapy.group.shard import GroupShard
    from kafkapy.metadata.delta import MetadataDelta
    from kafkapy.metadata.image import MetadataImage, TopicImage
    from kafkapy.runtime.shard_host import Decide, ShardHost

logger = logging.getLogger("kafkapy.group")

OFFSETS_TOPIC: Final = "__consumer_offsets"
RECORDS_PER_SLICE: Final = 200
"""Records replayed before others get their turn: one to two milliseconds."""

T = TypeVar("T")


class GroupCoordinator:
    """See the module's text."""

    def __init__(
        self,
        *,
        replica_manager: ReplicaManager,
        settings: GroupSettings,
        clock: Clock,
        random: Random,
        wheel: TimingWheel,
        io_pool: IoPool,
    ) -> None:
        self.settings = settings
        self._replica_manager = replica_manager
        self._clock = clock
        self._random = random
        self._wheel = wheel
        self._io_pool = io_pool
        self._hosts: dict[int, ShardHost] = {}
        self._topic: TopicImage | None = None
        self._to_load: deque[ShardHost] = deque()
        self._loader: asyncio.Task[None] | None = None
        self._expirer: asyncio.Task[None] | None = None
        self._is_closed = False
        self._replayed_count = 0

    # -- requests -------------------------------------------------------------------------------------------------

    async def call(self, group_id: str, decide: "Decide") -> Any:
        """Have the group's shard decide; return the response once all it rests on is committed.

        `decide(shard, token, now_ms)`: the response may be None, and come later as a Reply under the token. Raises
        what it raises, and ApiError NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS or COORDINATOR_NOT_AVAILABLE.
        """
        return await self._host_of(group_id).call(group_id, decide)

    async def read(self, group_id: str, query: "Callable[[GroupShard], T]") -> T:
        """Return what the query finds in the group's shard, once that is committed. Raises ApiError as `call`."""
        host = self._host_of(group_id)
        host.check_active()
        result = query(host.shard)
        await host.committed()
        return result

    async def read_all(self, query: "Callable[[GroupShard], Iterable[T]]") -> list[T]:
        """Return what the query finds in all shards that live here. Raises COORDINATOR_LOAD_IN_PROGRESS."""
        self._check_open()
        found: list[T] = []
        for host in [host for host in self._hosts.values() if host.is_led_here and not host.has_failed]:
            host.check_active()
            found += query(host.shard)
            await host.committed()
        return found

    def partition_of(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` that the group belongs to."""
        count = len(self._topic.partitions) if self._topic is not None else 0
        return java_hash(group_id) % (count or self.settings.config.offsets_topic_num_partitions)

    def is_hosted(self, group_id: str) -> bool:
        """Whether the group's shard lives here, or is being loaded."""
        host = self._hosts.get(self.partition_of(group_id))
        return host is not None and host.is_led_here

    def _host_of(self, group_id: str) -> "ShardHost":
        self._check_open()
        host = self._hosts.get(self.partition_of(group_id))
        if host is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        return host

    def _check_open(self) -> None:
        if self._is_closed:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    # -- following the metadata -----------------------------------------------------------------------------------

    def apply_delta(self, delta: "MetadataDelta", image: "MetadataImage") -> Iterator[None]:
        """Load and unload shards as the partitions are led now; in steps, after the replica manager's own."""
        if self._is_closed:
            return
        topic = image.topics.by_name.get(OFFSETS_TOPIC)
        if topic is not self._topic:
            self._topic = topic
            self._follow(range(len(topic.partitions)) if topic is not None else ())
        if delta.topics_changed is not None:
            for deleted in delta.topics_changed.deleted.values():
                self._forget_topic(deleted)
                yield

    def _follow(self, partition_ids: Iterable[int]) -> None:
        lost = dict(self._hosts)
        for partition_id in partition_ids:
            partition = self._replica_manager.partitions.find(OFFSETS_TOPIC, partition_id)
            if partition is None or not partition.is_leader:
                continue
            host = lost.get(partition_id)
            if host is not None and host.partition is partition and host.is_led_here:
                del lost[partition_id]
                continue
            self._begin(partition_id, self._new_host(partition))
        for partition_id, host in lost.items():
            host.close()
            if self._hosts[partition_id] is host:
                del self._hosts[partition_id]
                logger.info("Unloaded the groups of %s", host.partition.topic_partition)

    def _new_host(self, partition: Any) -> "ShardHost":
        from kafkapy.group.shard import GroupShard
        from kafkapy.runtime.shard_host import ShardHost

        shard = GroupShard(
            self.settings,
            metadata=lambda: self._replica_manager.image,
            random=self._random,
            wall_ms=self._clock.wall_ms,
            now_ms=self._clock.monotonic_ms,
        )
        return ShardHost(partition, shard, replica_manager=self._replica_manager, clock=self._clock, wheel=self._wheel)

    def _begin(self, partition_id: int, host: "ShardHost") -> None:
        self._hosts[partition_id] = host
        if host.log.is_empty:
            host.replayed_offset = host.log.log_end_offset
            host.activate()
            return
        self._to_load.append(host)
        if self._loader is None:
            self._loader = asyncio.get_running_loop().create_task(self._load_all())

    def _forget_topic(self, topic: "TopicImage") -> None:
        for host in self._hosts.values():
            try:
                host.carry_out(lambda shard: shard.forget_topic(topic.name, topic.topic_id))
            except ApiError as error:
                logger.warning("The offsets of deleted topic %s stay until they expire: %s", topic.name, error)

    # -- loading --------------------------------------------------------------------------------------------------

    async def _load_all(self) -> None:
        """Load what is to be loaded. Whatever one partition fails with, it alone has no coordinator then."""
        try:
            while self._to_load:
                host = self._to_load.popleft()
                try:
                    await self._load(host)
                except Exception:
                    host.fail()
                    logger.exception("Could not load the groups of %s", host.partition.topic_partition)
        finally:
            self._loader = None

    async def _load(self, host: "ShardHost") -> None:
        started_ms = self._clock.monotonic_ms()
        await self._replay_log(host)
        if host.is_loading():
            host.activate()
            logger.info(
                "Loaded %d groups of %s up to offset %d in %d ms",
                len(host.shard.groups),
                host.partition.topic_partition,
                host.replayed_offset,
                self._clock.monotonic_ms() - started_ms,
            )

    async def _replay_log(self, host: "ShardHost") -> None:
        """Replay the log into the shard, up to its end: nobody but the shard appends to it."""
        unknown_count = 0
        while host.is_loading() and host.replayed_offset < host.log.log_end_offset:
            data = await self._read(host)
            for batch in batches(data):
                unknown_count += await self._replay_batch(host, batch)
                host.replayed_offset = batch.next_offset
                if not host.is_loading():
                    return
        if unknown_count:
            logger.warning(
                "Passed over %d records of %s of types that only later versions know",
                unknown_count,
                host.partition.topic_partition,
            )

    async def _read(self, host: "ShardHost") -> bytes:
        load_buffer_size = self.settings.config.offsets_load_buffer_size
        while True:
            try:
                read = host.log.read(host.replayed_offset, load_buffer_size, isolation=FetchIsolation.LOG_END)
            except NeedsWarming as cold:
                await run_in_pool(self._io_pool, cold.warm)
                continue
            assert read.region is not None, "there are records up to the log's end"
            try:
                return await run_in_pool(self._io_pool, read.region.read)
            finally:
                read.region.release()

    async def _replay_batch(self, host: "ShardHost", batch: RecordBatch) -> int:
        """Replay a batch; return how many of its records are of unknown types."""
        from kafkapy.group.records import decode_record
        from kafkapy.record.control import end_txn_marker_of

        if batch.is_control:
            for record in batch.records():
                host.shard.replay_marker(batch.producer_id, is_commit=end_txn_marker_of(record).is_commit)
            return 0
        unknown_count = 0
        producer_id = batch.producer_id if batch.is_transactional else -1
        for record in batch.records():
            if record.offset < host.replayed_offset:
                continue
            decoded = decode_record(record.key, record.value)
            if decoded is None:
                unknown_count += 1
            else:
                host.shard.replay(decoded, record.offset, producer_id)
            self._replayed_count += 1
            if self._replayed_count % RECORDS_PER_SLICE == 0:
                await asyncio.sleep(0)
        return unknown_count

    # -- by itself ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to look for expired offsets, every offsets.retention.check.interval.ms."""
        self._expirer = asyncio.get_running_loop().create_task(self._expire_regularly())

    async def close(self) -> None:
        """Answer what waits with COORDINATOR_NOT_AVAILABLE; end what runs."""
        self._is_closed = True
        for host in self._hosts.values():
            host.close(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        tasks = [task for task in (self._loader, self._expirer) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _expire_regularly(self) -> None:
        while True:
            await asyncio.sleep(self.settings.config.offsets_retention_check_interval_ms / 1000)
            try:
                await self.expire_offsets()
            except Exception:
                logger.exception("Expired offsets stay until they are looked for again")

    async def expire_offsets(self) -> None:
        """Remove the offsets and groups that have expired in all shards that live here."""
        for host in list(self._hosts.values()):
            try:
                await host.expire_offsets()
            except ApiError as error:
                logger.warning("Expired offsets of %s stay: %s", host.partition.topic_partition, error)


@lru_cache(maxsize=16384)
def java_hash(text: str) -> int:
    """Return abs(String.hashCode()) of Java: what places a group. The one int that has no abs becomes 0."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        code = (31 * code + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    if code >= 0x80000000:
        code = 0x100000000 - code
    return 0 if code == 0x80000000 else code
