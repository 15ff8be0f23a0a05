"""OffsetCommit 2-10: commit a group's offsets, stored as records in `__consumer_offsets`.

Topics and partitions that do not exist are refused one by one; the others are committed. v5: no retention time
(KIP-211). v6: leader epochs (KIP-320). v7: static members. v9: member epochs of KIP-848; GROUP_ID_NOT_FOUND and
STALE_MEMBER_EPOCH. v10: topics by id; UNKNOWN_TOPIC_ID.

Deviation: Apache Kafka writes a commit as one batch, and fails above 1 MiB. Here a large one is several batches,
because nothing reads them as one.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from kafkapy.errors import ApiError
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.handlers.data_plane import TopicAccess, merge_topics
from kafkapy.metadata.image import TopicImage, TopicsImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.offset_commit_request import OffsetCommitRequest, OffsetCommitRequestTopic
from kafkapy.protocol.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kafkapy.security.authorizer import AclOperation, ResourceType

TOPIC_IDS_SINCE: Final = 10


async def handle(services: Services, context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    if not services.authorizer.authorize(context, AclOperation.READ, ResourceType.GROUP, request.group_id):
        return all_failed(request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused = OffsetCommitResponse()
    request.topics = _committable(services, context, request.topics, refused)
    if not request.topics:
        return refused
    version = context.api_version
    try:
        response: OffsetCommitResponse = await services.groups.commit_offsets(
            request.group_id, lambda shard, token, now_ms: shard.offsets.commit(request, version, now_ms)
        )
    except ApiError as error:
        response = all_failed(request, error.code)
    if refused.topics:
        merge_topics(response.topics, refused.topics)
    return response


def all_failed(request: OffsetCommitRequest, code: int) -> OffsetCommitResponse:
    """Return the response with the error on every partition."""
    return OffsetCommitResponse(topics=[_failed(topic, code) for topic in request.topics])


def _committable(
    services: Services,
    context: RequestContext,
    topics: list[OffsetCommitRequestTopic],
    refused: OffsetCommitResponse,
) -> list[OffsetCommitRequestTopic]:
    """Return the topics, with name, id and existing partitions; add the errors of the others to `refused`."""
    images = services.metadata.image.topics
    uses_ids = context.api_version >= TOPIC_IDS_SINCE
    access = TopicAccess(services, context, AclOperation.READ, _names(images, topics, uses_ids=uses_ids))
    committable = []
    for topic in topics:
        image = images.by_id.get(topic.topic_id) if uses_ids else images.by_name.get(topic.name)
        if image is not None:
            topic.name, topic.topic_id = image.name, image.topic_id
        if image is None and uses_ids:
            refused.topics.append(_failed(topic, ErrorCode.UNKNOWN_TOPIC_ID))
        elif not access.allows(topic.name):
            refused.topics.append(_failed(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        elif image is None:
            refused.topics.append(_failed(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            _refuse_unknown_partitions(topic, image, refused)
            if topic.partitions:
                committable.append(topic)
    return committable


def _names(images: TopicsImage, topics: Iterable[OffsetCommitRequestTopic], *, uses_ids: bool) -> Iterator[str]:
    for topic in topics:
        image = images.by_id.get(topic.topic_id) if uses_ids else None
        yield topic.name if image is None else image.name


def _refuse_unknown_partitions(
    topic: OffsetCommitRequestTopic, image: TopicImage, refused: OffsetCommitResponse
) -> None:
    unknown = [each for each in topic.partitions if each.partition_index not in image.partitions]
    if unknown:
        topic.partitions = [each for each in topic.partitions if each.partition_index in image.partitions]
        of_unknown = OffsetCommitRequestTopic(topic.name, topic_id=topic.topic_id, partitions=unknown)
        refused.topics.append(_failed(of_unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))


def _failed(topic: OffsetCommitRequestTopic, code: int) -> OffsetCommitResponseTopic:
    partitions = [
        OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
        for each in topic.partitions
    ]
    return OffsetCommitResponseTopic(topic.name, topic_id=topic.topic_id, partitions=partitions)
