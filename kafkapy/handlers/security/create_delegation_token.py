"""CreateDelegationToken 1-3: create a token for the requester, or for another owner, with CREATE_TOKENS. KIP-373.

An owner with a name and without a type (null) is refused as Apache Kafka refuses it: UNKNOWN_SERVER_ERROR, before any
other check, in ANONYMOUS's name.
"""

from kafkapy.errors import ApiError
from kafkapy.handlers.context import ControllerServices, RequestContext, Services
from kafkapy.handlers.security.token_requests import (
    ANONYMOUS,
    NO_TIME,
    change,
    check_connection,
    forward_to_controller,
    split,
)
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.create_delegation_token_request import CreateDelegationTokenRequest
from kafkapy.protocol.messages.create_delegation_token_response import CreateDelegationTokenResponse
from kafkapy.security.authorizer import AclOperation, ResourceType

WITH_REQUESTER = 3
"""The first version in which owner and requester may differ."""


async def handle(
    services: Services | ControllerServices, context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    requester = owner = split(context.principal)
    if request.owner_principal_name:
        if request.owner_principal_type is None:
            # as Apache Kafka, which fails on it before it knows whose token this is
            anonymous = split(ANONYMOUS)
            return _refused(_named(context, anonymous, requester=anonymous), ErrorCode.UNKNOWN_SERVER_ERROR)
        owner = (request.owner_principal_type, request.owner_principal_name)
    response = _named(context, owner, requester=requester)
    try:
        _check(services, context, request, owner)
    except ApiError as error:
        return _refused(response, error.code)
    forwarded = await forward_to_controller(services, context, request)
    if forwarded is not None:
        assert isinstance(forwarded, CreateDelegationTokenResponse)
        return forwarded
    renewers = [f"{each.principal_type}:{each.principal_name}" for each in request.renewers]
    try:
        created = await change(
            services,
            lambda controller, now_ms: controller.tokens.decide_create(
                requester=context.principal,
                owner=":".join(owner),
                renewers=renewers,
                max_lifetime_ms=request.max_lifetime_ms,
                now_ms=now_ms,
            ),
        )
    except ApiError as error:
        response.error_code = int(error.code)
        return response
    response.issue_timestamp_ms = created.record.issue_timestamp
    response.expiry_timestamp_ms = created.record.expiration_timestamp
    response.max_timestamp_ms = created.record.max_timestamp
    response.token_id, response.hmac = created.record.token_id, created.hmac
    return response


def _refused(response: CreateDelegationTokenResponse, error_code: int) -> CreateDelegationTokenResponse:
    response.error_code = int(error_code)
    response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = NO_TIME
    return response


def _named(
    context: RequestContext, owner: tuple[str, str], *, requester: tuple[str, str]
) -> CreateDelegationTokenResponse:
    """Return a response with the token's owner and requester set."""
    kind, name = owner
    response = CreateDelegationTokenResponse(principal_type=kind, principal_name=name)
    if context.api_version >= WITH_REQUESTER:
        kind, name = requester
        response.token_requester_principal_type, response.token_requester_principal_name = kind, name
    return response


def _check(
    services: Services | ControllerServices,
    context: RequestContext,
    request: CreateDelegationTokenRequest,
    owner: tuple[str, str],
) -> None:
    """Raise ApiError if the request is refused before the controller decides.

    Type and name of the owner are compared each for itself: a type that contains a colon is no other principal's.
    """
    check_connection(context)
    if owner != split(context.principal) and not services.authorizer.authorize(
        context, AclOperation.CREATE_TOKENS, ResourceType.USER, ":".join(owner)
    ):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    if any(each.principal_type != "User" for each in request.renewers):
        raise ApiError(ErrorCode.INVALID_PRINCIPAL_TYPE)
