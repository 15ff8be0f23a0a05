"""Fetch by a follower: the partitions with new data of its session, or those that it names; its progress is recorded.

handlers/data/fetch.py has decided that the request is a follower's.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kafkapy.handlers.context import RequestContext, Services
from kafkapy.handlers.data.fetch_counts import count_sent_to_follower
from kafkapy.handlers.data.fetch_reading import Follower, Limits, Readable, read_or_wait, read_partitions
from kafkapy.handlers.data.fetch_wire import TOPIC_IDS_SINCE, Reads
from kafkapy.handlers.data_plane import completion, sent_bytes
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import RequestHeader
from kafkapy.protocol.messages.fetch_request import FetchRequest
from kafkapy.record.batch import NO_LEADER_EPOCH
from kafkapy.replication import follower_watch
from kafkapy.replication.fetch_read import FetchRead
from kafkapy.replication.fetch_session import FetchContext, FetchedPartition
from kafkapy.replication.follower_watch import READ_AT_ONCE, FollowerWatch
from kafkapy.replication.hosted_partitions import HostedPartition
from kafkapy.replication.partition_read import PartitionRead, failed_read
from kafkapy.runtime.turns import Turn
from kafkapy.storage.log.reader import FetchIsolation

READ_PER_TURN: Final = 240
"""Partitions of a follower's fetch after which it gives way at the latest: mostly it does so sooner, after TURN_MS."""


async def fetch_for_follower(
    services: Services, context: RequestContext, request: FetchRequest, fetch: FetchContext, follower: Follower
) -> Reads:
    """Return a response for each partition that a follower requests, in their order."""
    brokers = services.replica_manager.partitions.brokers
    if not brokers.is_registered(follower.replica_id) or brokers.is_stale(follower.replica_id, follower.broker_epoch):
        _log_stranger(services, context, follower)
    watch = fetch.watch
    if watch is not None:
        assert isinstance(watch, FollowerWatch), "followers' sessions are made with one"
        responses = await _fetch_watched(services, context, request, _Watched(follower, watch), fetch.partitions)
    else:
        readable, refused = _sort_out_for(services, context, fetch.partitions, follower, None)
        read = await read_or_wait(services, context, request, readable, must_respond=bool(refused), follower=follower)
        responses = _with_refused(fetch.partitions, read.results, refused)
    if services.replica_manager.watches.throttle is not None:
        _count_throttled(services, context, responses)
    if services.replica_manager.traffic is not None:
        count_sent_to_follower(services.replica_manager, responses, follower.replica_id)
    return responses


def _log_stranger(services: Services, context: RequestContext, follower: Follower) -> None:
    """Log a fetch that names a replica which its sender is not: of no broker, or of an earlier incarnation of one.

    Its partitions are refused one by one.
    """
    from kafkapy.handlers.node_refusals import NodeRefusals  # most brokers never refuse one

    if services.node_refusals is None:
        services.node_refusals = NodeRefusals(services.clock)
    is_registered = services.replica_manager.partitions.brokers.is_registered(follower.replica_id)
    code = ErrorCode.STALE_BROKER_EPOCH if is_registered else ErrorCode.BROKER_ID_NOT_REGISTERED
    header = RequestHeader(context.api_key, context.api_version, context.correlation_id, context.client_id)
    services.node_refusals.log(header, context.connection, code)


def _count_throttled(services: Services, context: RequestContext, responses: Reads) -> None:
    """Count the bytes sent to a follower of partitions in leader.replication.throttled.replicas."""
    throttle = services.replica_manager.watches.throttle
    assert throttle is not None, "the caller has checked that there is a throttle"
    for requested, response in responses:
        partition = _find(services, requested, uses_topic_ids=context.api_version >= TOPIC_IDS_SINCE)
        if partition is not None and throttle.covers(partition):
            throttle.record(sent_bytes(response))


def _sort_out_for(
    services: Services,
    context: RequestContext,
    requested_partitions: Sequence[FetchedPartition],
    follower: Follower,
    watch: FollowerWatch | None,
) -> tuple[list[Readable], dict[object, PartitionRead]]:
    """Return the partitions that a follower can read, and, by key, the error responses of the others."""
    uses_topic_ids = context.api_version >= TOPIC_IDS_SINCE
    readable: list[Readable] = []
    refused: dict[object, PartitionRead] = {}
    for requested in requested_partitions:
        partition = _find(services, requested, uses_topic_ids=uses_topic_ids)
        refusal = _follower_refusal(services, requested, partition, follower, uses_topic_ids=uses_topic_ids)
        if partition is not None and watch is not None:
            watch.bind(requested, partition)
        if refusal == 0 and partition is not None:
            requested.known_topic = partition.topic_partition.topic
            readable.append((requested, partition))
        else:
            refused[requested.key] = failed_read(refusal)
    return readable, refused


class _Watched(NamedTuple):
    """A follower, and the watch of its session for partitions with new data."""

    follower: Follower
    watch: FollowerWatch


async def _fetch_watched(
    services: Services,
    context: RequestContext,
    request: FetchRequest,
    by: _Watched,
    taken: Sequence[FetchedPartition],
) -> Reads:
    """Return the responses of the partitions with new data; if there is not enough, wait for more first."""
    max_bytes = min(request.max_bytes, services.config.node.fetch_max_bytes)
    min_bytes = min(request.min_bytes, max_bytes)
    limits = Limits(FetchIsolation.LOG_END, max_bytes, by.follower, by.watch.times)
    read, responses = await _read_changed(
        services, context, by, limits, taken, min_bytes=min_bytes, notes_progress=True
    )
    by.watch.times.last_fetch_ms = services.clock.monotonic_ms()
    if read.must_respond or read.bytes_read >= min_bytes or request.max_wait_ms <= 0:
        return responses
    read.release()
    by.watch.requeue(responses)
    await _wait_for_data(by.watch, min_bytes, request.max_wait_ms)
    _, responses = await _read_changed(
        services, context, by, limits, by.watch.pop(), min_bytes=min_bytes, notes_progress=False
    )
    return responses


async def _read_changed(
    services: Services,
    context: RequestContext,
    by: _Watched,
    limits: Limits,
    taken: Sequence[FetchedPartition],
    *,
    min_bytes: int,
    notes_progress: bool,
) -> tuple[FetchRead, Reads]:
    """Read `taken`, then the other partitions with new data until the response is full; return all responses.

    Gives way to other requests after each turn: a request may name all 100,000 partitions of its session. Those of
    `taken` are read though the response is full: that notes the follower's progress. If the session ends meanwhile,
    nothing more is read: the follower may have another one, and progress would be recorded for the old. Once min_bytes
    are found and a turn is over, the others wait for the next fetch, as producers wait for the records; but as many as
    were taken are read before: busy partitions, which each request names, would fill all turns. Returns only the
    responses that the response needs; MAX_CHANGED of them are answered at once.
    """
    read: FetchRead | None = None
    responses: Reads = []
    turn, is_over = Turn(services.clock, READ_PER_TURN), False
    left = by.watch.unread_count  # what changes from here on is for the next fetch, or this one might never end
    may_wait = left - len(taken)
    try:
        while True:
            for some in _slices(taken):
                if read is not None and is_over:
                    await services.turns.next(context.client)
                    turn.begin()
                    if by.watch.is_closed:
                        return read, responses
                readable, refused = _sort_out_for(services, context, some, by.follower, by.watch)
                first = 0 if read is None else len(read.results)
                read = await read_partitions(services, readable, limits, notes_progress=notes_progress, read=read)
                responses += by.watch.requeue_unchanged(_with_refused(some, read.results[first:], refused))
                read.must_respond |= bool(refused)
                is_over = len(some) == READ_AT_ONCE and turn.is_over(READ_AT_ONCE)
            assert read is not None, "there is at least one slice"
            read.must_respond |= (has_most := len(responses) >= follower_watch.MAX_CHANGED)
            is_enough = is_over and left <= may_wait and read.bytes_read >= max(min_bytes, 1)
            if left <= 0 or read.is_full or has_most or is_enough:
                return read, responses
            if not (taken := by.watch.pop(left)):
                return read, responses
            left -= len(taken)
    except BaseException:
        if read is not None:
            read.release()
        raise


def _slices(taken: Sequence[FetchedPartition]) -> Iterator[Sequence[FetchedPartition]]:
    """Yield READ_AT_ONCE partitions at a time; one empty slice if there are none."""
    yield taken[:READ_AT_ONCE]
    for start in range(READ_AT_ONCE, len(taken), READ_AT_ONCE):
        yield taken[start : start + READ_AT_ONCE]


def _with_refused(
    requested_partitions: Sequence[FetchedPartition],
    responses: Iterable[PartitionRead],
    refused: dict[object, PartitionRead],
) -> Reads:
    """Return a response for each partition, in their order; `responses`: of those that are not refused."""
    results = iter(responses)
    return [(requested, refused.get(requested.key) or next(results)) for requested in requested_partitions]


async def _wait_for_data(watch: FollowerWatch, min_bytes: int, max_wait_ms: int) -> None:
    """Return once a session has min_bytes of new data, or after max_wait_ms."""
    future, on_done = completion()
    if not watch.wait(min_bytes, on_done):
        return
    # Not asyncio.timeout, which needs a task: handlers have none.
    timer = asyncio.get_running_loop().call_later(max_wait_ms / 1000, watch.expire, on_done)
    try:
        await future
    finally:
        timer.cancel()
        watch.end_wait()


def _follower_refusal(
    services: Services,
    requested: FetchedPartition,
    partition: "HostedPartition | None",
    follower: Follower,
    *,
    uses_topic_ids: bool,
) -> int:
    """Return the error code of a partition that a follower may not fetch here, 0 if it may.

    An unassigned replica may have been assigned by newer metadata: its error code makes the follower retry.
    """
    if partition is None:
        partitions = services.replica_manager.partitions
        image = partitions.newest_image.topics.by_id.get(requested.topic_id) if uses_topic_ids else None
        if uses_topic_ids and image is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return partitions.missing_code(
            image.name if image is not None else requested.topic, requested.request.partition
        )
    current_leader_epoch = requested.request.current_leader_epoch
    code = partition.check_leader(current_leader_epoch)
    if code or follower.replica_id in partition.followers:
        return code
    names_epoch = current_leader_epoch != NO_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH if names_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _find(services: Services, requested: FetchedPartition, *, uses_topic_ids: bool) -> "HostedPartition | None":
    partitions = services.replica_manager.partitions
    if uses_topic_ids:
        return partitions.find_by_id(requested.topic_id, requested.request.partition)
    return partitions.find(requested.topic, requested.request.partition)
