"""ShareGroupHeartbeat 1: join, stay in, and leave a share group; the response has the assignment. KIP-932.

The member generates its own id. It needs DESCRIBE on all topics that it names.
"""

from kafkapy.errors import ApiError
from kafkapy.group.decision import Client
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.handlers.data_plane import TopicAccess
from kafkapy.handlers.share.gate import check_share_groups, is_member_id
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from kafkapy.protocol.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from kafkapy.security.authorizer import AclOperation, ResourceType


async def handle(
    services: Services, context: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    check_share_groups(services)
    if not services.authorizer.authorize(context, AclOperation.READ, ResourceType.GROUP, request.group_id):
        raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED, None)
    if not is_member_id(request.member_id):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    if request.subscribed_topic_names:
        named = TopicAccess(services, context, AclOperation.DESCRIBE)
        if named.denied(request.subscribed_topic_names):
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    client = Client(context.client_id or "", f"/{context.client_host}")
    response: ShareGroupHeartbeatResponse = await services.groups.share_heartbeat(request, client)
    return response
