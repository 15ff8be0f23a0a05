"""DeleteAcls 1-3: all access control entries that filters match, told for each filter. KIP-140.

v1: pattern types (KIP-290), v2: flexible, v3: resource type USER (KIP-373). More than 10,000 in one request: nothing is
deleted.
"""

from kafkapy.errors import ApiError
from kafkapy.handlers.acl_requests import check_cluster, filter_of, is_disabled
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.metadata.acl_types import Acl, AclOperation
from kafkapy.metadata.acls import DeletedAcls
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.delete_acls_request import DeleteAclsRequest
from kafkapy.protocol.messages.delete_acls_response import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)


async def handle(services: Services, context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    filters = [filter_of(each) for each in request.filters]
    try:
        check_cluster(services, context, AclOperation.ALTER)
        if is_disabled(services):
            raise ApiError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
        results = await services.follower.change(lambda controller, _: controller.acls.decide_delete(filters))
    except ApiError as error:
        results = [DeletedAcls(error=error)] * len(filters)
    return DeleteAclsResponse(filter_results=[_result(each) for each in results])


def _result(deleted: DeletedAcls) -> DeleteAclsFilterResult:
    error = deleted.error
    return DeleteAclsFilterResult(
        error_code=ErrorCode.NONE if error is None else int(error.code),
        error_message=None if error is None else error.message,
        matching_acls=[_matching(acl) for acl in deleted.acls],
    )


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )
