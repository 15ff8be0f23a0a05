"""A follower's fetcher: fetches the followed partitions of one leader and keeps their logs equal to the leader's.

It sends one Fetch at a time on its own connection, in an incremental session (KIP-227): a request names the partitions
that changed, a response those with new data, and the others cost nothing. When a log has diverged, the response says
from which epoch on (Fetch 12+, KIP-595), and the log is truncated. If the leader does not have the fetch offset,
ListOffsets finds the start and the end of its log. Batches are appended as they arrive; when flush.messages is reached
they are fsynced before the next Fetch, which acknowledges them to the leader.

A partition that fails is retried alone after replica.fetch.backoff.ms. Fetching a partition stops until its metadata
changes if its log fails, if its leader has a later epoch than this broker, or after an unexpected error. Sources:
KIP-101, KIP-279, KIP-320; Apache Kafka's AbstractFetcherThread.

Deviation: Apache Kafka waits replica.fetch.backoff.ms, by default a second, after a Fetch without a response. Here the
next one follows after 100 ms, because followers then soon find a leader that has restarted.

Deviation: Apache Kafka stops fetching a partition whose records do not continue the log until its metadata changes.
Here they are requested again after replica.fetch.backoff.ms, because that may not happen for days.

Deviation: Apache Kafka's followers give their broker epoch with each Fetch. Here the last Fetch of a replica that has
left the ISR because its disk is full gives one that no broker has, because Apache Kafka's leaders would wait for it for
replica.lag.time.max.ms, as for each replica that was in sync so recently (maybeIncrementLeaderHW of Kafka's Partition).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol

from kafkapy.errors import ApiError, StorageError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kafkapy.protocol.messages.fetch_response import FetchResponse, PartitionData
from kafkapy.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkapy.protocol.messages.list_offsets_response import ListOffsetsResponse
from kafkapy.protocol.primitives import Message
from kafkapy.protocol.response_error import response_error
from kafkapy.record.errors import RecordsError
from kafkapy.replication.partition import Role
from kafkapy.runtime.followers.session import FollowerSession, PartitionKey, SessionRequest
from kafkapy.runtime.peer import NoResponseError
from kafkapy.types import INT64_MAX, OffsetAndEpoch

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.replication.follower_log import FollowerLogs
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.replication.replica_manager import ReplicaManager
    from kafkapy.replication.throttle import ReplicationThrottle
    from kafkapy.runtime.peer import Peer
    from kafkapy.seams import Clock
    from kafkapy.storage.log.log import Log
    from kafkapy.types import Uuid

FETCH: Final = 1
LIST_OFFSETS: Final = 2
FETCH_VERSIONS: Final = (13, 18)
"""From 13 on topics are identified by id; all of these carry the last fetched epoch."""
REPLICA_STATE_SINCE: Final = 15
LIST_OFFSETS_VERSIONS: Final = (4, 11)
"""From 4 on the leader epoch is checked."""
LATEST: Final = -1
EARLIEST: Final = -2
RECONNECT_MS: Final = 100
WAIT_WHILE_BEHIND_MS: Final = 50
"""How long a leader waits at most while metadata is being applied here: only the next Fetch names new partitions.

A Fetch without records takes both sides half a millisecond, a hundredth of this."""
NO_SESSION: Final = -1
INELIGIBLE_EPOCH: Final = INT64_MAX
"""An epoch that no broker has: a replica whose last Fetch gave it neither joins the ISR nor is waited for."""
SESSION_ERRORS: Final = frozenset((ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH))

logger = logging.getLogger("kafkapy.replication")


class FollowerBroker(Protocol):
    """The shared state of a broker's fetchers (replica_fetchers.py)."""

    @property
    def node_id(self) -> int: ...
    @property
    def replica_manager(self) -> "ReplicaManager": ...
    @property
    def logs(self) -> "FollowerLogs": ...
    @property
    def clock(self) -> "Clock": ...
    @property
    def throttle(self) -> "ReplicationThrottle | None":
        """None without follower.replication.throttled.rate."""
        ...

    def config(self) -> "BrokerConfig": ...

    def broker_epoch(self) -> int: ...

    def address_of(self, broker_id: int) -> tuple[str, int] | None:
        """Return the broker's address on the inter-broker listener; None while it is not registered."""
        ...

    def new_peer(self, host: str, port: int, /) -> "Peer": ...

    def flush(self, log: "Log", /) -> Awaitable[None]:
        """Make a log durable (flush.messages)."""
        ...


class ReplicaFetcher:
    """Fetches some or all of the followed partitions of one leader."""

    def __init__(self, broker: FollowerBroker, leader_id: int) -> None:
        self._broker = broker
        self._leader_id = leader_id
        self._session = FollowerSession()
        self._followed: dict[PartitionKey, HostedPartition] = {}
        self._delayed: dict[PartitionKey, int] = {}
        """When partitions are fetched again after a failure or a throttle pause (monotonic ms)."""
        self._caught_up: set[PartitionKey] = set()
        """Throttled partitions whose last response brought them up to the leader's high watermark."""
        self._pausing: dict[PartitionKey, FetchPartition] = {}
        """Replicas on a full disk, with the position of the Fetch that ends their leader's wait for them."""
        self._paused: dict[PartitionKey, int] = {}
        """Those of them for which that Fetch was answered, with its leader epoch."""
        self.lags: dict[PartitionKey, int] = {}
        """Records that each partition lacked up to the leader's high watermark, at its last response."""
        self._unflushed: dict[Log, None] = {}
        """Logs that have reached flush.messages: the next Fetch would acknowledge what may not be durable yet."""
        self.fetch_count = 0
        self._changed = asyncio.Event()
        self._peer: Peer | None = None
        self._failure: str | None = None
        """Why the last Fetch failed."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def add(self, key: PartitionKey, partition: "HostedPartition") -> None:
        """Start to fetch a partition, or continue with its new metadata."""
        self._followed[key] = partition
        self._delayed.pop(key, None)
        self._add_unflushed(partition)  # its former fetcher may not have flushed its last appends
        self._request_partition(key, partition)
        self._changed.set()

    def remove(self, key: PartitionKey) -> None:
        """Stop fetching a partition."""
        self._followed.pop(key, None)
        self._delayed.pop(key, None)
        self._caught_up.discard(key)
        self._pausing.pop(key, None)
        self._paused.pop(key, None)
        self.lags.pop(key, None)
        self._session.drop(key)

    def __contains__(self, key: PartitionKey) -> bool:
        """Whether a partition is fetched."""
        return key in self._followed

    def close(self) -> None:
        """Start to close; `stop` waits for the end."""
        self._task.cancel()
        self._close_peer()

    async def stop(self) -> None:
        self.close()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self._run_round()
            except ApiError as error:
                self._session.record_failure()
                self._record_failure(str(error))
                await asyncio.sleep(min(RECONNECT_MS, self._backoff_ms) / 1000)
            except Exception:
                self._session.record_failure()
                logger.exception("Fetching from broker %d failed unexpectedly, trying again", self._leader_id)
                await asyncio.sleep(self._backoff_ms / 1000)

    async def _run_round(self) -> None:
        """Fetch once, or wait until there is a partition to fetch. Raises ApiError."""
        if self._unflushed:
            await self._flush_appended()
        self._end_delays()
        if self._broker.throttle is not None:
            self._leave_out_throttled(self._broker.throttle)
        if self._pausing:
            await self._end_waiting_for_paused()
        if not self._session.has_request:
            await self._wait()
            return
        request = self._session.next_request()
        await self._apply_response(await self._fetch(request), request)
        self._record_failure(None)

    def _record_failure(self, failure: str | None) -> None:
        """Log the failure of a Fetch once, and when fetching works again."""
        if failure == self._failure:
            return
        self._failure = failure
        if failure is None:
            logger.info("Fetching from broker %d works again", self._leader_id)
        else:
            logger.info("Could not fetch from broker %d, trying again: %s", self._leader_id, failure)

    @property
    def _backoff_ms(self) -> int:
        return self._broker.config().replication.replica_fetch_backoff_ms

    async def _wait(self) -> None:
        """Wait for a partition to fetch, or for the end of the first delay. Disconnect if no partition is followed."""
        self._changed.clear()
        if not self._followed:
            self._close_peer()
            self._session.record_failure()
        now_ms = self._broker.clock.monotonic_ms()
        timeout_s = max(min(self._delayed.values()) - now_ms, 1) / 1000 if self._delayed else None
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return

    def _close_peer(self) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.close()

    # ---- requests

    def _request_partition(self, key: PartitionKey, partition: "HostedPartition") -> None:
        """Continue at the log's end offset with the next Fetch."""
        log = partition.log
        if partition.role is not Role.FOLLOWER or log is None or log.is_offline:
            self.remove(key)
            return
        if log.log_dir.is_full:  # nothing can be appended, and a follower that fetches may join the ISR
            self._delayed[key] = self._broker.clock.monotonic_ms() + self._backoff_ms
            self._session.drop(key)
            if self._broker.node_id not in partition.isr and self._paused.get(key) != partition.leader_epoch:
                # Apache Kafka's leader checks for whom it waits only if the end offset of a follower changes
                wanted = self._position(key, partition, log)
                wanted.fetch_offset, wanted.last_fetched_epoch = max(wanted.fetch_offset - 1, log.log_start_offset), -1
                self._pausing[key] = wanted
            return
        self._pausing.pop(key, None)
        self._paused.pop(key, None)
        self._session.request(key, self._position(key, partition, log))

    def _position(self, key: PartitionKey, partition: "HostedPartition", log: "Log") -> FetchPartition:
        """Return the fields to fetch from the log's end offset."""
        latest_epoch = log.latest_epoch
        return FetchPartition(
            partition=key[1],
            current_leader_epoch=partition.leader_epoch,
            fetch_offset=log.log_end_offset,
            last_fetched_epoch=-1 if latest_epoch is None else latest_epoch,
            log_start_offset=log.log_start_offset,
            partition_max_bytes=self._broker.config().replication.replica_fetch_max_bytes,
        )

    async def _end_waiting_for_paused(self) -> None:
        """End the leader's wait for replicas that cannot take records now, by a Fetch without a session."""
        pausing, self._pausing = self._pausing, {}
        topics: dict[Uuid, FetchTopic] = {}
        for (topic_id, _), wanted in pausing.items():
            topics.setdefault(topic_id, FetchTopic(topic_id=topic_id, partitions=[])).partitions.append(wanted)

        def build(version: int) -> FetchRequest:
            request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=0, session_epoch=NO_SESSION)
            if version >= REPLICA_STATE_SINCE:  # leaders of before KIP-903 know no broker epochs of replicas
                request.topics = list(topics.values())
                request.replica_state = ReplicaState(replica_id=self._broker.node_id, replica_epoch=INELIGIBLE_EPOCH)
            return request

        await self._call(FETCH, build, FETCH_VERSIONS)
        followed = {key: wanted for key, wanted in pausing.items() if key in self._followed}
        self._paused.update((key, wanted.current_leader_epoch) for key, wanted in followed.items())

    async def _fetch(self, requested: SessionRequest) -> FetchResponse:
        config = self._broker.config().replication

        def build(version: int) -> FetchRequest:
            request = FetchRequest(
                max_wait_ms=self._max_wait_ms(requested),
                min_bytes=config.replica_fetch_min_bytes,
                max_bytes=config.replica_fetch_response_max_bytes,
                session_id=requested.session_id,
                session_epoch=requested.session_epoch,
                topics=requested.topics,
                forgotten_topics_data=requested.forgotten,
            )
            if version >= REPLICA_STATE_SINCE:
                request.replica_state = ReplicaState(
                    replica_id=self._broker.node_id, replica_epoch=self._broker.broker_epoch()
                )
            else:
                request.replica_id = self._broker.node_id
            return request

        response = await self._call(FETCH, build, FETCH_VERSIONS)
        self.fetch_count += 1
        assert isinstance(response, FetchResponse)
        return response

    def _max_wait_ms(self, requested: SessionRequest) -> int:
        """Return how long the leader may wait for records."""
        is_behind = self._broker.replica_manager.partitions.is_behind
        most_ms = 0 if requested.has_more else WAIT_WHILE_BEHIND_MS if is_behind else INT64_MAX
        return min(self._broker.config().replication.replica_fetch_wait_max_ms, most_ms)

    async def _call(self, api_key: int, build: Callable[[int], Message], versions: tuple[int, int]) -> Message:
        """Return the leader's response. Raises ApiError if there is none."""
        address = self._broker.address_of(self._leader_id)
        if address is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {self._leader_id} is not registered")
        if self._peer is None or (self._peer.host, self._peer.port) != address:
            self._close_peer()
            self._peer = self._broker.new_peer(*address)
        timeout_ms = self._broker.config().replication.replica_socket_timeout_ms
        try:
            return await self._peer.send_request(api_key, build, versions=versions, timeout_ms=timeout_ms)
        except NoResponseError as error:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, str(error)) from error

    # ---- responses

    async def _apply_response(self, response: FetchResponse, request: SessionRequest) -> None:
        """Process a response."""
        if response.error_code:
            if response.error_code not in SESSION_ERRORS:
                raise response_error(response.error_code)
            self._session.record_failure(response.error_code)
            return
        self._session.on_response(request, response.session_id)
        for topic in response.responses:
            for part in topic.partitions:
                key = (topic.topic_id, part.partition_index)
                partition, requested = self._followed.get(key), self._session.sent(key)
                if partition is None or requested is None or key in self._delayed:
                    continue
                await self._apply_partition(key, partition, requested, part)
                if part.records:
                    self._add_unflushed(partition)
                    await asyncio.sleep(0)  # yield to other tasks after each partition with records

    def _add_unflushed(self, partition: "HostedPartition") -> None:
        log = partition.log
        if log is not None and log.recovery_point < log.flush_required_to:
            self._unflushed[log] = None

    async def _flush_appended(self) -> None:
        """Flush the logs that have reached flush.messages. A failure takes their directory offline."""
        logs, self._unflushed = self._unflushed, {}
        await asyncio.gather(*(self._broker.flush(log) for log in logs), return_exceptions=True)

    async def _apply_partition(
        self, key: PartitionKey, partition: "HostedPartition", requested: FetchPartition, response: PartitionData
    ) -> None:
        if not _is_still_requested(partition, requested):
            if partition.role is Role.OFFLINE:  # a read took it offline; the leader would send the same for ever
                self.remove(key)
            return
        try:
            await self._follow(key, partition, requested, response)
        except (ApiError, RecordsError) as error:
            self._hold_back(key, str(error))
        except StorageError as error:
            logger.error("Stopped replicating %s until its metadata changes: %s", partition.topic_partition, error)
            self.remove(key)
        except Exception:
            logger.exception(
                "Stopped replicating %s until its metadata changes, after an unexpected error",
                partition.topic_partition,
            )
            self.remove(key)
        else:
            if key in self._followed and key not in self._delayed:
                self._request_partition(key, partition)

    async def _follow(
        self, key: PartitionKey, partition: "HostedPartition", requested: FetchPartition, response: PartitionData
    ) -> None:
        """Apply the response to the log. Raises ApiError, RecordsError, StorageError."""
        log, logs, code = partition.log, self._broker.logs, response.error_code
        assert log is not None
        try:
            if code and code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise response_error(code)
            if code:
                await self._reset_offset(key, partition, requested)
            elif response.diverging_epoch.end_offset >= 0:
                diverging = OffsetAndEpoch(response.diverging_epoch.end_offset, response.diverging_epoch.epoch)
                logs.truncate_to_agreement(partition, log, diverging)
            else:
                if logs.append(partition, log, response, self._broker.clock.wall_ms()):
                    self._broker.replica_manager.complete_waiting(partition)
                self.lags[key] = max(response.high_watermark - log.log_end_offset, 0)
                self._count(partition, response)
                if self._broker.throttle is not None:
                    self._count_throttled(self._broker.throttle, key, partition, response)
        except ApiError as error:
            # The leader's epoch is later than this node's metadata: it would be refused until that arrives. But if the
            # metadata has moved on since the request, the error is about the former epoch, and the fetch is repeated.
            if error.code != ErrorCode.FENCED_LEADER_EPOCH or requested.current_leader_epoch != partition.leader_epoch:
                raise
            logger.info(
                "Pausing replication of %s until newer metadata arrives: its leader has a later epoch",
                partition.topic_partition,
            )
            self.remove(key)

    def _count(self, partition: "HostedPartition", response: PartitionData) -> None:
        """Count the fetched records, if there are metrics."""
        manager, node_id = self._broker.replica_manager, self._broker.node_id
        if manager.traffic is not None and response.records:
            registration = manager.image.topics.partition(*partition.topic_partition)
            is_reassigned = registration is not None and node_id in registration.adding_replicas
            manager.traffic.count_replicated(len(response.records), is_reassigned=is_reassigned)

    def _hold_back(self, key: PartitionKey, reason: str) -> None:
        if key in self._followed:
            logger.info("Could not fetch %s, trying again: %s", self._followed[key].topic_partition, reason)
            self._delayed[key] = self._broker.clock.monotonic_ms() + self._backoff_ms
            self._session.drop(key)

    def _end_delays(self) -> None:
        """Add the partitions whose delay is over to the next request."""
        if self._delayed:
            now_ms = self._broker.clock.monotonic_ms()
            for key in [key for key, until_ms in self._delayed.items() if until_ms <= now_ms]:
                del self._delayed[key]
                self._request_partition(key, self._followed[key])

    # ---- follower.replication.throttled.rate

    def _count_throttled(
        self, throttle: "ReplicationThrottle", key: PartitionKey, partition: "HostedPartition", response: PartitionData
    ) -> None:
        """Count the fetched bytes of a throttled partition, and record whether it lags."""
        if not throttle.covers(partition):
            return
        throttle.record(len(response.records or b""))
        assert partition.log is not None
        if response.high_watermark <= partition.log.log_end_offset:
            self._caught_up.add(key)
        else:
            self._caught_up.discard(key)

    def _leave_out_throttled(self, throttle: "ReplicationThrottle") -> None:
        """While the rate is exceeded, remove throttled partitions that are not in sync from the next requests."""
        pause_ms = throttle.pause_ms()
        if pause_ms == 0:
            return
        until_ms = self._broker.clock.monotonic_ms() + min(pause_ms, self._backoff_ms)
        for key, partition in self._followed.items():
            is_in_sync = key in self._caught_up or self._broker.node_id in partition.isr
            if key in self._session and not is_in_sync and throttle.covers(partition):
                self._delayed[key] = until_ms
                self._session.drop(key)

    async def _reset_offset(self, key: PartitionKey, partition: "HostedPartition", requested: FetchPartition) -> None:
        """Handle OFFSET_OUT_OF_RANGE: the leader's log ends earlier or starts later. Raises ApiError."""
        end_offset = await self._list_offset(partition, requested, LATEST)
        start_offset = await self._list_offset(partition, requested, EARLIEST)
        if not _is_still_requested(partition, requested):
            return
        if end_offset < requested.fetch_offset:
            logger.warning("Truncating %s: the leader's log ends at offset %d", partition.topic_partition, end_offset)
            self._broker.logs.truncate(partition, end_offset)
        elif start_offset > requested.fetch_offset:
            logger.warning(
                "Restarting the log of %s at the leader's log start offset %d", partition.topic_partition, start_offset
            )
            self._broker.logs.start_over(partition, start_offset)
        else:
            self._hold_back(key, "OFFSET_OUT_OF_RANGE")

    async def _list_offset(self, partition: "HostedPartition", requested: FetchPartition, timestamp: int) -> int:
        topic, partition_id = partition.topic_partition
        wanted = ListOffsetsPartition(
            partition_index=partition_id, current_leader_epoch=requested.current_leader_epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=self._broker.node_id, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
        )
        response = await self._call(LIST_OFFSETS, lambda _version: request, LIST_OFFSETS_VERSIONS)
        assert isinstance(response, ListOffsetsResponse)
        part = response.topics[0].partitions[0]
        if part.error_code:
            raise response_error(part.error_code)
        return part.offset


def _is_still_requested(partition: "HostedPartition", requested: FetchPartition) -> bool:
    """Whether a response is still valid: same leader epoch and same log end offset as in the request."""
    return (
        partition.role is Role.FOLLOWER
        and partition.leader_epoch == requested.current_leader_epoch
        and partition.log is not None
        and partition.log.log_end_offset == requested.fetch_offset
    )
