"""DescribeTopicPartitions 0: topics with their partitions, a page at a time, with eligible leader replicas (KIP-966).

Topics are returned in order of name, with at most response.partition.limit and max.request.partition.size.limit
partitions in total; `next_cursor` is where the next page starts. An empty list of topics means all. The cursor's topic
must be among the requested ones.
"""

from collections.abc import AsyncIterable, Iterable
from heapq import merge
from typing import Final

from kafkapy.errors import ApiError
from kafkapy.handlers.cluster_view import ClusterView, is_internal, missing_topic_error
from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.handlers.data_plane import TopicAccess
from kafkapy.handlers.stale_metadata import check_metadata_current
from kafkapy.metadata.image import MetadataImage, TopicImage
from kafkapy.metadata.registrations import PartitionRegistration
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from kafkapy.protocol.messages.describe_topic_partitions_response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kafkapy.runtime.turns import Walk
from kafkapy.security.authorizer import AclOperation, ResourceType, authorized_operations

SORTED_AT_ONCE: Final = 500


async def handle(
    services: Services, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    check_metadata_current(services)
    image = services.metadata.image
    way = walk(services, context)
    try:
        names = await _names(way, image, request)
    except ApiError as error:
        return await _failed(way, request, ErrorCode(error.code))
    access = TopicAccess(services, context, AclOperation.DESCRIBE)
    allowed: list[str] = []
    denied: list[str] = []
    async for name in way.over(names):
        (allowed if access.allows(name) else denied).append(name)
    limit = max(1, min(services.config.node.max_request_partition_size_limit, request.response_partition_limit))
    view = ClusterView(image.cluster, context.listener_name)
    response = await _page(image, view, request, way.over(allowed), limit)
    async for topic in way.over(response.topics):
        topic.topic_authorized_operations = authorized_operations(
            services.authorizer, context, ResourceType.TOPIC, topic.name or ""
        )
    if request.topics:
        response.topics += [_denied(name) async for name in way.over(denied)]
    return response


async def _names(way: Walk, image: MetadataImage, request: DescribeTopicPartitionsRequest) -> list[str]:
    """Return the topic names from the cursor's on. Raises ApiError INVALID_REQUEST for an invalid cursor."""
    requested: Iterable[str] = (topic.name for topic in request.topics) if request.topics else image.topics.by_name
    cursor = request.cursor
    if cursor is None:
        return await _in_order(way, requested)
    names = await _in_order(way, requested, first=cursor.topic_name)
    if request.topics and names[:1] != [cursor.topic_name]:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "DescribeTopicPartitionsRequest topic list should contain the cursor topic: " + cursor.topic_name,
        )
    if cursor.partition_index < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, "DescribeTopicPartitionsRequest cursor partition must be valid")
    return names


async def _in_order(way: Walk, names: Iterable[str], first: str = "") -> list[str]:
    """Return the names from `first` on, each once, sorted in turns: some at a time, then merged."""
    sorted_parts: list[list[str]] = [[]]
    async for name in way.over(names):
        if name < first:
            continue
        sorted_parts[-1].append(name)
        if len(sorted_parts[-1]) == SORTED_AT_ONCE:
            sorted_parts[-1].sort()
            sorted_parts.append([])
    sorted_parts[-1].sort()
    found: list[str] = []
    async for name in way.over(merge(*sorted_parts)):
        if not found or found[-1] != name:
            found.append(name)
    return found


async def _page(
    image: MetadataImage,
    view: ClusterView,
    request: DescribeTopicPartitionsRequest,
    names: AsyncIterable[str],
    limit: int,
) -> DescribeTopicPartitionsResponse:
    response = DescribeTopicPartitionsResponse()
    remaining = limit
    async for name in names:
        if remaining == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.by_name.get(name)
        if topic is None:
            if request.topics:
                response.topics.append(_topic_error(name, missing_topic_error(name)))
            continue
        cursor = request.cursor
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        described = _topic(view, topic, range(first, min(first + remaining, len(topic.partitions))))
        response.topics.append(described)
        if first + remaining < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=first + remaining)
            break
        remaining -= len(described.partitions)
    return response


def _topic(view: ClusterView, topic: TopicImage, partition_ids: range) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=[_partition(view, index, topic.partitions[index]) for index in partition_ids],
    )


def _partition(
    view: ClusterView, partition_id: int, partition: PartitionRegistration
) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE,
        partition_index=partition_id,
        leader_id=view.leader_id(partition),
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=view.offline_replicas(partition),
    )


def _topic_error(name: str, error: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=error, name=name, is_internal=is_internal(name))


def _denied(name: str) -> DescribeTopicPartitionsResponseTopic:
    """Return the error of a topic that the client may not describe, without whether it is internal."""
    return DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)


async def _failed(
    way: Walk, request: DescribeTopicPartitionsRequest, error: ErrorCode
) -> DescribeTopicPartitionsResponse:
    """Return the error on each requested topic: the response has no top-level error code."""
    topics = [_topic_error(topic.name, error) async for topic in way.over(request.topics)]
    return DescribeTopicPartitionsResponse(topics=topics)
