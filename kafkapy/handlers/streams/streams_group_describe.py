"""StreamsGroupDescribe 0-1: streams groups with their topology, epochs, members, and the members' tasks. KIP-1071.

v1: the assignor's name; IncludeTopologyDescription, which no plug-in keeps here (KIP-1331). Each group has its own
error code. A group with a topic that the client may not describe gets an error, as in Kafka.
"""

from collections.abc import Callable
from typing import Final

from kafkapy.errors import ApiError
from kafkapy.group.shard import GroupShard
from kafkapy.group.streams.describe import topics_of
from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.handlers.data_plane import TopicAccess
from kafkapy.handlers.streams.gate import is_protocol_enabled
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from kafkapy.protocol.messages.streams_group_describe_response import DescribedGroup, StreamsGroupDescribeResponse
from kafkapy.runtime.turns import Walk
from kafkapy.security.authorizer import AclOperation, ResourceType, authorized_operations

MEMBERS_AT_ONCE: Final = 100
"""Members with some tasks each are a few ms of work. A larger group is described in parts."""
HIDDEN_TOPIC_MESSAGE: Final = "The described group uses topics that the client is not authorized to describe."


async def handle(
    services: Services, context: RequestContext, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse:
    response = StreamsGroupDescribeResponse()
    access = TopicAccess(services, context, AclOperation.DESCRIBE)
    # Deviation: Apache Kafka describes a group as often as it is named. Here once, because it may have many members.
    way = walk(services, context)
    async for group_id in way.over(dict.fromkeys(request.group_ids)):
        described = await _describe(services, context, group_id, way)
        if request.include_authorized_operations and not described.error_code:
            described.authorized_operations = authorized_operations(
                services.authorizer, context, ResourceType.GROUP, group_id
            )
        if access.denied(topics_of(described)):
            described = _refused(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, HIDDEN_TOPIC_MESSAGE)
        response.groups.append(described)
    return response


async def _describe(services: Services, context: RequestContext, group_id: str, way: Walk) -> DescribedGroup:
    if not is_protocol_enabled(services):
        return _refused(group_id, ErrorCode.UNSUPPORTED_VERSION)
    if not services.authorizer.authorize(context, AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
        return _refused(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not group_id:
        return _refused(group_id, ErrorCode.INVALID_GROUP_ID)

    def part(start: int, count: int | None = MEMBERS_AT_ONCE) -> Callable[[GroupShard], DescribedGroup]:
        return lambda shard: shard.streams.describe(group_id, start=start, count=count)

    try:
        described = further = await services.groups.read(group_id, part(0))
        while len(further.members) == MEMBERS_AT_ONCE:
            await way.give_way()
            further = await services.groups.read(group_id, part(len(described.members)))
            if further.group_epoch != described.group_epoch:  # members joined or left: the parts do not belong together
                return await services.groups.read(group_id, part(0, None))
            described.members += further.members
    except ApiError as error:
        return _refused(group_id, ErrorCode(error.code), error.message)
    return described


def _refused(group_id: str, code: ErrorCode, message: str | None = None) -> DescribedGroup:
    return DescribedGroup(error_code=int(code), error_message=message, group_id=group_id)
