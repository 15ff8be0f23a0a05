"""The share coordinator: the states of share partitions whose `__share_group_state` partitions are led here.

Requests for states that another broker keeps get NOT_COORDINATOR; share_persister.py finds that broker. Modules of
share groups are imported when a partition of that topic is first led here, or on the first request.

Deviation: Apache Kafka has writes wait share.coordinator.append.linger.ms for others. Here 0 keeps requests from
sharing an append, and other values make no write wait longer, because all writes of a pass of the loop share one.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kafkapy.config.share import ShareConfig
from kafkapy.errors import ApiError
from kafkapy.metadata.topic_names import SHARE_STATE_TOPIC
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.replication.replica_manager import ReplicaManager
from kafkapy.runtime.coordinators.coordinator import Coordinator
from kafkapy.seams import Clock, IoPool
from kafkapy.timer.wheel import TimingWheel

if TYPE_CHECKING:
    from kafkapy.metadata.image import TopicImage
    from kafkapy.metrics.coordinators import CoordinatorCounts
    from kafkapy.metrics.shares import ShareCounts
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.runtime.coordinators.share_host import ShareHost
    from kafkapy.runtime.coordinators.shared_write import SharedWrite
    from kafkapy.runtime.coordinators.writer import CoordinatorLog
    from kafkapy.share.persister import (
        InitialState,
        ItemT,
        PartitionResult,
        ResultT,
        StateRead,
        StateReadResult,
        StateSummary,
        StateWrite,
        TopicIdPartition,
    )
    from kafkapy.share.state_shard import ShareStateDecision, ShareStateShard
    from kafkapy.types import Uuid

ITEMS_PER_SLICE: Final = 50
"""Share partitions of a request that are decided before other tasks run: about a millisecond."""
ITEMS_PER_WRITE: Final = 250
"""Share partitions of a request whose records are written and replayed at once: some five milliseconds."""

logger = logging.getLogger("kafkapy.share")


class ShareKeys(NamedTuple):
    """The configuration of a share coordinator. share_version: returns the finalised level of that feature."""

    config: Callable[[], ShareConfig]
    share_version: Callable[[], int]


class ShareCoordinator(Coordinator["ShareHost", "ShareStateShard"]):
    """All states of share partitions that this node coordinates."""

    topic: ClassVar[str] = SHARE_STATE_TOPIC
    logger: ClassVar[logging.Logger] = logging.getLogger("kafkapy.share")

    def __init__(
        self,
        *,
        replica_manager: ReplicaManager,
        keys: ShareKeys,
        clock: Clock,
        wheel: TimingWheel,
        io_pool: IoPool,
        counts: "ShareCounts | None" = None,
        own_counts: "CoordinatorCounts | None" = None,
    ) -> None:
        """counts: what writes of states are counted in, if anywhere; own_counts: what appends are."""
        super().__init__(replica_manager=replica_manager, clock=clock, wheel=wheel, io_pool=io_pool)
        self._keys = keys
        self._counts = counts
        self._own_counts = own_counts
        self._log: CoordinatorLog | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._deleted_topics: deque[Uuid] = deque()
        self._forgetting: asyncio.Task[None] | None = None

    def has_topic(self) -> bool:
        """Whether the newest metadata has the coordinator's topic."""
        return self.topic in self._replica_manager.partitions.newest_image.topics.by_name

    # -- requests -------------------------------------------------------------------------------------------------

    async def initialize_states(self, group_id: str, states: "Sequence[InitialState]") -> "list[PartitionResult]":
        """Like Persister.initialize."""
        from kafkapy.share.persister import PartitionResult

        return await self._decided(
            group_id,
            states,
            lambda shard, each, now_ms: shard.initialize(group_id, each, now_ms),
            _failed(PartitionResult, "initialize share group state"),
        )

    async def read_states(self, group_id: str, reads: "Sequence[StateRead]") -> "list[StateReadResult]":
        """Like Persister.read."""
        from kafkapy.share.persister import StateReadResult

        def decide(shard: "ShareStateShard", read: "StateRead", now_ms: int) -> "ShareStateDecision":
            decision = shard.read(group_id, read, now_ms)
            if self._counts is not None and decision.records:
                self._counts.state_writes += 1  # a new leader's epoch, as Apache Kafka counts it
            return decision

        return await self._decided(group_id, reads, decide, _failed(StateReadResult, "read share group state"))

    async def write_states(self, group_id: str, writes: "Sequence[StateWrite]") -> "list[PartitionResult]":
        """Like Persister.write."""
        from kafkapy.share.persister import PartitionResult

        counts = self._counts
        began_ms = 0 if counts is None else counts.now_ms()
        results = await self._decided(
            group_id,
            writes,
            lambda shard, each, now_ms: shard.write(group_id, each, now_ms),
            _failed(PartitionResult, "write share group state"),
        )
        if counts is not None:
            counts.state_writes += len(writes)
            counts.record_state_write(began_ms)
        return results

    async def delete_states(self, group_id: str, partitions: "Sequence[TopicIdPartition]") -> "list[PartitionResult]":
        """Like Persister.delete."""
        from kafkapy.share.persister import PartitionResult

        return await self._decided(
            group_id,
            partitions,
            lambda shard, each, _: shard.delete(group_id, each),
            _failed(PartitionResult, "delete share group state"),
        )

    async def read_summaries(self, group_id: str, partitions: "Sequence[TopicIdPartition]") -> "list[StateSummary]":
        """Like Persister.read_summary."""
        from kafkapy.share.persister import StateSummary
        from kafkapy.share.state_shard import ShareStateDecision

        return await self._decided(
            group_id,
            partitions,
            lambda shard, each, _: ShareStateDecision(shard.summary(group_id, each)),
            _failed(StateSummary, "read share group state summary"),
        )

    async def _decided(
        self,
        group_id: str,
        items: "Sequence[ItemT]",
        decide: "Callable[[ShareStateShard, ItemT, int], ShareStateDecision]",
        failed: "Callable[[Any, ApiError], ResultT]",
    ) -> "list[ResultT]":
        """Decide each item, write what was decided as one batch for each shard; return results once committed.

        Of a request that names very many, some are written before the next ones are decided.
        """
        results: list[Any] = []
        waiting: dict[ShareHost, list[tuple[int, SharedWrite | None]]] = {}
        for index, item in enumerate(items):
            # a request may name very many partitions: let the loop run in between, and write them in several batches
            if index % ITEMS_PER_SLICE == ITEMS_PER_SLICE - 1:
                await asyncio.sleep(0)
            if index % ITEMS_PER_WRITE == ITEMS_PER_WRITE - 1:
                for host in waiting:
                    host.write_shared()
            try:
                host, response, shared = self._decide(group_id, item, decide)
                results.append(response)
                waiting.setdefault(host, []).append((index, shared))
            except ApiError as error:
                results.append(failed(item, error))
        await self._write(waiting)
        # a result holds once its batch is committed; if that fails, all results of the batch fail
        for host, decided in waiting.items():
            uncommitted = await _commit_error(host)
            for index, shared in decided:
                failure = shared.error if shared is not None and shared.error is not None else uncommitted
                if failure is not None:
                    results[index] = failed(items[index], failure)
        return results

    def _decide(
        self, group_id: str, item: "ItemT", decide: "Callable[[ShareStateShard, ItemT, int], ShareStateDecision]"
    ) -> "tuple[ShareHost, Any, SharedWrite | None]":
        from kafkapy.share.persister import SharePartitionKey

        key = SharePartitionKey(group_id, item.topic_id, item.partition)
        host = self.host_of(key.coordinator_key)
        response, shared = host.decide(key, lambda shard, now_ms: decide(shard, item, now_ms))
        return host, response, shared

    async def _write(self, waiting: "dict[ShareHost, list[tuple[int, SharedWrite | None]]]") -> None:
        """Write the batches; if there are many requests, together with those of this pass of the loop."""
        changed = [host for host, decided in waiting.items() if any(shared is not None for _, shared in decided)]
        may_share = self._keys.config().share_coordinator_append_linger_ms != 0
        if may_share and [host for host in changed if host.is_crowded()]:
            await asyncio.sleep(0)  # resumed in the loop's next pass: all requests that this one reads are decided then
        for host in changed:
            host.write_shared()

    def pruned_offsets(self) -> dict[int, int]:
        """Return up to which offset the log of each local partition was pruned, for those that were."""
        offsets = {number: host.pruned_offset for number, host in self._hosts.items()}
        return {number: offset for number, offset in offsets.items() if offset is not None}

    # -- hosts ----------------------------------------------------------------------------------------------------

    @property
    def default_partition_count(self) -> int:
        return self._keys.config().share_coordinator_state_topic_num_partitions

    def _new_host(self, partition: "HostedPartition") -> "ShareHost":
        from kafkapy.runtime.coordinators.share_host import ShareHost
        from kafkapy.share.state_shard import ShareStateShard

        return ShareHost(
            partition,
            ShareStateShard(self._keys.config, self._partition_count),
            self._coordinator_log(),
            replica_manager=self._replica_manager,
            clock=self._clock,
            wheel=self._wheel,
            logger=logger,
        )

    def _partition_count(self, topic_id: "Uuid") -> int:
        topic = self._replica_manager.image.topics.by_id.get(topic_id)
        return 0 if topic is None else len(topic.partitions)

    def _coordinator_log(self) -> "CoordinatorLog":
        if self._log is None:
            from kafkapy.runtime.coordinators.writer import FIRST_SEQUENCE, CoordinatorLog
            from kafkapy.share import state_records

            self._log = CoordinatorLog(
                codec=state_records,
                compression=lambda: self._keys.config().share_coordinator_state_topic_compression_codec,
                commit_timeout_ms=lambda: self._keys.config().share_coordinator_write_timeout_ms,
                load_buffer_bytes=lambda: self._keys.config().share_coordinator_load_buffer_size,
                base_sequence=FIRST_SEQUENCE,
                counts=self._own_counts,
            )
        return self._log

    def _forget_topic(self, topic: "TopicImage") -> Iterable[None]:
        if not self._hosts:
            return ()
        self._deleted_topics.append(topic.topic_id)
        if self._forgetting is None:
            self._forgetting = asyncio.get_running_loop().create_task(self._forget_topics())
        return ()

    async def _forget_topics(self) -> None:
        """Forget the states of deleted topics: there may be many, so in slices."""
        try:
            while self._deleted_topics:
                topic_id = self._deleted_topics.popleft()
                hosts: list[ShareHost] = []
                while hosts != (current := list(self._hosts.values())):  # a shard may be loaded again meanwhile
                    hosts = current
                    await self._each_host("forget a deleted topic", partial(_forget_topic, topic_id))
        finally:
            self._forgetting = None

    # -- periodic work --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to prune the log, and to snapshot what is no longer written; idle while share groups are off."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._regularly("share_coordinator_state_topic_prune_interval_ms", self.prune)),
            loop.create_task(
                self._regularly("share_coordinator_cold_partition_snapshot_interval_ms", self.snapshot_cold)
            ),
        ]

    def _own_tasks(self) -> "Iterable[asyncio.Task[None] | None]":
        return [*self._tasks, self._forgetting]

    async def _regularly(self, interval_key: str, act: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(getattr(self._keys.config(), interval_key) / 1000)
            if self._keys.share_version() > 0:
                await act()

    async def prune(self) -> None:
        """Delete the records of all local shards that later snapshots have made redundant."""
        await self._each_host("prune", lambda host: host.prune())

    async def snapshot_cold(self) -> None:
        """Snapshot the share partitions of all local shards that had no snapshot for long."""
        await self._each_host("snapshot what is not written any more", lambda host: host.snapshot_cold())

    async def _each_host(self, what: str, act: "Callable[[ShareHost], Awaitable[None]]") -> None:
        for host in list(self._hosts.values()):
            try:
                await act(host)
            except ApiError as error:
                logger.warning("Could not %s in %s, trying again: %s", what, host.partition.topic_partition, error)
            except Exception:
                logger.exception("Failed to %s in %s", what, host.partition.topic_partition)


async def _forget_topic(topic_id: "Uuid", host: "ShareHost") -> None:
    await host.topic_deleted(topic_id)


async def _commit_error(host: "ShareHost") -> ApiError | None:
    """Wait until all that a shard has replayed is committed; return the error if that fails.

    A shard that was lost while those before it were waited for: its log may have been truncated, and what is committed
    there may be what another leader wrote.
    """
    if not host.is_led_here:
        return ApiError(ErrorCode.NOT_COORDINATOR)
    try:
        await host.committed()
    except ApiError as error:
        return error
    return None


def _failed(
    result_type: "Callable[[Uuid, int, int, str], ResultT]", action: str
) -> "Callable[[Any, ApiError], ResultT]":
    """Return a function that makes the result of a share partition for which an action failed."""

    def result_of(item: Any, error: ApiError) -> "ResultT":
        code = ErrorCode(error.code)
        return result_type(item.topic_id, item.partition, code, f"Unable to {action}: {code.message}")

    return result_of
