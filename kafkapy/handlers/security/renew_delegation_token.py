"""RenewDelegationToken 1-2: the owner or a renewer extends the validity of a token. KIP-48."""

from kafkapy.errors import ApiError
from kafkapy.handlers.context import ControllerServices, RequestContext, Services
from kafkapy.handlers.security.token_requests import NO_TIME, change, check_connection, forward_to_controller
from kafkapy.protocol.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from kafkapy.protocol.messages.renew_delegation_token_response import RenewDelegationTokenResponse


async def handle(
    services: Services | ControllerServices, context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    try:
        check_connection(context)
    except ApiError as error:
        return RenewDelegationTokenResponse(error_code=int(error.code), expiry_timestamp_ms=NO_TIME)
    forwarded = await forward_to_controller(services, context, request)
    if forwarded is not None:
        assert isinstance(forwarded, RenewDelegationTokenResponse)
        return forwarded
    expires_ms = await change(
        services,
        lambda controller, now_ms: controller.tokens.decide_renew(
            requester=context.principal, token=request.hmac, period_ms=request.renew_period_ms, now_ms=now_ms
        ),
    )
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expires_ms)
