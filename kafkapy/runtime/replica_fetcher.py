"""Followers: fetching from the leaders of the partitions that are replicated here, and keeping the logs theirs.

One fetcher for each leader: a connection, one Fetch at a time, all partitions followed from that broker. Where a log
has parted from its leader's, the leader says from which epoch on (Fetch 12+, KIP-595), and the log is truncated; a
fetch offset that the leader has not is settled by asking for the ends of its log. Batches are appended as they come;
the high watermark and the log start offset follow the leader's. A partition that cannot go on waits
replica.fetch.backoff.ms, alone; one whose log directory fails is left to that. Sources: KIP-101, KIP-279, KIP-320.

Deviation: every Fetch names all partitions of its leader; Apache Kafka's followers use incremental sessions (KIP-227).
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from kafkapy.dataclass import dataclass
from kafkapy.errors import ApiError, StorageError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kafkapy.protocol.messages.fetch_response import FetchResponse, PartitionData
from kafkapy.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkapy.protocol.messages.list_offsets_response import ListOffsetsResponse
from kafkapy.protocol.primitives import Message
from kafkapy.record.errors import RecordsError
from kafkapy.replication.partition import Role
from kafkapy.runtime.peer import NoResponseError
from kafkapy.seams import FileRegion

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.metadata.delta import MetadataDelta
    from kafkapy.metadata.image import MetadataImage
    from kafkapy.replication.hosted import HostedPartition
    from kafkapy.replication.replica_manager import ReplicaManager
    from kafkapy.runtime.peer import Peer
    from kafkapy.seams import Clock
    from kafkapy.storage.log.log import Log
    from kafkapy.storage.manager.log_manager import LogManager

FETCH: Final = 1
LIST_OFFSETS: Final = 2
MIN_FETCH_VERSION: Final = 13
"""Topic ids, and the epoch last fetched."""
MAX_FETCH_VERSION: Final = 18
REPLICA_STATE_SINCE: Final = 15
LIST_OFFSETS_VERSIONS: Final = (4, 11)
"""From 4 on the leader epoch is checked."""
LATEST: Final = -1
EARLIEST: Final = -2
NO_SESSION_EPOCH: Final = -1
RECONNECT_MS: Final = 100

logger = logging.getLogger("kafkapy.replication")


@dataclass(slots=True)
class Asked:
    """What one Fetch asks of a partition: the answer counts only while both still hold."""

    fetch_offset: int
    leader_epoch: int


class ReplicaFetchers:
    """The fetchers of this broker, by leader."""

    def __init__(
        self,
        replica_manager: "ReplicaManager",
        log_manager: "LogManager",
        *,
        config: "Callable[[], BrokerConfig]",
        node_id: int,
        broker_epoch: Callable[[], int],
        new_peer: "Callable[[str, int], Peer]",
        clock: "Clock",
    ) -> None:
        self.replica_manager = replica_manager
        self.log_manager = log_manager
        self.config = config
        self.node_id = node_id
        self.broker_epoch = broker_epoch
        self.new_peer = new_peer
        self.clock = clock
        self._listener_name = config().inter_broker_listener_name
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._is_stopped = False

    def apply_delta(self, delta: "MetadataDelta", image: "MetadataImage") -> Iterator[None]:
        """Follow who leads now, in steps. To be called after the replica manager has taken the delta over."""
        if delta.topics_changed is None or self._is_stopped:
            return
        changes = delta.topics_changed.local_changes(self.node_id)
        partitions = self.replica_manager.partitions
        for local in (*changes.leaders.items(), *changes.followers.items()):
            topic_partition, change = local
            partition = partitions.find_by_id(change.topic_id, topic_partition.partition)
            if partition is not None:
                self._place(partition)
            yield

    async def stop(self) -> None:
        """End all fetchers; what they have appended stays."""
        self._is_stopped = True
        fetchers, self._fetchers = list(self._fetchers.values()), {}
        await asyncio.gather(*(fetcher.stop() for fetcher in fetchers))

    def address_of(self, broker_id: int) -> tuple[str, int] | None:
        """Return where a broker listens for other brokers; None while it is not registered."""
        broker = self.replica_manager.image.cluster.brokers.get(broker_id)
        endpoint = broker.endpoints.get(self._listener_name) if broker is not None else None
        return (endpoint.host, endpoint.port) if endpoint is not None else None

    def _place(self, partition: "HostedPartition") -> None:
        """Give a partition to the fetcher of its leader, and take it from every other."""
        leader_id = partition.leader_id if partition.role is Role.FOLLOWER else -1
        for broker_id, fetcher in self._fetchers.items():
            if broker_id != leader_id:
                fetcher.remove(partition)
        if leader_id >= 0:
            if leader_id not in self._fetchers:
                self._fetchers[leader_id] = ReplicaFetcher(self, leader_id)
            self._fetchers[leader_id].add(partition)


class ReplicaFetcher:
    """Fetches from one broker what is followed from it."""

    def __init__(self, fetchers: ReplicaFetchers, leader_id: int) -> None:
        self._fetchers = fetchers
        self._leader_id = leader_id
        self._partitions: dict[HostedPartition, int] = {}
        """With the time in ms until which each waits after a failure."""
        self._changed = asyncio.Event()
        self._peer: Peer | None = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    def add(self, partition: "HostedPartition") -> None:
        self._partitions[partition] = 0
        self._changed.set()

    def remove(self, partition: "HostedPartition") -> None:
        self._partitions.pop(partition, None)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._peer is not None:
            self._peer.close()

    async def _run(self) -> None:
        while True:
            asked = self._ready()
            if not asked:
                await self._wait()
                continue
            try:
                response = await self._call(FETCH, self._fetch(asked), (MIN_FETCH_VERSION, MAX_FETCH_VERSION))
                assert isinstance(response, FetchResponse)
                await self._take(response, asked)
            except ApiError as error:
                logger.info("Fetching from broker %d goes on later: %s", self._leader_id, error)
                await asyncio.sleep(RECONNECT_MS / 1000)
            except Exception:
                logger.exception("Fetching from broker %d goes on after an unexpected error", self._leader_id)
                await asyncio.sleep(self._backoff_ms / 1000)

    @property
    def _backoff_ms(self) -> int:
        return self._fetchers.config().replication.replica_fetch_backoff_ms

    def _ready(self) -> "dict[HostedPartition, Asked]":
        """Return what to ask for now; partitions that are not followed any more are forgotten."""
        now_ms = self._fetchers.clock.monotonic_ms()
        asked: dict[HostedPartition, Asked] = {}
        for partition, wait_until_ms in list(self._partitions.items()):
            if partition.role is not Role.FOLLOWER or partition.log is None or partition.leader_id != self._leader_id:
                del self._partitions[partition]
            elif wait_until_ms <= now_ms and not partition.log.is_offline:
                asked[partition] = Asked(partition.log.log_end_offset, partition.leader_epoch)
        return asked

    async def _wait(self) -> None:
        """Wait for a partition to follow, or until one has waited long enough."""
        self._changed.clear()
        now_ms = self._fetchers.clock.monotonic_ms()
        waits = [until_ms - now_ms for until_ms in self._partitions.values()]
        timeout_s = max(min(waits), 1) / 1000 if waits else None
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return

    # ---- asking

    def _fetch(self, asked: "dict[HostedPartition, Asked]") -> Callable[[int], FetchRequest]:
        config = self._fetchers.config().replication
        topics: dict[bytes, FetchTopic] = {}
        for partition, what in asked.items():
            assert partition.log is not None
            topic = topics.setdefault(partition.topic_id, FetchTopic(topic_id=partition.topic_id, partitions=[]))
            latest_epoch = partition.log.latest_epoch
            topic.partitions.append(
                FetchPartition(
                    partition=partition.topic_partition.partition,
                    current_leader_epoch=what.leader_epoch,
                    fetch_offset=what.fetch_offset,
                    last_fetched_epoch=-1 if latest_epoch is None else latest_epoch,
                    log_start_offset=partition.log.log_start_offset,
                    partition_max_bytes=config.replica_fetch_max_bytes,
                )
            )

        def build(version: int) -> FetchRequest:
            request = FetchRequest(
                max_wait_ms=config.replica_fetch_wait_max_ms,
                min_bytes=config.replica_fetch_min_bytes,
                max_bytes=config.replica_fetch_response_max_bytes,
                session_epoch=NO_SESSION_EPOCH,
                topics=list(topics.values()),
            )
            if version >= REPLICA_STATE_SINCE:
                request.replica_state = ReplicaState(self._fetchers.node_id, self._fetchers.broker_epoch())
            else:
                request.replica_id = self._fetchers.node_id
            return request

        return build

    async def _call(self, api_key: int, build: Callable[[int], Message], versions: tuple[int, int]) -> Message:
        """Return the leader's response. Raises ApiError where none comes."""
        address = self._fetchers.address_of(self._leader_id)
        if address is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {self._leader_id} is not registered")
        if self._peer is None or (self._peer.host, self._peer.port) != address:
            if self._peer is not None:
                self._peer.close()
            self._peer = self._fetchers.new_peer(*address)
        timeout_ms = self._fetchers.config().replication.replica_socket_timeout_ms
        try:
            return await self._peer.ask(api_key, build, versions=versions, timeout_ms=timeout_ms)
        except NoResponseError as error:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, str(error)) from error

    # ---- taking what came

    async def _take(self, response: FetchResponse, asked: "dict[HostedPartition, Asked]") -> None:
        if response.error_code:
            raise ApiError(response.error_code)
        by_key = {(each.topic_id, each.topic_partition.partition): each for each in asked}
        for topic in response.responses:
            for answer in topic.partitions:
                partition = by_key.get((topic.topic_id, answer.partition_index))
                if partition is None:
                    continue
                await self._take_one(partition, asked[partition], answer)
                if answer.records:
                    await asyncio.sleep(0)  # a partition's records a turn of the loop

    async def _take_one(self, partition: "HostedPartition", asked: Asked, answer: PartitionData) -> None:
        log = partition.log
        if partition.role is not Role.FOLLOWER or partition.leader_epoch != asked.leader_epoch or log is None:
            return
        if log.log_end_offset != asked.fetch_offset:
            return
        try:
            if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._settle_range(partition, asked)
            elif answer.error_code:
                self._hold_back(partition, ErrorCode(answer.error_code).name)
            elif answer.diverging_epoch.end_offset >= 0:
                self._truncate(partition, log, answer)
            else:
                self._append(partition, log, answer)
        except (ApiError, RecordsError) as error:
            self._hold_back(partition, str(error))
        except StorageError as error:
            logger.error("%s is not followed any more: %s", partition.topic_partition, error)
            self.remove(partition)

    def _hold_back(self, partition: "HostedPartition", reason: str) -> None:
        if partition in self._partitions:
            logger.info("%s waits before it is fetched again: %s", partition.topic_partition, reason)
            self._partitions[partition] = self._fetchers.clock.monotonic_ms() + self._backoff_ms

    def _append(self, partition: "HostedPartition", log: "Log", answer: PartitionData) -> None:
        data = answer.records or b""
        assert not isinstance(data, FileRegion)
        if data:
            self._begin_with(partition, log, data)
            log.append_as_follower(bytearray(data), self._fetchers.clock.wall_ms(), leader_epoch=partition.leader_epoch)
        log.update_high_watermark(max(log.high_watermark, min(answer.high_watermark, log.log_end_offset)))
        log.maybe_increment_log_start_offset(min(answer.log_start_offset, log.high_watermark))

    def _begin_with(self, partition: "HostedPartition", log: "Log", data: Any) -> None:
        """Have an empty log begin where its first batch does: the leader's log start offset may lie within that."""
        base_offset = int.from_bytes(data[:8], "big")
        if base_offset < log.log_end_offset == log.log_start_offset:
            self._fetchers.log_manager.truncate_fully_and_start_at(partition.topic_partition, base_offset)

    def _truncate(self, partition: "HostedPartition", log: "Log", answer: PartitionData) -> None:
        """Drop what the leader has not: all from where the epoch that both know ends on either side."""
        diverging = answer.diverging_epoch
        ours = log.end_offset_for_epoch(diverging.epoch)
        offset = diverging.end_offset if ours is None else min(ours.offset, diverging.end_offset)
        offset = min(offset, log.log_end_offset)
        logger.info("%s parts from its leader's log in epoch %d", partition.topic_partition, diverging.epoch)
        self._fetchers.log_manager.truncate_to({partition.topic_partition: offset})

    async def _settle_range(self, partition: "HostedPartition", asked: Asked) -> None:
        """The leader has no such offset: its log is shorter, or begins later. Raises ApiError."""
        end_offset = await self._list_offset(partition, asked, LATEST)
        start_offset = await self._list_offset(partition, asked, EARLIEST)
        log = partition.log
        if partition.role is not Role.FOLLOWER or partition.leader_epoch != asked.leader_epoch or log is None:
            return
        if end_offset < log.log_end_offset:
            logger.warning("The leader's log of %s ends at %d already", partition.topic_partition, end_offset)
            self._fetchers.log_manager.truncate_to({partition.topic_partition: end_offset})
        elif start_offset > log.log_end_offset:
            logger.warning("The leader's log of %s begins at %d only", partition.topic_partition, start_offset)
            self._fetchers.log_manager.truncate_fully_and_start_at(partition.topic_partition, start_offset)
        else:
            self._hold_back(partition, "OFFSET_OUT_OF_RANGE")

    async def _list_offset(self, partition: "HostedPartition", asked: Asked, timestamp: int) -> int:
        topic, partition_id = partition.topic_partition
        wanted = ListOffsetsPartition(
            partition_index=partition_id, current_leader_epoch=asked.leader_epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=self._fetchers.node_id, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
        )
        response = await self._call(LIST_OFFSETS, lambda _version: request, LIST_OFFSETS_VERSIONS)
        assert isinstance(response, ListOffsetsResponse)
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            raise ApiError(answer.error_code)
        return answer.offset
