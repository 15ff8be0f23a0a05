"""DeleteShareGroupOffsets 0: delete what a share group without members keeps of topics. KIP-932.

The client needs DELETE on the group and READ on each topic. Topics have their own error codes.
"""

from kafkapy.errors import ApiError
from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.handlers.data_plane import TopicAccess
from kafkapy.handlers.share.gate import check_share_groups
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.delete_share_group_offsets_request import DeleteShareGroupOffsetsRequest
from kafkapy.protocol.messages.delete_share_group_offsets_response import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from kafkapy.security.authorizer import AclOperation, ResourceType


async def handle(
    services: Services, context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    from kafkapy.runtime.coordinators.share_offsets import delete_offsets

    check_share_groups(services)
    if not services.authorizer.authorize(context, AclOperation.DELETE, ResourceType.GROUP, request.group_id):
        raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")
    if not request.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "The group id is invalid.")
    readable = TopicAccess(services, context, AclOperation.READ)
    refused: list[DeleteShareGroupOffsetsResponseTopic] = []
    allowed: list[str] = []
    async for topic in walk(services, context).over(request.topics):
        if readable.allows(topic.topic_name):
            allowed.append(topic.topic_name)
        else:
            refused.append(
                DeleteShareGroupOffsetsResponseTopic(
                    topic.topic_name,
                    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    error_message="Topic authorization failed.",
                )
            )
    known = services.metadata.image.topics.by_name
    names = {known[name].topic_id: name for name in allowed if name in known}
    response = await delete_offsets(services.groups, request.group_id, allowed, names)
    response.responses = [*refused, *response.responses]
    return response
