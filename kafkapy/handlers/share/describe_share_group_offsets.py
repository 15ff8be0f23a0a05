"""DescribeShareGroupOffsets 0-1: where the share partitions of groups begin; -1 before their first use. KIP-932.

v1: the lag, the number of records from there on that are not done yet (KIP-1226); -1 if it is not known.
The client needs DESCRIBE on the group and on each topic. Groups of other kinds, and groups that are not there, have no
offsets and no error, as in Kafka.
"""

from collections.abc import AsyncIterable, Collection, Mapping

from kafkapy.errors import ApiError
from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.handlers.data_plane import TopicAccess
from kafkapy.handlers.share.gate import has_share_groups
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from kafkapy.protocol.messages.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from kafkapy.runtime.coordinators.latest_offsets import LatestOffset
from kafkapy.security.authorizer import AclOperation, ResourceType
from kafkapy.share.persister import UNINITIALIZED_COUNT, UNINITIALIZED_OFFSET, StateSummary
from kafkapy.types import TopicPartition, Uuid

NO_LAG = -1


async def handle(
    services: Services, context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    groups = walk(services, context).over(request.groups)
    return DescribeShareGroupOffsetsResponse(
        groups=[await _describe(services, context, group) async for group in groups]
    )


async def _describe(
    services: Services, context: RequestContext, group: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    group_id = group.group_id
    if not has_share_groups(services):
        return DescribeShareGroupOffsetsResponseGroup(group_id, error_code=ErrorCode.UNSUPPORTED_VERSION)
    if not services.authorizer.authorize(context, AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
        return DescribeShareGroupOffsetsResponseGroup(group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    access = TopicAccess(services, context, AclOperation.DESCRIBE)
    try:
        topics = (
            await _all_topics(services, group_id, access)
            if group.topics is None
            else await _named_topics(services, group_id, walk(services, context).over(group.topics), access)
        )
    except ApiError as error:
        return DescribeShareGroupOffsetsResponseGroup(group_id, error_code=error.code, error_message=error.message)
    return DescribeShareGroupOffsetsResponseGroup(group_id, topics=topics)


async def _all_topics(
    services: Services, group_id: str, access: TopicAccess
) -> list[DescribeShareGroupOffsetsResponseTopic]:
    partitions = await services.groups.read(group_id, lambda shard: shard.share.initialized_partitions(group_id))
    topics = services.metadata.image.topics.by_id
    return await _described(
        services,
        group_id,
        {
            topic_id: sorted(numbers)
            for topic_id, numbers in partitions.items()
            if topic_id in topics and access.allows(topics[topic_id].name)
        },
    )


async def _named_topics(
    services: Services, group_id: str, topics: AsyncIterable[DescribeShareGroupOffsetsRequestTopic], access: TopicAccess
) -> list[DescribeShareGroupOffsetsResponseTopic]:
    """Describe topics by name: those that exist, then the others, then those that the client may not describe."""
    known = services.metadata.image.topics.by_name
    wanted: dict[Uuid, Collection[int]] = {}
    unknown: list[DescribeShareGroupOffsetsResponseTopic] = []
    hidden: list[DescribeShareGroupOffsetsResponseTopic] = []
    async for topic in topics:
        if not access.allows(topic.topic_name):
            hidden.append(_without_offsets(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."))
        elif (image := known.get(topic.topic_name)) is None:
            unknown.append(_without_offsets(topic))
        else:
            wanted[image.topic_id] = topic.partitions
    return [*await _described(services, group_id, wanted), *unknown, *hidden]


def _without_offsets(
    topic: DescribeShareGroupOffsetsRequestTopic, code: int = ErrorCode.NONE, message: str | None = None
) -> DescribeShareGroupOffsetsResponseTopic:
    return DescribeShareGroupOffsetsResponseTopic(
        topic.topic_name,
        partitions=[
            DescribeShareGroupOffsetsResponsePartition(
                number, start_offset=UNINITIALIZED_OFFSET, lag=NO_LAG, error_code=code, error_message=message
            )
            for number in topic.partitions
        ],
    )


async def _described(
    services: Services, group_id: str, partitions: Mapping[Uuid, Collection[int]]
) -> list[DescribeShareGroupOffsetsResponseTopic]:
    if not partitions:
        return []
    names = services.metadata.image.topics.by_id
    summaries = await services.groups.share_states.read_summaries(group_id, partitions)
    latest = await services.groups.latest_offsets.read(
        [TopicPartition(names[summary.topic_id].name, summary.partition) for summary in summaries if _has_lag(summary)]
    )
    by_topic: dict[Uuid, DescribeShareGroupOffsetsResponseTopic] = {}
    for summary in summaries:
        name = names[summary.topic_id].name
        topic = by_topic.get(summary.topic_id)
        if topic is None:
            topic = DescribeShareGroupOffsetsResponseTopic(name, topic_id=summary.topic_id)
            by_topic[summary.topic_id] = topic
        topic.partitions.append(_partition(summary, latest.get(TopicPartition(name, summary.partition))))
    return list(by_topic.values())


def _has_lag(summary: StateSummary) -> bool:
    return (
        summary.error_code == ErrorCode.NONE
        and summary.start_offset != UNINITIALIZED_OFFSET
        and summary.delivery_complete_count != UNINITIALIZED_COUNT
    )


def _partition(summary: StateSummary, latest: LatestOffset | None) -> DescribeShareGroupOffsetsResponsePartition:
    """Return one partition. A state that could not be read is one without an offset, not an error, as in Kafka."""
    if summary.error_code != ErrorCode.NONE:
        return DescribeShareGroupOffsetsResponsePartition(
            summary.partition, start_offset=UNINITIALIZED_OFFSET, lag=NO_LAG
        )
    if latest is not None and latest.error_code != ErrorCode.NONE:
        code = ErrorCode(latest.error_code)
        return DescribeShareGroupOffsetsResponsePartition(
            summary.partition, error_code=code, error_message=code.message
        )
    lag = NO_LAG
    if latest is not None:
        lag = latest.offset - summary.start_offset - summary.delivery_complete_count
    return DescribeShareGroupOffsetsResponsePartition(
        summary.partition, start_offset=summary.start_offset, leader_epoch=summary.leader_epoch, lag=lag
    )
