"""A Fetch request as its session sees it, and the response made of what was read."""

from typing import Final, TypeAlias

from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.handlers.data_plane import STORAGE_ERROR_SINCE, Leaders
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.fetch_request import FetchRequest
from kafkapy.protocol.messages.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from kafkapy.replication.fetch_session import FetchContext, FetchedPartition, PartitionKey
from kafkapy.replication.partition_read import PartitionRead
from kafkapy.types import ZERO_UUID

TOPIC_IDS_SINCE: Final = 13
LEADERS_SINCE: Final = 16
KAFKA_STORAGE_ERROR: Final = int(ErrorCode.KAFKA_STORAGE_ERROR)
NOT_LEADER_OR_FOLLOWER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
CODES_WITH_LEADER: Final = frozenset((NOT_LEADER_OR_FOLLOWER, int(ErrorCode.FENCED_LEADER_EPOCH)))
CODES_OF_NO_SESSION: Final = frozenset(
    map(
        int,
        (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.INCONSISTENT_TOPIC_ID,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ),
    )
)
"""The errors of partitions that are unknown or denied."""
FEW_REFUSED: Final = 10
"""So many of them may stay in a consumer's session: of a topic that was deleted, or is not known here yet."""

MADE_AT_ONCE: Final = 50
"""Partitions of a wide response that are added before it may give way."""

Reads: TypeAlias = list[tuple[FetchedPartition, PartitionRead]]

# Shared by all responses that have the default. They may be replaced, but never modified.
NO_DIVERGING_EPOCH: Final = EpochEndOffset()
NO_CURRENT_LEADER: Final = LeaderIdAndEpoch()
NO_SNAPSHOT: Final = SnapshotId()


def requested_partitions_of(request: FetchRequest) -> list[FetchedPartition]:
    """Return the partitions that a request names."""
    return [
        FetchedPartition(topic.topic, topic.topic_id, partition)
        for topic in request.topics
        for partition in topic.partitions
    ]


def forgotten_of(request: FetchRequest) -> list[PartitionKey]:
    """Return the partitions that a request removes from its session."""
    return [
        (topic.topic_id if topic.topic_id != ZERO_UUID else topic.topic, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]


def respond(services: Services, context: RequestContext, fetch: FetchContext, reads: Reads) -> FetchResponse:
    """Return the response with what the session does not omit, in order and grouped by topic."""
    error_code, session_id, sent = fetch.finish(reads, services.clock.monotonic_ms())
    if error_code and not sent:
        _release(reads)
    topics: list[FetchableTopicResponse] = []
    codes = _add_topics(topics, sent, context.api_version)
    response = FetchResponse(0, error_code=error_code, session_id=session_id, responses=topics)
    return _complete(services, context, response, codes) if codes else response


async def respond_wide(services: Services, context: RequestContext, fetch: FetchContext, reads: Reads) -> FetchResponse:
    """Return the response, as `respond` does, made in turns."""
    error_code, session_id, sent = fetch.finish(reads, services.clock.monotonic_ms())
    if error_code and not sent:
        _release(reads)
    topics: list[FetchableTopicResponse] = []
    codes: list[int] = []
    way = walk(services, context)
    try:
        for start in range(0, len(sent), MADE_AT_ONCE):
            codes += _add_topics(topics, sent[start : start + MADE_AT_ONCE], context.api_version)
            if way.is_over(MADE_AT_ONCE):
                await way.give_way()
    except BaseException:
        _release(reads)
        raise
    return _complete(
        services, context, FetchResponse(0, error_code=error_code, session_id=session_id, responses=topics), codes
    )


def _add_topics(topics: list[FetchableTopicResponse], sent: Reads, version: int) -> list[int]:
    """Add partitions to a response, to its last topic if they are of it; return their error codes."""
    last = topics[-1] if topics else None
    codes: list[int] = []
    for requested, read in sent:
        if read.error_code:
            if read.error_code == KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_SINCE:
                read.error_code = NOT_LEADER_OR_FOLLOWER
            codes.append(read.error_code)
        if last is None or last.topic_id != requested.topic_id or last.topic != requested.topic:
            last = FetchableTopicResponse(requested.topic, topic_id=requested.topic_id)
            topics.append(last)
        last.partitions.append(_partition_data(requested.request.partition, read))
    return codes


def _complete(services: Services, context: RequestContext, response: FetchResponse, codes: list[int]) -> FetchResponse:
    """Complete a response whose partitions have these error codes."""
    if len(codes) > FEW_REFUSED and sum(code in CODES_OF_NO_SESSION for code in codes) > FEW_REFUSED:
        response.session_id = services.fetch_sessions.end_consumer_session(response.session_id)
    if context.api_version >= LEADERS_SINCE and not CODES_WITH_LEADER.isdisjoint(codes):
        _name_leaders(services, context, response)
    return response


def respond_throttled(fetch: FetchContext, reads: Reads, throttle_time_ms: int) -> FetchResponse:
    """Return a response without partitions: the client fetches them again after the throttle time."""
    _release(reads)
    error_code, session_id = fetch.finish_throttled()
    return FetchResponse(throttle_time_ms=throttle_time_ms, error_code=error_code, session_id=session_id)


def _release(reads: Reads) -> None:
    for _, read in reads:
        read.release()


def _partition_data(partition_id: int, read: PartitionRead) -> PartitionData:
    aborted, diverging = read.aborted, read.diverging
    return PartitionData(
        partition_id,
        error_code=read.error_code,
        high_watermark=read.high_watermark,
        last_stable_offset=read.last_stable_offset,
        log_start_offset=read.log_start_offset,
        diverging_epoch=NO_DIVERGING_EPOCH
        if diverging is None
        else EpochEndOffset(epoch=diverging.leader_epoch, end_offset=diverging.offset),
        current_leader=NO_CURRENT_LEADER,
        snapshot_id=NO_SNAPSHOT,
        aborted_transactions=None
        if aborted is None
        else [AbortedTransaction(producer_id=producer_id, first_offset=offset) for offset, producer_id in aborted],
        preferred_read_replica=read.preferred_read_replica,
        records=read.records,
    )


def _name_leaders(services: Services, context: RequestContext, response: FetchResponse) -> None:
    leaders = Leaders(services, context)
    for topic in response.responses:
        image = services.metadata.image.topics.by_id.get(topic.topic_id)
        if image is None:
            continue
        for part in topic.partitions:
            if part.error_code in CODES_WITH_LEADER:
                leader_id, epoch = leaders.leader_of(image.name, part.partition_index)
                part.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch)
    response.node_endpoints = [
        NodeEndpoint(node_id, host=host, port=port, rack=rack) for node_id, host, port, rack in leaders.endpoints()
    ]
