"""SyncGroup 0-5: the leader of a classic group sends the assignment, each member gets its part.

The request is parked until the leader's. v3: static members (KIP-345). v5: protocol type and name are required and must
be the group's (KIP-559).
"""

from kafkapy.errors import ApiError
from kafkapy.group.decision import GroupDecision
from kafkapy.group.shard import GroupShard
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.sync_group_request import SyncGroupRequest
from kafkapy.protocol.messages.sync_group_response import SyncGroupResponse
from kafkapy.security.authorizer import AclOperation, ResourceType

PROTOCOL_NAMED_SINCE = 5


async def handle(services: Services, context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    if context.api_version >= PROTOCOL_NAMED_SINCE and None in (request.protocol_type, request.protocol_name):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not services.authorizer.authorize(context, AclOperation.READ, ResourceType.GROUP, request.group_id):
        return SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)

    def decide(shard: GroupShard, token: int, now_ms: int) -> GroupDecision:
        return shard.classic.sync(request, token, now_ms)

    try:
        response: SyncGroupResponse = await services.groups.call(request.group_id, decide)
    except ApiError as error:
        return SyncGroupResponse(error_code=error.code)
    return response
