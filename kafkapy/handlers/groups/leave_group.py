"""LeaveGroup 0-5: members leave a classic group, or an administrator removes them.

v3: several members, each with its error code; static members by instance id alone (KIP-345). v5: the reason (KIP-800).
Before v3 there is one member, and its error code is the response's.
"""

from kafkapy.errors import ApiError
from kafkapy.group.decision import GroupDecision
from kafkapy.group.shard import GroupShard
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.leave_group_request import LeaveGroupRequest
from kafkapy.protocol.messages.leave_group_response import LeaveGroupResponse
from kafkapy.security.authorizer import AclOperation, ResourceType

BATCHED_SINCE = 3


async def handle(services: Services, context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    if not services.authorizer.authorize(context, AclOperation.READ, ResourceType.GROUP, request.group_id):
        return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    version = context.api_version

    def decide(shard: GroupShard, token: int, now_ms: int) -> GroupDecision:
        return shard.classic.leave(request, version, now_ms)

    try:
        response: LeaveGroupResponse = await services.groups.call(request.group_id, decide)
    except ApiError as error:
        return LeaveGroupResponse(error_code=error.code)
    if version < BATCHED_SINCE:
        return LeaveGroupResponse(error_code=response.members[0].error_code)
    return response
