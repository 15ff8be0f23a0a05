"""DeleteGroups 0-3: delete groups without members, with their committed offsets, or the states of their partitions.

v3: error_message, which Apache Kafka 4.4.0 sets if the topology of a streams group cannot be deleted; null here.
"""

from kafkapy.errors import ApiError
from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.delete_groups_request import DeleteGroupsRequest
from kafkapy.protocol.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse
from kafkapy.security.authorizer import AclOperation, ResourceType


async def handle(services: Services, context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    group_ids = walk(services, context).over(dict.fromkeys(request.groups_names))
    results = [await _delete(services, context, group_id) async for group_id in group_ids]
    return DeleteGroupsResponse(results=results)


async def _delete(services: Services, context: RequestContext, group_id: str) -> DeletableGroupResult:
    if not services.authorizer.authorize(context, AclOperation.DELETE, ResourceType.GROUP, group_id):
        return DeletableGroupResult(group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    try:
        await services.groups.delete_group(group_id)
    except ApiError as error:
        return DeletableGroupResult(group_id, error_code=error.code)
    return DeletableGroupResult(group_id)
