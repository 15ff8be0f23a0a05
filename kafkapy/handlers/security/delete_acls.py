"""DeleteAcls 1-3: delete all access control entries that filters match; the response lists them per filter. KIP-140.

v1: pattern types (KIP-290), v2: flexible, v3: resource type USER (KIP-373). If there are more than 10,000 in one
request, nothing is deleted.
"""

from typing import Final

from kafkapy.errors import ApiError
from kafkapy.handlers.cluster_access import check_cluster
from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.handlers.security.acl_requests import filter_of, is_disabled
from kafkapy.metadata.acl_types import Acl, AclFilter, AclOperation
from kafkapy.metadata.acls import find_acls
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.delete_acls_request import DeleteAclsRequest
from kafkapy.protocol.messages.delete_acls_response import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from kafkapy.types import Uuid

MAX_MATCHES: Final = 100_000
"""The maximum number of matches of one request's filters, which is the number of ACLs in the response."""


async def handle(services: Services, context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    filters = [filter_of(each) for each in request.filters]
    try:
        check_cluster(services, context, AclOperation.ALTER)
        if is_disabled(services):
            raise ApiError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
        found = await _find(services, context, filters)
        wanted = [each for each in found if not isinstance(each, ApiError)]
        decided = await services.metadata_changes.change(lambda controller, _: controller.acls.decide_delete(wanted))
    except ApiError as error:
        return DeleteAclsResponse(filter_results=[_failed(error)] * len(filters))
    deleted = iter(decided)
    return DeleteAclsResponse(
        filter_results=[
            _failed(each)
            if isinstance(each, ApiError)
            else DeleteAclsFilterResult(error_message=None, matching_acls=[_matching(acl) for acl in next(deleted)])
            for each in found
        ]
    )


async def _find(services: Services, context: RequestContext, filters: list[AclFilter]) -> list[list[Uuid] | ApiError]:
    """Return per filter the ids of the matching ACLs, or its error; yields to the event loop between filters.

    Raises ApiError for more than MAX_MATCHES. Deviation: Apache Kafka does not limit the matches. Here more are
    refused, because they are one batch of records.
    """
    acls = services.metadata.image.acls
    found: list[list[Uuid] | ApiError] = []
    match_count = 0
    async for requested in walk(services, context).over(filters):
        try:
            ids = find_acls(acls, requested)
        except ApiError as error:
            found.append(error)
            continue
        match_count += len(ids)
        if match_count > MAX_MATCHES:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"The filters match ACLs more than {MAX_MATCHES} times.")
        found.append(ids)
    return found


def _failed(error: ApiError) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=int(error.code), error_message=error.message)


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
