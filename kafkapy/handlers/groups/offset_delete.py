"""OffsetDelete 0: delete a group's committed offsets of topics to which it is not subscribed (KIP-496).

Refused if a member subscribes to the topic (GROUP_SUBSCRIBED_TO_TOPIC), or if the group has members whose subscriptions
the broker cannot read (NON_EMPTY_GROUP).
"""

from kafkapy.errors import ApiError
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.handlers.data_plane import TopicAccess
from kafkapy.metadata.image import TopicImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.offset_delete_request import OffsetDeleteRequest, OffsetDeleteRequestTopic
from kafkapy.protocol.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kafkapy.security.authorizer import AclOperation, ResourceType


async def handle(services: Services, context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    if not services.authorizer.authorize(context, AclOperation.DELETE, ResourceType.GROUP, request.group_id):
        raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        # Only OffsetCommit and OffsetFetch still accept the empty group id, for old simple consumers.
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
    refused = OffsetDeleteResponse()
    request.topics = _deletable(services, context, request.topics, refused)
    response: OffsetDeleteResponse = await services.groups.call(
        request.group_id, lambda shard, token, now_ms: shard.offsets.delete(request)
    )
    _merge(response, refused)
    return response


def _deletable(
    services: Services,
    context: RequestContext,
    topics: list[OffsetDeleteRequestTopic],
    refused: OffsetDeleteResponse,
) -> list[OffsetDeleteRequestTopic]:
    """Return the topics with existing partitions; add the errors of the others to `refused`."""
    images = services.metadata.image.topics.by_name
    access = TopicAccess(services, context, AclOperation.READ, (topic.name for topic in topics))
    deletable = []
    for topic in topics:
        image: TopicImage | None = images.get(topic.name)
        unknown = [each for each in topic.partitions if image is None or each.partition_index not in image.partitions]
        if not access.allows(topic.name):
            refused.topics.append(_failed(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        if unknown:
            of_unknown = OffsetDeleteRequestTopic(topic.name, partitions=unknown)
            refused.topics.append(_failed(of_unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        known = [each for each in topic.partitions if image is not None and each.partition_index in image.partitions]
        if known:
            deletable.append(OffsetDeleteRequestTopic(topic.name, partitions=known))
    return deletable


def _failed(topic: OffsetDeleteRequestTopic, code: int) -> OffsetDeleteResponseTopic:
    partitions = [
        OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
        for each in topic.partitions
    ]
    return OffsetDeleteResponseTopic(topic.name, partitions=partitions)


def _merge(response: OffsetDeleteResponse, refused: OffsetDeleteResponse) -> None:
    """Add the refused partitions to the response: one entry per topic, as in Kafka."""
    by_topic = {topic.name: topic for topic in response.topics}
    for topic in refused.topics:
        present = by_topic.setdefault(topic.name, topic)
        if present is topic:
            response.topics.append(topic)
        else:
            present.partitions += topic.partitions
