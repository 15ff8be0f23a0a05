"""ListGroups 0-5: the groups that this broker coordinates.

v4: a filter by state (KIP-518). v5: group types, and a filter by them (KIP-848). While the broker is loading some of
its groups, the response is COORDINATOR_LOAD_IN_PROGRESS, not an incomplete list.
"""

from functools import partial

from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.protocol.messages.list_groups_request import ListGroupsRequest
from kafkapy.protocol.messages.list_groups_response import ListGroupsResponse
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType


async def handle(services: Services, context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    may_see = partial(services.authorizer.authorize, context, AclOperation.DESCRIBE, log_if_denied=False)
    may_see_all = may_see(ResourceType.CLUSTER, CLUSTER_NAME)
    way = walk(services, context)
    groups = await services.groups.read_all(
        lambda shard: shard.list_groups(request.states_filter, request.types_filter), way
    )
    if not may_see_all:
        groups = [group async for group in way.over(groups) if may_see(ResourceType.GROUP, group.group_id)]
    return ListGroupsResponse(groups=groups)
