"""CreateAcls 1-3: create access control entries, each with its own result. KIP-140.

v1: pattern types (KIP-290), v2: flexible, v3: resource type USER (KIP-373). Creating an existing entry succeeds. A
request with a code 0 (UNKNOWN) closes its connection, as in Apache Kafka. Deviation: Apache Kafka fails the whole
request with UNKNOWN_SERVER_ERROR if an entry has a code that is only valid in filters (ANY, MATCH). Here that entry
gets INVALID_REQUEST, because the others are in order.
"""

from kafkapy.errors import ApiError, ProtocolError
from kafkapy.handlers.cluster_access import check_cluster
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.handlers.security.acl_requests import is_disabled
from kafkapy.metadata.acl_types import Acl, AclOperation, ResourceType
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from kafkapy.protocol.messages.create_acls_response import AclCreationResult, CreateAclsResponse
from kafkapy.security.authorizer import CLUSTER_NAME


async def handle(services: Services, context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    if any(0 in _codes(each) for each in request.creations):
        raise ProtocolError("an ACL to create has an unknown code")
    errors: list[ApiError | None]
    try:
        check_cluster(services, context, AclOperation.ALTER)
        if is_disabled(services):
            raise ApiError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
        errors = await _create(services, [_acl(each) for each in request.creations])
    except ApiError as error:
        errors = [error] * len(request.creations)
    return CreateAclsResponse(results=[_result(error) for error in errors])


async def _create(services: Services, acls: list[Acl]) -> list[ApiError | None]:
    """Return an error or None for each ACL. Raises ApiError."""
    refusals = [_refusal(acl) for acl in acls]
    accepted = [acl for acl, error in zip(acls, refusals, strict=True) if error is None]
    decided = await services.metadata_changes.change(lambda controller, _: controller.acls.decide_create(accepted))
    results = iter(decided)
    return [next(results) if error is None else error for error in refusals]


def _refusal(acl: Acl) -> ApiError | None:
    if acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return ApiError(ErrorCode.INVALID_REQUEST, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.resource_name:
        return ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty resource name")
    return None


def _codes(creation: AclCreation) -> tuple[int, int, int, int]:
    return creation.resource_pattern_type, creation.resource_type, creation.permission_type, creation.operation


def _acl(creation: AclCreation) -> Acl:
    return Acl(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def _result(error: ApiError | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult(error_message=None)
    return AclCreationResult(error_code=int(error.code), error_message=error.message)
