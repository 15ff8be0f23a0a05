"""AlterShareGroupOffsets 0: set where a share group begins to read partitions. KIP-932.

The group must have no members; it is created if it does not exist.

The client needs READ on the group and on each topic. Topics and partitions have their own error codes.
"""

from kafkapy.errors import ApiError
from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.handlers.data_plane import TopicAccess
from kafkapy.handlers.share.gate import check_share_groups
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
)
from kafkapy.protocol.messages.alter_share_group_offsets_response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from kafkapy.security.authorizer import AclOperation, ResourceType
from kafkapy.types import ZERO_UUID

MESSAGES = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
}


async def handle(
    services: Services, context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    from kafkapy.runtime.coordinators.share_offsets import alter_offsets

    check_share_groups(services)
    if not services.authorizer.authorize(context, AclOperation.READ, ResourceType.GROUP, request.group_id):
        raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")
    if not request.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "The group id is invalid.")
    readable = TopicAccess(services, context, AclOperation.READ)
    known = services.metadata.image.topics.by_name
    refused: list[AlterShareGroupOffsetsResponseTopic] = []
    allowed: list[AlterShareGroupOffsetsRequestTopic] = []
    async for topic in walk(services, context).over(request.topics):
        if not readable.allows(topic.topic_name):
            refused.append(_refused(services, topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        elif topic.topic_name not in known:
            refused.append(_refused(services, topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            allowed.append(topic)
    response = await alter_offsets(services.groups, request.group_id, allowed)
    response.responses = [*refused, *response.responses]
    return response


def _refused(
    services: Services, topic: AlterShareGroupOffsetsRequestTopic, code: ErrorCode
) -> AlterShareGroupOffsetsResponseTopic:
    known = services.metadata.image.topics.by_name.get(topic.topic_name)
    return AlterShareGroupOffsetsResponseTopic(
        topic.topic_name,
        topic_id=ZERO_UUID if known is None else known.topic_id,
        partitions=[
            AlterShareGroupOffsetsResponsePartition(each.partition_index, error_code=code, error_message=MESSAGES[code])
            for each in topic.partitions
        ],
    )
