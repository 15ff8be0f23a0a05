"""Reading for a Fetch, of a consumer or a follower: read, wait for more if that is not enough, read again."""

from collections.abc import Callable
from typing import Final

from kafkapy.errors import ProtocolError
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.handlers.data.fetch_counts import count_reads
from kafkapy.handlers.data_plane import completion, warm
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.messages.fetch_request import FetchRequest
from kafkapy.replication.fetch_read import FetchRead
from kafkapy.replication.fetch_session import FetchedPartition
from kafkapy.replication.follower_state import SessionTimes
from kafkapy.replication.hosted_partitions import HostedPartition
from kafkapy.replication.partition_read import PartitionRead, failed_read
from kafkapy.storage.log.reader import FetchIsolation

RACK_SINCE: Final = 11
"""The first Fetch version whose consumers may read from followers (KIP-392)."""

Readable = tuple[FetchedPartition, HostedPartition]


class Follower(NamedTuple):
    """The broker that sent a follower's fetch; its broker epoch is -1 if the version does not have it."""

    replica_id: int
    broker_epoch: int


class Limits(NamedTuple):
    """The limits and the isolation of a fetch, and its follower, if it is one's."""

    isolation: FetchIsolation
    max_bytes: int
    follower: Follower | None = None
    session: SessionTimes | None = None
    reads_followers: bool = False


async def read_or_wait(
    services: Services,
    context: RequestContext,
    request: FetchRequest,
    readable: list[Readable],
    *,
    must_respond: bool,
    follower: Follower | None = None,
) -> FetchRead:
    """Read; if that gives less than min_bytes and there is nothing else to answer, wait and read again.

    A consumer's wait ends early when the connection's next request has come (Router.route).
    """
    limits = limits_of(services, context, request, follower)
    min_bytes = min(request.min_bytes, limits.max_bytes)
    reads_followers = limits.reads_followers
    read = await read_partitions(services, readable, limits, notes_progress=True)
    is_enough = read.bytes_read >= min_bytes or read.must_respond or must_respond
    if is_enough or request.max_wait_ms <= 0 or not readable:
        return read
    read.release()  # pinned regions would keep the files of deleted segments for as long as this waits
    future, on_done = completion()
    waiting = services.replica_manager.wait_for_data(
        readable,
        isolation=limits.isolation,
        min_bytes=min_bytes,
        max_wait_ms=request.max_wait_ms,
        on_done=on_done,
        reads_followers=reads_followers,
        is_held_back=held_back(services, follower),
    )
    connection = context.connection
    if follower is None and not waiting.is_completed and connection.parked_fetch is None:
        connection.parked_fetch = waiting
    try:
        await future
    finally:
        waiting.abandon()
        if connection.parked_fetch is waiting:
            connection.parked_fetch = None
    return await read_partitions(services, readable, limits, notes_progress=False)


def limits_of(
    services: Services, context: RequestContext, request: FetchRequest, follower: Follower | None = None
) -> Limits:
    """Return how to read for a request. Raises ProtocolError."""
    max_bytes = min(request.max_bytes, services.config.node.fetch_max_bytes)
    isolation = FetchIsolation.LOG_END if follower is not None else _isolation(request)
    reads_followers = follower is None and context.api_version >= RACK_SINCE
    return Limits(isolation, max_bytes, follower, reads_followers=reads_followers)


async def read_partitions(
    services: Services,
    readable: list[Readable],
    limits: Limits,
    *,
    notes_progress: bool,
    read: FetchRead | None = None,
) -> FetchRead:
    """Read all partitions; a worker reads cold pages first. Releases what was read if it fails.

    notes_progress: record the follower's fetch offsets. Done once per fetch, on arrival and not after it has waited.
    read: to be continued with these partitions.
    """
    if read is None:
        read = FetchRead(
            readable,
            isolation=limits.isolation,
            max_bytes=limits.max_bytes,
            reads_followers=limits.reads_followers,
            is_held_back=held_back(services, limits.follower),
        )
    else:
        read.add(readable)
    first = len(read.results)
    follower = limits.follower if notes_progress else None
    # while pages are warmed, the log may grow and the leader may change: progress counts against what was there before
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
        count_reads(readable, read.results[first:])
    if follower is not None and _record_progress(services, limits, readable, read.results, before, first):
        read.must_respond = True
    return read


def _end_offset(partition: HostedPartition) -> int:
    return partition.log.log_end_offset if partition.log is not None else 0


def _record_progress(
    services: Services,
    limits: Limits,
    readable: list[Readable],
    responses: list[PartitionRead],
    before: list[tuple[int, int]],
    first: int,
) -> bool:
    """Record a follower's fetch offsets for partitions where its log has not diverged; return whether any was refused.

    first: where the partitions' responses begin. before: log end offset and follow_count of each before the read. If
    this broker has become a follower of the partition since (while pages were warmed), its records may now differ from
    the follower's: skip it.
    A fetch with a stale broker epoch is refused: its response in `responses` is replaced by the error.
    """
    follower, is_refused = limits.follower, False
    assert follower is not None
    for index, ((requested, partition), (end_offset, follow_count)) in enumerate(
        zip(readable, before, strict=True), start=first
    ):
        response = responses[index]
        # above the point where its log diverges it has other records: its fetch offset says nothing of ours
        if response.error_code or response.diverging is not None or partition.follow_count != follow_count:
            continue
        code = services.replica_manager.record_follower_fetch(
            partition,
            follower.replica_id,
            fetch_offset=requested.request.fetch_offset,
            log_start_offset=requested.request.log_start_offset,
            leader_end_offset=end_offset,
            broker_epoch=follower.broker_epoch,
            session=limits.session,
        )
        if code:
            response.release()
            responses[index] = failed_read(code)
            is_refused = True
    return is_refused


def _isolation(request: FetchRequest) -> FetchIsolation:
    if request.isolation_level == 0:
        return FetchIsolation.HIGH_WATERMARK
    if request.isolation_level == 1:
        return FetchIsolation.TXN_COMMITTED
    raise ProtocolError(f"isolation level {request.isolation_level} does not exist")


def held_back(services: Services, follower: Follower | None) -> Callable[[HostedPartition], bool] | None:
    """Return a predicate: is the partition withheld from the follower by the throttle now? None without throttle."""
    throttle = services.replica_manager.watches.throttle
    return None if throttle is None or follower is None else throttle.holding_back(follower.replica_id)
