"""DescribeGroups 0-6: classic groups with their members.

v3: authorized operations (KIP-430). v4: static members. v6: a group that does not exist, or is not a classic one, gets
GROUP_ID_NOT_FOUND with a message (KIP-1043); before v6 it is shown as Dead.

A request with the tag of kafkapy.group.explain also gets each group's last rebalances, in the same tag; one with its
IN_FLIGHT_TAG gets the share partitions that this broker leads, also of share groups that others coordinate.
"""

from kafkapy.errors import ApiError
from kafkapy.group.explain import EXPLAIN_TAG, IN_FLIGHT_TAG
from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_groups_request import DescribeGroupsRequest
from kafkapy.protocol.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse
from kafkapy.security.authorizer import AclOperation, ResourceType, authorized_operations


async def handle(services: Services, context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    way = walk(services, context)
    # Deviation: Apache Kafka describes a group as often as it is named. Here once, because it may have thousands of
    # members.
    group_ids = dict.fromkeys(request.groups)
    groups = [await _describe(services, context, group_id) async for group_id in way.over(group_ids)]
    tags = request.unknown_tagged_fields or {}
    if EXPLAIN_TAG in tags:
        async for group in way.over(groups):
            await _explain(services, group)
    if IN_FLIGHT_TAG in tags:
        async for group in way.over(groups):
            await _add_in_flight(services, context, group)
    if request.include_authorized_operations:
        async for group in way.over(groups):
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = authorized_operations(
                    services.authorizer, context, ResourceType.GROUP, group.group_id
                )
    return DescribeGroupsResponse(groups=groups)


async def _describe(services: Services, context: RequestContext, group_id: str) -> DescribedGroup:
    if not services.authorizer.authorize(context, AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
        return DescribedGroup(ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id=group_id)
    try:
        return await services.groups.read(group_id, lambda shard: shard.describe_group(group_id, context.api_version))
    except ApiError as error:
        return DescribedGroup(error.code, error_message=error.message, group_id=group_id)


async def _explain(services: Services, group: DescribedGroup) -> None:
    """Add a group's last rebalances, unless it may not be described or has another coordinator."""
    if group.error_code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
        return
    explanation = await services.groups.read(group.group_id, lambda shard: shard.explain_group(group.group_id))
    group.unknown_tagged_fields = {EXPLAIN_TAG: explanation}


async def _add_in_flight(services: Services, context: RequestContext, group: DescribedGroup) -> None:
    """Add the state of a group's share partitions on this broker, unless the group may not be described."""
    has_share_groups = services.metadata.image.features.has_share_groups
    if group.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED or not has_share_groups:
        return
    from kafkapy.handlers.share.in_flight import in_flight  # most brokers have no share groups

    explanation = await in_flight(services, context, group.group_id)
    group.unknown_tagged_fields = {**(group.unknown_tagged_fields or {}), IN_FLIGHT_TAG: explanation}
