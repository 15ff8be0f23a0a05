"""ExpireDelegationToken 1-2: the owner or a renewer sets when a token expires, or expires it at once. KIP-48."""

from kafkapy.errors import ApiError
from kafkapy.handlers.context import ControllerServices, RequestContext, Services
from kafkapy.handlers.security.token_requests import NO_TIME, change, check_connection, forward_to_controller
from kafkapy.protocol.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from kafkapy.protocol.messages.expire_delegation_token_response import ExpireDelegationTokenResponse


async def handle(
    services: Services | ControllerServices, context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    try:
        check_connection(context)
    except ApiError as error:
        return ExpireDelegationTokenResponse(error_code=int(error.code), expiry_timestamp_ms=NO_TIME)
    forwarded = await forward_to_controller(services, context, request)
    if forwarded is not None:
        assert isinstance(forwarded, ExpireDelegationTokenResponse)
        return forwarded
    expires_ms = await change(
        services,
        lambda controller, now_ms: controller.tokens.decide_expire(
            requester=context.principal, token=request.hmac, period_ms=request.expiry_time_period_ms, now_ms=now_ms
        ),
    )
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expires_ms)
