"""SaslAuthenticate 0-2 without a login in progress: ILLEGAL_SASL_STATE, as in Apache Kafka. Logins: login_gate.py."""

from kafkapy.handlers.context import ControllerServices, RequestContext, Services
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from kafkapy.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse


async def handle(
    services: Services | ControllerServices, context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    message = "SaslAuthenticate request received after successful authentication"
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message)
