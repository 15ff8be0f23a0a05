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

follower_fetch.py has what differs for followers, fetch_reading.py what both share; fetch_wire.py makes the response.
wide_fetch.py does the same for a consumer with many partitions, in turns.

Deviation: Apache Kafka waits for other partitions if one is unknown or forbidden. Here every error is answered at once,
because the client has to act on it. Deviation: Apache Kafka gives a privileged session, which may evict those of
consumers, to any client that sends a replica id. Here only if it also has CLUSTER_ACTION, because clients could evict
each other. Deviation: Apache Kafka lets the next request of a connection wait until a parked Fetch is answered, up to
fetch.max.wait.ms. Here the next request ends that wait, because a consumer that asks for an offset (each task of a
Spark batch does at its end), or closes, would wait for nothing. Another Fetch of an open session does not end it, and
no request ends the wait of a Fetch of more than WIDE partitions. Deviation: Apache Kafka fills the bytes that a client
asks for with the beginning of a further batch. Here a response ends with a whole batch, because consumers drop that
beginning, and fetch it again.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from kafkapy.handlers.context import RequestContext, Services
from kafkapy.handlers.data import wide_fetch
from kafkapy.handlers.data.fetch_counts import count_sent
from kafkapy.handlers.data.fetch_reading import RACK_SINCE, Follower, Readable, limits_of, read_or_wait
from kafkapy.handlers.data.fetch_wire import (
    TOPIC_IDS_SINCE,
    Reads,
    forgotten_of,
    requested_partitions_of,
    respond,
    respond_throttled,
    respond_wide,
)
from kafkapy.handlers.data.follower_fetch import fetch_for_follower
from kafkapy.handlers.data_plane import TopicAccess
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.fetch_request import FetchRequest
from kafkapy.protocol.messages.fetch_response import FetchResponse
from kafkapy.replication.fetch_session import FINAL_EPOCH, FetchContext, FetchedPartition
from kafkapy.replication.follower_watch import FollowerWatch
from kafkapy.replication.partition_read import PartitionRead, failed_read
from kafkapy.replication.replica_selector import RACK_AWARE, preferred_read_replica
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType

REPLICA_STATE_SINCE: Final = 15


async def handle(services: Services, context: RequestContext, request: FetchRequest) -> FetchResponse:
    version = context.api_version
    replica_id = request.replica_state.replica_id if version >= REPLICA_STATE_SINCE else request.replica_id
    names_replica = replica_id >= 0
    is_from_follower = names_replica and services.authorizer.authorize(
        context, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    )
    watches = services.replica_manager.watches
    if context.is_long:
        requested, forgotten = await wide_fetch.partitions_of(services, context, request)
    else:
        requested = requested_partitions_of(request)
        forgotten = forgotten_of(request) if request.forgotten_topics_data else []
    fetch = services.fetch_sessions.open(
        request.session_id,
        request.session_epoch,
        requested,
        forgotten,
        uses_topic_ids=version >= TOPIC_IDS_SINCE,
        now_ms=services.clock.monotonic_ms(),
        new_watch=partial(FollowerWatch, watches, replica_id) if is_from_follower else None,
    )
    if fetch.error_code:
        return FetchResponse(error_code=fetch.error_code)
    if request.session_id and request.session_epoch == FINAL_EPOCH:
        context.connection.end_parked_fetch()
    meter = context.meter
    is_wide = len(fetch.partitions) > wide_fetch.WIDE and not is_from_follower
    if names_replica:
        context.connection.is_replica = True
    if is_from_follower:
        if meter is not None:
            meter.exempt()
        broker_epoch = request.replica_state.replica_epoch if version >= REPLICA_STATE_SINCE else -1
        responses = await fetch_for_follower(services, context, request, fetch, Follower(replica_id, broker_epoch))
    elif names_replica:  # without CLUSTER_ACTION it gets nothing: replicas read beyond the high watermark
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        responses = await wide_fetch.refuse_all(services, context, fetch.partitions, code)
    else:
        if meter is not None:
            request.max_bytes = meter.max_fetch_bytes(request.max_bytes)
        if is_wide:
            responses = await _fetch_wide(services, context, request, fetch)
        else:
            responses = await _fetch(services, context, request, fetch)
        if meter is not None and (throttled_ms := meter.throttle_fetch(responses)) > 0:
            return respond_throttled(fetch, responses, throttled_ms)
    if is_wide:
        return await respond_wide(services, context, fetch, responses)
    return respond(services, context, fetch, responses)


async def _fetch(services: Services, context: RequestContext, request: FetchRequest, fetch: FetchContext) -> Reads:
    """Return a response for each requested partition, in their order."""
    refused: dict[object, PartitionRead] = {}
    access = _access_to(services, context, fetch.partitions)
    readable = _sort_out(services, context, request, fetch.partitions, access, refused)
    read = await read_or_wait(services, context, request, readable, must_respond=bool(refused))
    if services.replica_manager.traffic is not None:
        count_sent(readable, read.results)
    results = iter(read.results)
    if not refused:
        return list(zip(fetch.partitions, results, strict=True))
    return [(requested, refused.get(requested.key) or next(results)) for requested in fetch.partitions]


async def _fetch_wide(services: Services, context: RequestContext, request: FetchRequest, fetch: FetchContext) -> Reads:
    """Do as `_fetch` does, in turns."""

    def sort_out(
        some: Sequence[FetchedPartition], access: TopicAccess, refused: dict[object, PartitionRead]
    ) -> list[Readable]:
        return _sort_out(services, context, request, some, access, refused)

    return await wide_fetch.fetch(
        services,
        context,
        request,
        fetch.partitions,
        access=_access_to(services, context, fetch.partitions),
        sort_out=sort_out,
        limits=limits_of(services, context, request),
    )


def _access_to(
    services: Services, context: RequestContext, requested_partitions: Sequence[FetchedPartition]
) -> TopicAccess:
    uses_topic_ids = context.api_version >= TOPIC_IDS_SINCE
    names = _topic_names(services, requested_partitions, uses_topic_ids=uses_topic_ids)
    return TopicAccess(services, context, AclOperation.READ, names)


def _sort_out(
    services: Services,
    context: RequestContext,
    request: FetchRequest,
    requested_partitions: Sequence[FetchedPartition],
    access: TopicAccess,
    refused: dict[object, PartitionRead],
) -> list[Readable]:
    """Return the partitions that can be read; add, by key, the error responses of the others to `refused`."""
    partitions = services.replica_manager.partitions
    uses_topic_ids = context.api_version >= TOPIC_IDS_SINCE
    readable: list[Readable] = []
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
    if readable and context.api_version >= RACK_SINCE and request.rack_id:
        return _send_near(services, context, request.rack_id, readable, refused)
    return readable


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
        # a fetch with another leader epoch than this gets its error here, and is not sent on to a follower (KIP-392)
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
        refused[requested.key] = response = failed_read(0)
        response.high_watermark, response.last_stable_offset = log.high_watermark, log.last_stable_offset
        response.log_start_offset, response.preferred_read_replica = log.log_start_offset, replica_id
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
