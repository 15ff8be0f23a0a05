"""ConsumerGroupDescribe 0-1: KIP-848 groups with their epochs, members, and the members' assignments and targets.

v1: the type of each member, classic or consumer (KIP-1099). Each group has its own error code. A group with a topic
that the client may not describe gets an error, as in Kafka.
"""

from kafkapy.errors import ApiError
from kafkapy.group.shard import GroupShard
from kafkapy.handlers.consumer_group_heartbeat import is_protocol_enabled
from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.handlers.data_plane import TopicAccess
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from kafkapy.protocol.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse, DescribedGroup
from kafkapy.security.authorizer import AclOperation, ResourceType, authorized_operations

HIDDEN_TOPIC_MESSAGE = "The group has described topic(s) that the client is not authorized to describe."


async def handle(
    services: Services, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    response = ConsumerGroupDescribeResponse()
    access = TopicAccess(services, context, AclOperation.DESCRIBE)
    # Deviation: a group that is named twice is described once, because a group may have thousands of members.
    async for group_id in walk(services, context).over(dict.fromkeys(request.group_ids)):
        described = await _describe(services, context, group_id)
        if request.include_authorized_operations and not described.error_code:
            described.authorized_operations = authorized_operations(
                services.authorizer, context, ResourceType.GROUP, group_id
            )
        if access.denied(_topics(described)):
            described = _refused(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, HIDDEN_TOPIC_MESSAGE)
        response.groups.append(described)
    return response


async def _describe(services: Services, context: RequestContext, group_id: str) -> DescribedGroup:
    if not is_protocol_enabled(services):
        return _refused(group_id, ErrorCode.UNSUPPORTED_VERSION)
    if not services.authorizer.authorize(context, AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
        return _refused(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not group_id:
        return _refused(group_id, ErrorCode.INVALID_GROUP_ID)

    def query(shard: GroupShard) -> DescribedGroup:
        return shard.consumer.describe(group_id)

    try:
        return await services.groups.read(group_id, query)
    except ApiError as error:
        return _refused(group_id, ErrorCode(error.code), error.message)


def _topics(group: DescribedGroup) -> set[str]:
    return {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }


def _refused(group_id: str, code: ErrorCode, message: str | None = None) -> DescribedGroup:
    return DescribedGroup(error_code=int(code), error_message=message, group_id=group_id)
