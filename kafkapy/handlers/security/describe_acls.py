"""DescribeAcls 1-3: the access control entries that a filter matches, by resource pattern. KIP-140.

v1: pattern types and the filter MATCH, for all patterns that apply to a name (KIP-290), v2: flexible, v3: resource type
USER (KIP-373). The order is that of Apache Kafka's authorizer; in its responses it is that of a HashSet.
"""

from kafkapy.errors import ApiError
from kafkapy.handlers.cluster_access import check_cluster
from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.handlers.security.acl_requests import filter_of, is_disabled
from kafkapy.metadata.acl_types import Acl, AclOperation, in_order
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_acls_request import DescribeAclsRequest
from kafkapy.protocol.messages.describe_acls_response import AclDescription, DescribeAclsResource, DescribeAclsResponse


async def handle(services: Services, context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    requested = filter_of(request)
    check_cluster(services, context, AclOperation.DESCRIBE)
    if is_disabled(services):
        raise ApiError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    every = walk(services, context).over(services.metadata.image.acls.values())
    matched = [Acl.of(record) async for record in every if requested.matches(record)]
    return DescribeAclsResponse(error_message=None, resources=_resources(in_order(matched)))


def _resources(acls: list[Acl]) -> list[DescribeAclsResource]:
    resources: dict[tuple[int, int, str], DescribeAclsResource] = {}
    for acl in acls:
        key = (acl.resource_type, acl.pattern_type, acl.resource_name)
        resource = resources.get(key)
        if resource is None:
            resource = resources[key] = DescribeAclsResource(
                resource_type=acl.resource_type, resource_name=acl.resource_name, pattern_type=acl.pattern_type
            )
        resource.acls.append(
            AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission_type
            )
        )
    return list(resources.values())
