"""Fetch 4-18: read whole batches, starting with the batch that contains the fetch offset, or wait for data.

Waits until fetch.min.bytes are available, at most fetch.max.wait.ms, and answers at once if a partition has an error.
At least one batch is returned if there is any, however large (KIP-74). Records are sent as regions of their files.
Partitions are read in the order of the request.

v7  incremental sessions (KIP-227), v9 leader epochs fence (KIP-320), v10 zstd (KIP-110; older versions get it, too, as
from Apache Kafka 4), v11 followers serve consumers up to their high watermark, and the leader names a replica in the
consumer's rack, if replica.selector.class is Kafka's RackAwareReplicaSelector (KIP-392), v12 diverging epochs, v13
topic ids, v15 replica state, v16 the leader's endpoint (KIP-951), v17 and v18 are for replicas of the metadata log.

A fetch with a replica id is a follower's. It needs CLUSTER_ACTION (CVE-2018-1288) and no right to the topics. It reads
up to the log end offset, and acknowledges all records below its fetch offsets. A replica that is not assigned is
refused.

A fetch offset between high watermark and log end offset gets an empty response, from leaders and followers:
OFFSET_NOT_AVAILABLE is only used by ListOffsets (KIP-207), as in Apache Kafka 4.3.1.

A consumer above its consumer_byte_rate or request_percentage gets an empty response with throttle_time_ms, and its
connection is muted for that time (KIP-219); its session is unchanged. Followers are exempt from both quotas.

Deviation: Apache Kafka waits for other partitions if one is unknown or forbidden; here every error is answered at once.
Deviation: Apache Kafka gives a privileged session, which may evict those of consumers, to any client that sends a
replica id; here only if it also has CLUSTER_ACTION.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from kafkapy.errors import ProtocolError
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.handlers.data_plane import TopicAccess, completion, sent_bytes, warm
from kafkapy.handlers.fetch_counts import count_reads, count_sent, count_sent_to_follower
from kafkapy.handlers.fetch_wire import (
    TOPIC_IDS_SINCE,
    Reads,
    forgotten_of,
    requested_partitions_of,
    respond,
    respond_throttled,
)
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.fetch_request import FetchRequest
from kafkapy.protocol.messages.fetch_response import FetchResponse
from kafkapy.replication.fetch_read import FetchRead
from kafkapy.replication.fetch_session import FetchContext, FetchedPartition
from kafkapy.replication.follower_state import SessionTimes
from kafkapy.replication.follower_watch import FollowerWatch
from kafkapy.replication.hosted_partitions import HostedPartition
from kafkapy.replication.partition_read import PartitionRead, failed_read
from kafkapy.replication.replica_selector import RACK_AWARE, preferred_read_replica
from kafkapy.runtime.turns import Turn
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType
from kafkapy.storage.log.reader import FetchIsolation

RACK_SINCE: Final = 11
REPLICA_STATE_SINCE: Final = 15
NO_LEADER_EPOCH: Final = -1
READ_PER_TURN: Final = 240
"""Partitions of a follower's fetch after which it gives way at the latest: mostly it does so sooner, after TURN_MS."""

Readable = tuple[FetchedPartition, HostedPartition]


class _Follower(NamedTuple):
    """The broker that sent a follower's fetch; its broker epoch is -1 if the version does not have it."""

    replica_id: int
    broker_epoch: int


class _Limits(NamedTuple):
    """How to read for a fetch, and for which follower, if any."""

    isolation: FetchIsolation
    max_bytes: int
    follower: _Follower | None = None
    session: SessionTimes | None = None
    reads_followers: bool = False


async def handle(services: Services, context: RequestContext, request: FetchRequest) -> FetchResponse:
    version = context.api_version
    replica_id = request.replica_state.replica_id if version >= REPLICA_STATE_SINCE else request.replica_id
    names_replica = replica_id >= 0
    is_from_follower = names_replica and services.authorizer.authorize(
        context, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    )
    watches = services.replica_manager.watches
    fetch = services.fetch_sessions.open(
        request.session_id,
        request.session_epoch,
        requested_partitions_of(request),
        forgotten_of(request) if request.forgotten_topics_data else [],
        uses_topic_ids=version >= TOPIC_IDS_SINCE,
        now_ms=services.clock.monotonic_ms(),
        new_watch=partial(FollowerWatch, watches, replica_id) if is_from_follower else None,
    )
    if fetch.error_code:
        return FetchResponse(error_code=fetch.error_code)
    meter = context.meter
    if names_replica:
        context.connection.is_replica = True
    if is_from_follower:
        if meter is not None:
            meter.exempt()
        broker_epoch = request.replica_state.replica_epoch if version >= REPLICA_STATE_SINCE else -1
        answers = await _fetch_for(services, context, request, fetch, _Follower(replica_id, broker_epoch))
    elif names_replica:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        answers = [(requested, failed_read(code)) for requested in fetch.partitions]
    else:
        if meter is not None:
            request.max_bytes = meter.most_fetched(request.max_bytes)
        answers = await _fetch(services, context, request, fetch)
        if meter is not None and (throttled_ms := meter.throttle_fetch(answers)) > 0:
            return respond_throttled(fetch, answers, throttled_ms)
    return respond(services, context, fetch, answers)


async def _fetch(services: Services, context: RequestContext, request: FetchRequest, fetch: FetchContext) -> Reads:
    """Return an answer for each requested partition, in their order."""
    readable, refused = _sort_out(services, context, fetch.partitions)
    if context.api_version >= RACK_SINCE and request.rack_id:
        readable = _send_near(services, context, request.rack_id, readable, refused)
    read = await _read_or_wait(services, context, request, readable, must_answer=bool(refused))
    if services.replica_manager.traffic is not None:
        count_sent(readable, read.answers)
    read_answers = iter(read.answers)
    if not refused:
        return list(zip(fetch.partitions, read_answers, strict=True))
    return [(requested, refused.get(requested.key) or next(read_answers)) for requested in fetch.partitions]


def _sort_out(
    services: Services, context: RequestContext, requested_partitions: Sequence[FetchedPartition]
) -> tuple[list[Readable], dict[object, PartitionRead]]:
    """Return the partitions that can be read, and, by key, the error answers of the others."""
    partitions = services.replica_manager.partitions
    uses_topic_ids = context.api_version >= TOPIC_IDS_SINCE
    names = _topic_names(services, requested_partitions, uses_topic_ids=uses_topic_ids)
    access = TopicAccess(services, context, AclOperation.READ, names)
    readable: list[Readable] = []
    refused: dict[object, PartitionRead] = {}
    for requested in requested_partitions:
        if uses_topic_ids:
            partition = partitions.find_by_id(requested.topic_id, requested.request.partition)
        else:
            partition = partitions.find(requested.topic, requested.request.partition)
        if partition is not None and access.allows(topic := partition.topic_partition.topic):
            requested.known_topic = topic
            readable.append((requested, partition))
            continue
        code = _refusal(services, access, requested, uses_topic_ids=uses_topic_ids)
        refused[requested.key] = failed_read(code)
    return readable, refused


def _send_near(
    services: Services,
    context: RequestContext,
    rack: str,
    readable: list[Readable],
    refused: dict[object, PartitionRead],
) -> list[Readable]:
    """Redirect partitions that have a replica in the consumer's rack (answers in `refused`); return the others."""
    if services.config.replication.replica_selector_class != RACK_AWARE:
        return readable
    brokers = services.replica_manager.partitions.newest_image.cluster.brokers
    others = []
    for requested, partition in readable:
        request, log = requested.request, partition.log
        replica_id = None
        if log is not None and partition.check_leader(request.current_leader_epoch) == 0:
            replica_id = preferred_read_replica(
                partition,
                brokers,
                rack=rack,
                listener_name=context.listener_name,
                fetch_offset=request.fetch_offset,
            )
        if log is None or replica_id is None:
            others.append((requested, partition))
            continue
        refused[requested.key] = answer = failed_read(0)
        answer.high_watermark, answer.last_stable_offset = log.high_watermark, log.last_stable_offset
        answer.log_start_offset, answer.preferred_read_replica = log.log_start_offset, replica_id
    return others


def _topic_names(
    services: Services, requested_partitions: Sequence[FetchedPartition], *, uses_topic_ids: bool
) -> Iterator[str]:
    """Yield the topic of each requested partition, except for ids that are unknown to the metadata and the session."""
    by_id = services.replica_manager.partitions.newest_image.topics.by_id
    for requested in requested_partitions:
        image = by_id.get(requested.topic_id) if uses_topic_ids else None
        if image is not None:
            yield image.name
        elif not uses_topic_ids:
            yield requested.topic
        elif requested.known_topic is not None:
            yield requested.known_topic


def _refusal(services: Services, access: TopicAccess, requested: FetchedPartition, *, uses_topic_ids: bool) -> int:
    """Return the error code of a partition that is not hosted here, or that the client may not read.

    A session remembers the name of a topic id. If that topic was deleted and another one has its name, the code is
    INCONSISTENT_TOPIC_ID.
    """
    partitions = services.replica_manager.partitions
    topics = partitions.newest_image.topics
    image = topics.by_id.get(requested.topic_id)
    if image is not None:
        requested.known_topic = image.name
    topic = requested.known_topic if uses_topic_ids else requested.topic
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not access.allows(topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if uses_topic_ids and image is None and topics.partition(topic, requested.request.partition) is not None:
        return ErrorCode.INCONSISTENT_TOPIC_ID
    return partitions.missing_code(topic, requested.request.partition)


async def _fetch_for(
    services: Services, context: RequestContext, request: FetchRequest, fetch: FetchContext, follower: _Follower
) -> Reads:
    """Return an answer for each partition that a follower requests, in their order."""
    watch = fetch.watch
    if watch is not None:
        assert isinstance(watch, FollowerWatch), "followers' sessions are made with one"
        answers = await _fetch_watched(services, context, request, _Watched(follower, watch), fetch.partitions)
    else:
        readable, refused = _sort_out_for(services, context, fetch.partitions, follower, None)
        read = await _read_or_wait(services, context, request, readable, must_answer=bool(refused), follower=follower)
        answers = _with_refused(fetch.partitions, read, refused)
    if services.replica_manager.watches.throttle is not None:
        _count_throttled(services, context, answers)
    if services.replica_manager.traffic is not None:
        count_sent_to_follower(services.replica_manager, answers, follower.replica_id)
    return answers


def _count_throttled(services: Services, context: RequestContext, answers: Reads) -> None:
    """Count the bytes sent to a follower of partitions in leader.replication.throttled.replicas."""
    throttle = services.replica_manager.watches.throttle
    assert throttle is not None, "the caller has checked that there is a throttle"
    for requested, answer in answers:
        partition = _find(services, requested, uses_topic_ids=context.api_version >= TOPIC_IDS_SINCE)
        if partition is not None and throttle.covers(partition):
            throttle.record(sent_bytes(answer))


def _held_back(services: Services, follower: _Follower | None) -> Callable[[HostedPartition], bool] | None:
    """Return a predicate: is the partition withheld from the follower by the throttle now? None without throttle."""
    throttle = services.replica_manager.watches.throttle
    return None if throttle is None or follower is None else throttle.holding_back(follower.replica_id)


def _sort_out_for(
    services: Services,
    context: RequestContext,
    requested_partitions: Sequence[FetchedPartition],
    follower: _Follower,
    watch: FollowerWatch | None,
) -> tuple[list[Readable], dict[object, PartitionRead]]:
    """Return the partitions that a follower can read, and, by key, the error answers of the others."""
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
    """A follower, and the watch of its session for partitions with news."""

    follower: _Follower
    watch: FollowerWatch


async def _fetch_watched(
    services: Services,
    context: RequestContext,
    request: FetchRequest,
    by: _Watched,
    taken: Sequence[FetchedPartition],
) -> Reads:
    """Return the answers of the partitions with news; if there is not enough, wait for more first."""
    max_bytes = min(request.max_bytes, services.config.node.fetch_max_bytes)
    min_bytes = min(request.min_bytes, max_bytes)
    limits = _Limits(FetchIsolation.LOG_END, max_bytes, by.follower, by.watch.times)
    read, answers = await _read_news(services, context, by, limits, taken, notes_progress=True)
    by.watch.times.last_fetch_ms = services.clock.monotonic_ms()
    if read.must_answer or read.bytes_read >= min_bytes or request.max_wait_ms <= 0:
        return answers
    read.release()
    by.watch.settle(answers)
    await _wait_for_news(by.watch, min_bytes, request.max_wait_ms)
    _, answers = await _read_news(services, context, by, limits, by.watch.take(), notes_progress=False)
    return answers


async def _read_news(
    services: Services,
    context: RequestContext,
    by: _Watched,
    limits: _Limits,
    taken: Sequence[FetchedPartition],
    *,
    notes_progress: bool,
) -> tuple[FetchRead, Reads]:
    """Read `taken`, then the other partitions with news until the response is full; return all answers.

    Gives way to other requests after each turn: there may be 100,000 partitions.
    """
    read: FetchRead | None = None
    answers: Reads = []
    turn = Turn(services.clock, READ_PER_TURN)
    left = by.watch.unread_count
    try:
        while True:
            readable, refused = _sort_out_for(services, context, taken, by.follower, by.watch)
            first = 0 if read is None else len(read.answers)
            read = await _read(services, readable, limits, notes_progress=notes_progress, read=read)
            read_answers = iter(read.answers[first:])
            answers += [(each, refused.get(each.key) or next(read_answers)) for each in taken]
            read.must_answer |= bool(refused)
            if left <= 0 or read.is_full:
                return read, answers
            if turn.is_over(len(taken)):
                await services.turns.next()
                turn.begin()
            taken = by.watch.take(left)
            if not taken:  # the session has ended meanwhile
                return read, answers
            left -= len(taken)
    except BaseException:
        if read is not None:
            read.release()
        raise


def _with_refused(
    requested_partitions: Sequence[FetchedPartition], read: FetchRead, refused: dict[object, PartitionRead]
) -> Reads:
    """Return an answer for each partition, in their order."""
    read_answers = iter(read.answers)
    return [(requested, refused.get(requested.key) or next(read_answers)) for requested in requested_partitions]


async def _wait_for_news(watch: FollowerWatch, min_bytes: int, max_wait_ms: int) -> None:
    """Return once a session has min_bytes of news, or after max_wait_ms."""
    future, on_done = completion()
    if not watch.wait(min_bytes, on_done):
        return
    timer = asyncio.get_running_loop().call_later(
        max_wait_ms / 1000, watch.expire, on_done
    )  # asyncio.timeout needs a task: none here
    try:
        await future
    finally:
        timer.cancel()
        watch.end_wait()


def _follower_refusal(
    services: Services,
    requested: FetchedPartition,
    partition: "HostedPartition | None",
    follower: _Follower,
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


async def _read_or_wait(
    services: Services,
    context: RequestContext,
    request: FetchRequest,
    readable: list[Readable],
    *,
    must_answer: bool,
    follower: _Follower | None = None,
) -> FetchRead:
    """Read; if that gives less than min_bytes and there is nothing else to answer, wait and read again."""
    max_bytes = min(request.max_bytes, services.config.node.fetch_max_bytes)
    min_bytes = min(request.min_bytes, max_bytes)
    isolation = FetchIsolation.LOG_END if follower is not None else _isolation(request)
    reads_followers = follower is None and context.api_version >= RACK_SINCE
    limits = _Limits(isolation, max_bytes, follower, reads_followers=reads_followers)
    read = await _read(services, readable, limits, notes_progress=True)
    is_enough = read.bytes_read >= min_bytes or read.must_answer or must_answer
    if is_enough or request.max_wait_ms <= 0 or not readable:
        return read
    read.release()
    future, on_done = completion()
    waiting = services.replica_manager.wait_for_data(
        readable,
        isolation=limits.isolation,
        min_bytes=min_bytes,
        max_wait_ms=request.max_wait_ms,
        on_done=on_done,
        reads_followers=reads_followers,
        is_held_back=_held_back(services, follower),
    )
    try:
        await future
    finally:
        waiting.abandon()
    return await _read(services, readable, limits, notes_progress=False)


async def _read(
    services: Services,
    readable: list[Readable],
    limits: _Limits,
    *,
    notes_progress: bool,
    read: FetchRead | None = None,
) -> FetchRead:
    """Read all partitions; a worker reads cold pages first. Releases what was read if it fails.

    notes_progress: note the follower's fetch offsets. Done once per fetch, on arrival and not after it has waited.
    read: to be continued with these partitions.
    """
    if read is None:
        read = FetchRead(
            readable,
            isolation=limits.isolation,
            max_bytes=limits.max_bytes,
            reads_followers=limits.reads_followers,
            is_held_back=_held_back(services, limits.follower),
        )
    else:
        read.add(readable)
    first = len(read.answers)
    follower = limits.follower if notes_progress else None
    before = [] if follower is None else [(_end_offset(each), each.follow_count) for _, each in readable]
    try:
        while (cold := read.read()) is not None:
            try:
                await warm(services, cold)
            except OSError as error:
                read.fail_next(error)
    except BaseException:
        read.release()
        raise
    if services.replica_manager.traffic is not None:
        count_reads(readable, read.answers[first:])
    if follower is not None and _note_progress(services, limits, readable, read.answers, before, first):
        read.must_answer = True
    return read


def _end_offset(partition: HostedPartition) -> int:
    return partition.log.log_end_offset if partition.log is not None else 0


def _note_progress(
    services: Services,
    limits: _Limits,
    readable: list[Readable],
    answers: list[PartitionRead],
    before: list[tuple[int, int]],
    first: int,
) -> bool:
    """Note a follower's fetch offsets for partitions where its log has not diverged; return whether any was refused.

    first: where the partitions' answers begin. before: log end offset and follow_count of each before the read. If this
    broker has become a follower of the partition since (while pages were warmed), its records may now differ from the
    follower's: skip it.
    A fetch with a stale broker epoch is refused: its answer in `answers` is replaced by the error.
    """
    follower, is_refused = limits.follower, False
    assert follower is not None
    for index, ((requested, partition), (end_offset, follow_count)) in enumerate(
        zip(readable, before, strict=True), start=first
    ):
        answer = answers[index]
        if answer.error_code or answer.diverging is not None or partition.follow_count != follow_count:
            continue
        code = services.replica_manager.note_follower_fetch(
            partition,
            follower.replica_id,
            fetch_offset=requested.request.fetch_offset,
            log_start_offset=requested.request.log_start_offset,
            leader_end_offset=end_offset,
            broker_epoch=follower.broker_epoch,
            session=limits.session,
        )
        if code:
            answer.release()
            answers[index] = failed_read(code)
            is_refused = True
    return is_refused


def _isolation(request: FetchRequest) -> FetchIsolation:
    if request.isolation_level == 0:
        return FetchIsolation.HIGH_WATERMARK
    if request.isolation_level == 1:
        return FetchIsolation.TXN_COMMITTED
    raise ProtocolError(f"isolation level {request.isolation_level} does not exist")
