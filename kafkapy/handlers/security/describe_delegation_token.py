"""DescribeDelegationToken 1-3: the tokens of a client, and others that it has a right to see. KIP-48, KIP-373.

A client's tokens are those it owns, may renew, or has requested for others; it cannot change the last.
The response carries the HMACs, which the metadata does not hold: they are computed from the ids and the secret key.
"""

from kafkapy.errors import ApiError
from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.handlers.security.token_requests import check_connection, split
from kafkapy.metadata.delegation_tokens import is_owner_or_renewer, token_hmac
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.delegation_token_record import DelegationTokenRecord
from kafkapy.protocol.messages.describe_delegation_token_request import DescribeDelegationTokenRequest
from kafkapy.protocol.messages.describe_delegation_token_response import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
)
from kafkapy.security.authorizer import AclOperation, ResourceType

WITH_REQUESTER = 3
"""The first version whose response has the requester."""


async def handle(
    services: Services, context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    check_connection(context)
    key = services.config.security.delegation_token_secret_key
    if key is None or not key.value:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    if request.owners is not None:
        # A principal of the metadata is split at its first colon, so that no type has one.
        owners = frozenset(
            f"{each.principal_type}:{each.principal_name}" for each in request.owners if ":" not in each.principal_type
        )
    secret = key.value.encode()
    tokens = [
        _described(token, secret, context.api_version)
        async for token in walk(services, context).over(services.metadata.image.delegation_tokens.values())
        if _is_requested(token, owners) and _may_see(services, context, token)
    ]
    return DescribeDelegationTokenResponse(tokens=tokens)


def _is_requested(token: DelegationTokenRecord, owners: frozenset[str] | None) -> bool:
    if owners is None or token.owner in owners or token.requester in owners:
        return True
    return not owners.isdisjoint(token.renewers)


def _may_see(services: Services, context: RequestContext, token: DelegationTokenRecord) -> bool:
    if is_owner_or_renewer(token, context.principal) or token.requester == context.principal:
        return True
    authorize = services.authorizer.authorize
    return authorize(context, AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id) or authorize(
        context, AclOperation.DESCRIBE_TOKENS, ResourceType.USER, token.owner
    )


def _described(token: DelegationTokenRecord, secret: bytes, version: int) -> DescribedDelegationToken:
    kind, name = split(token.owner)
    described = DescribedDelegationToken(
        principal_type=kind,
        principal_name=name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=token_hmac(secret, token.token_id),
        renewers=[
            DescribedDelegationTokenRenewer(kind, principal_name=name) for kind, name in map(split, token.renewers)
        ],
    )
    if version >= WITH_REQUESTER:
        kind, name = split(token.requester)
        described.token_requester_principal_type, described.token_requester_principal_name = kind, name
    return described
