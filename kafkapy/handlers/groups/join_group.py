"""JoinGroup 0-9: join a classic group, or rejoin for its next generation. The request is parked for the other members.

v1: a separate rebalance time-out (KIP-62). v4: a new member gets MEMBER_ID_REQUIRED and the id to join with (KIP-394).
v5: static members (KIP-345). v7: protocol type and name in the response, the name null if there is none (KIP-559). v8:
the reason (KIP-800). v9: SkipAssignment for a static leader that rejoins (KIP-814).
"""

from kafkapy.errors import ApiError
from kafkapy.group.decision import Client, GroupDecision
from kafkapy.group.shard import GroupShard
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.join_group_request import JoinGroupRequest
from kafkapy.protocol.messages.join_group_response import JoinGroupResponse
from kafkapy.security.authorizer import AclOperation, ResourceType

NULL_PROTOCOL_SINCE = 7


async def handle(services: Services, context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    if not services.authorizer.authorize(context, AclOperation.READ, ResourceType.GROUP, request.group_id):
        response = JoinGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    else:
        response = await _join(services, context, request)
    has_null = context.api_version >= NULL_PROTOCOL_SINCE
    response.protocol_name = response.protocol_name or (None if has_null else "")
    return response


async def _join(services: Services, context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    client = Client(context.client_id or "", f"/{context.client_host}")
    version = context.api_version

    def decide(shard: GroupShard, token: int, now_ms: int) -> GroupDecision:
        return shard.classic.join(request, version, client, token, now_ms)

    try:
        response: JoinGroupResponse = await services.groups.call(request.group_id, decide)
    except ApiError as error:
        return JoinGroupResponse(error_code=error.code, member_id=request.member_id)
    return response
