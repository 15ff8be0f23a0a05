"""The group coordinator: the shards of the groups whose `__consumer_offsets` partitions are led here."""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Set
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kafkapy.errors import ApiError
from kafkapy.group.long_work import NO_RESULTS, LongWorkError, Results
from kafkapy.group.settings import OFFSETS_TOPIC, GroupSettings
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.replication.replica_manager import ReplicaManager
from kafkapy.runtime.coordinators.coordinator import Coordinator
from kafkapy.seams import Clock, IoPool, Random
from kafkapy.timer.wheel import TimingWheel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kafkapy.group.consumer.subscriptions import ResolvedRegex
    from kafkapy.group.decision import Client, GroupDecision
    from kafkapy.group.shard import GroupShard
    from kafkapy.group.share.decision import ShareDecision
    from kafkapy.metadata.image import TopicImage
    from kafkapy.metrics.coordinators import CoordinatorCounts
    from kafkapy.metrics.shares import ShareCounts
    from kafkapy.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
    from kafkapy.replication.delayed_produce import PartitionAppend
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.runtime.broker_channels import BrokerChannels
    from kafkapy.runtime.coordinators.group_host import GroupHost
    from kafkapy.runtime.coordinators.latest_offsets import LatestOffsets
    from kafkapy.runtime.coordinators.long_decisions import LongDecisions
    from kafkapy.runtime.coordinators.markers import Marker
    from kafkapy.runtime.coordinators.regex_matching import RegexMatching
    from kafkapy.runtime.coordinators.shard_host import ShardDecision
    from kafkapy.runtime.coordinators.share_states import ShareStates
    from kafkapy.runtime.coordinators.writer import CoordinatorLog, TransactionalWrite
    from kafkapy.share.persister import Persister

logger = logging.getLogger("kafkapy.group")

LATEST_OFFSETS_TIMEOUT_MS = 30_000
"""How long another broker may take to tell the latest offsets of its partitions, as request.timeout.ms of clients."""


class GroupCoordinator(Coordinator["GroupHost", "GroupShard"]):
    """All groups that this node coordinates."""

    topic = OFFSETS_TOPIC
    logger = logger

    def __init__(
        self,
        *,
        replica_manager: ReplicaManager,
        settings: GroupSettings,
        clock: Clock,
        random: Random,
        wheel: TimingWheel,
        io_pool: IoPool,
        persister: "Callable[[], Persister] | None" = None,
    ) -> None:
        """`persister()` returns what keeps the states of share partitions; it is called with the first share group."""
        super().__init__(replica_manager=replica_manager, clock=clock, wheel=wheel, io_pool=io_pool)
        self.settings = settings
        self._random = random
        self._log: CoordinatorLog | None = None
        self._expirer: asyncio.Task[None] | None = None
        self._matching: RegexMatching | None = None
        """Made for the first regular expression."""
        self._persister = persister
        self._counts: ShareCounts | None = None
        self._own_counts: CoordinatorCounts | None = None
        self._share_states: ShareStates | None = None
        """Made for the first share group."""
        self._long_decisions: LongDecisions | None = None
        """Made for the first decision that needs long work."""
        self._due_targets: set[asyncio.Task[None]] = set()
        """Large targets of streams groups that no heartbeat waits for."""
        self._new_channels: Callable[[], BrokerChannels] | None = None
        self._latest_offsets: LatestOffsets | None = None

    async def call(
        self,
        group_id: str,
        decide: "Callable[[GroupShard, int, int], ShardDecision]",
        write: "TransactionalWrite | None" = None,
    ) -> Any:
        """Run a decision on the group's shard; return the response once the state that it depends on is committed.

        `decide(shard, token, now_ms)`: with response None, the response is a later ParkedResponse with this token. With
        `write`, the records are part of that producer's transaction. Raises what `decide` raises, and ApiError
        NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS or COORDINATOR_NOT_AVAILABLE.
        """
        return await self.host_of(group_id).call(group_id, decide, write)

    async def share_heartbeat(self, request: "ShareGroupHeartbeatRequest", client: "Client") -> Any:
        """Like `call`, for a heartbeat of a share group, which may need a target that takes long to compute."""
        return await self.decide_long(
            request.group_id,
            lambda shard, now_ms, gives_way, results: self.counted(
                shard.share.heartbeat(request, client, now_ms, gives_way=gives_way, results=results)
            ),
        )

    async def decide_long(
        self, group_id: str, decide: "Callable[[GroupShard, int, bool, Results], ShardDecision]"
    ) -> Any:
        """Like `call`, for a decision that may depend on long work: `decide(shard, now_ms, gives_way, results)`.

        results: of the work that was done for the decision so far.
        """
        try:  # nearly all decisions need no long work, and end here
            return await self.host_of(group_id).call(
                group_id, lambda shard, _token, now_ms: decide(shard, now_ms, True, NO_RESULTS)
            )
        except LongWorkError as error:
            wanted = error.work
        results = Results()
        return await self.long_decisions.decided(
            group_id,
            lambda gives_way: self.call(
                group_id, lambda shard, _token, now_ms: decide(shard, now_ms, gives_way, results)
            ),
            results,
            wanted,
        )

    @property
    def long_decisions(self) -> "LongDecisions":
        if self._long_decisions is None:
            from kafkapy.runtime.coordinators.long_decisions import LongDecisions

            self._long_decisions = LongDecisions(self._clock)
        return self._long_decisions

    async def commit_offsets(self, group_id: str, decide: "Callable[[GroupShard, int, int], GroupDecision]") -> Any:
        """Like `call`, for a commit of offsets: those that are made in one pass of the event loop share a write.

        The first commit of an unknown group makes the group, on which its next ones depend: it does not share.

        Deviation: Apache Kafka has commits wait group.coordinator.append.linger.ms. Here 0 turns sharing off, and other
        values make no commit wait longer, because those of one pass are there already.
        """
        host = self.host_of(group_id)
        shares_write = self.settings.config.group_coordinator_append_linger_ms != 0 and group_id in host.shard.groups
        return await host.call(group_id, decide, shares_write=shares_write)

    def counted(self, decision: "ShareDecision") -> "ShareDecision":
        """Return the decision of a share group's heartbeat; count it if it begins a group epoch."""
        if self._counts is not None and decision.begins_group_epoch:
            self._counts.rebalances += 1
        return decision

    async def rebalance(self, group_id: str) -> None:
        """Start a rebalance of a group with members. Raises ApiError."""
        from kafkapy.runtime.coordinators.forced_rebalance import force_rebalance  # for tests of users

        await force_rebalance(self.call, group_id)

    def match_regexes(self, group_id: str, regexes: Set[str], may_describe: "Callable[[str], bool]") -> None:
        """Match a decision's `due_regexes` with the cluster's topics, then have the group's shard decide on that.

        may_describe: whether the client is authorized to describe a topic.
        """
        from kafkapy.runtime.coordinators.regex_matching import GroupToMatch, RegexMatching

        try:
            shard = self.host_of(group_id).shard
        except ApiError:
            return  # the group has moved: its next heartbeat there asks again
        if self._matching is None:
            self._matching = RegexMatching(
                image=lambda: self._replica_manager.image, clock=self._clock, on_matched=self._resolve_regexes
            )
        self._matching.request(group_id, GroupToMatch(regexes, may_describe, shard.consumer.prepare_hash))

    def _resolve_regexes(self, group_id: str, matches: "Mapping[str, ResolvedRegex]") -> None:
        self.host_of(group_id).decide_and_append(lambda shard: shard.consumer.resolve_regexes(group_id, matches))

    @property
    def share_states(self) -> "ShareStates":
        """The access to states of share partitions. Raises COORDINATOR_NOT_AVAILABLE without a share coordinator."""
        if self._share_states is None:
            from kafkapy.runtime.coordinators.share_states import ShareStates

            if self._persister is None:
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self._share_states = ShareStates(
                self._persister(), lambda group_id, decide: self.host_of(group_id).decide_and_append(decide)
            )
        return self._share_states

    @property
    def latest_offsets(self) -> "LatestOffsets":
        """The latest offsets of partitions, for the lag of share groups."""
        if self._latest_offsets is None:
            from kafkapy.runtime.coordinators.latest_offsets import LatestOffsets

            self._latest_offsets = LatestOffsets(
                self._replica_manager, self._new_channels, timeout_ms=LATEST_OFFSETS_TIMEOUT_MS
            )
        return self._latest_offsets

    def reach_brokers(self, new_channels: "Callable[[], BrokerChannels]") -> None:
        """Send requests to leaders of share groups' partitions over connections that `new_channels` makes."""
        self._new_channels = new_channels

    def count_in(self, counts: "ShareCounts", own: "CoordinatorCounts") -> None:
        """Count the rebalances of share groups; own: what appends are counted in."""
        assert self._log is None
        self._counts, self._own_counts = counts, own

    async def delete_group(self, group_id: str) -> None:
        """Delete an empty group with its offsets, a share group with the states of its partitions. Raises ApiError.

        In a cluster without share groups, which may have been lowered, nobody knows these states any more.
        """
        features = self._replica_manager.image.features
        if features.has_share_groups and self.host_of(group_id).shard.is_share_group(group_id):
            from kafkapy.runtime.coordinators.share_offsets import delete_states

            await delete_states(self, group_id)
        await self.call(group_id, lambda shard, token, now_ms: shard.delete_group(group_id))

    def append_markers(self, partition_id: int, markers: "Sequence[Marker]") -> "list[PartitionAppend]":
        """End transactions that committed offsets in a partition. Raises NOT_LEADER_OR_FOLLOWER if not possible now."""
        host = self._hosts.get(partition_id)
        try:
            if host is not None and not self._is_closed:
                return host.append_markers(markers)
        except ApiError as error:  # transaction coordinators do not know the codes of group coordinators
            logger.info(
                "Could not write a transaction marker to %s-%d yet, trying again: %s",
                OFFSETS_TOPIC,
                partition_id,
                error,
            )
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    @property
    def default_partition_count(self) -> int:
        return self.settings.config.offsets_topic_num_partitions

    def _new_host(self, partition: "HostedPartition") -> "GroupHost":
        from kafkapy.group.shard import GroupShard
        from kafkapy.runtime.coordinators.group_host import GroupHost

        shard = GroupShard(
            self.settings,
            metadata=lambda: self._replica_manager.image,
            random=self._random,
            wall_ms=self._clock.wall_ms,
            now_ms=self._clock.monotonic_ms,
        )
        return GroupHost(
            partition,
            shard,
            self._coordinator_log(),
            replica_manager=self._replica_manager,
            clock=self._clock,
            wheel=self._wheel,
            on_effect=self._begin_effect,
        )

    def _begin_effect(self, effect: Any) -> None:
        from kafkapy.group.streams.decision import LargeTargetDue

        if isinstance(effect, LargeTargetDue):
            task = asyncio.get_running_loop().create_task(self._decide_due_target(effect.group_id))
            self._due_targets.add(task)
            task.add_done_callback(self._due_targets.discard)
        else:
            self.share_states.begin(effect)

    async def _decide_due_target(self, group_id: str) -> None:
        with suppress(ApiError):  # the group has moved, or the next heartbeat tries it again
            await self.decide_long(
                group_id,
                lambda shard, now_ms, gives_way, results: shard.streams.due_target(
                    group_id, now_ms, gives_way=gives_way, results=results
                ),
            )

    def _coordinator_log(self) -> "CoordinatorLog":
        if self._log is None:
            from kafkapy.group import records
            from kafkapy.runtime.coordinators.writer import FIRST_SEQUENCE, CoordinatorLog

            self._log = CoordinatorLog(
                codec=records,
                compression=lambda: self.settings.config.offsets_topic_compression_codec,
                commit_timeout_ms=lambda: self.settings.config.offsets_commit_timeout_ms,
                load_buffer_bytes=lambda: self.settings.config.offsets_load_buffer_size,
                base_sequence=FIRST_SEQUENCE,
                counts=self._own_counts,
            )
        return self._log

    def _forget_topic(self, topic: "TopicImage") -> "Iterator[None]":
        for host in list(self._hosts.values()):
            host.forget_topic(topic.name, topic.topic_id)
            yield  # a thousand groups may have committed offsets of a topic with many partitions

    # -- periodic work --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to remove expired offsets every offsets.retention.check.interval.ms."""
        self._expirer = asyncio.get_running_loop().create_task(self._expire_regularly())

    def _own_tasks(self) -> "Iterable[asyncio.Task[None] | None]":
        matching = self._matching.task if self._matching is not None else None
        return (
            self._expirer,
            matching,
            *self._due_targets,
            *(self._share_states.tasks if self._share_states is not None else ()),
        )

    async def _expire_regularly(self) -> None:
        while True:
            await asyncio.sleep(self.settings.config.offsets_retention_check_interval_ms / 1000)
            try:
                await self.expire_offsets()
            except Exception:
                logger.exception(
                    "Removing expired offsets failed, trying again after offsets.retention.check.interval.ms"
                )

    async def expire_offsets(self) -> None:
        """Remove expired offsets and groups of all local shards."""
        for host in list(self._hosts.values()):
            try:
                await host.expire_offsets()
            except ApiError as error:
                logger.warning(
                    "Could not remove expired offsets of %s, trying again: %s", host.partition.topic_partition, error
                )
