"""Heartbeat 0-4: renew the session of a classic group's member, and report whether it must rejoin.

v3: static members (KIP-345). While the coordinator is loading, the response is NONE: no session expires then.
"""

from kafkapy.errors import ApiError
from kafkapy.group.decision import GroupDecision
from kafkapy.group.shard import GroupShard
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.heartbeat_request import HeartbeatRequest
from kafkapy.protocol.messages.heartbeat_response import HeartbeatResponse
from kafkapy.security.authorizer import AclOperation, ResourceType


async def handle(services: Services, context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    if not services.authorizer.authorize(context, AclOperation.READ, ResourceType.GROUP, request.group_id):
        return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)

    def decide(shard: GroupShard, token: int, now_ms: int) -> GroupDecision:
        return shard.classic.heartbeat(request, now_ms)

    try:
        response: HeartbeatResponse = await services.groups.call(request.group_id, decide)
    except ApiError as error:
        is_loading = error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else error.code)
    return response
