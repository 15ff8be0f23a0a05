"""SaslHandshake 0-1 when no login is expected: ILLEGAL_SASL_STATE, as in Apache Kafka.

Logins are handled before the router (serving/login_gate.py). This handler gets requests to a listener without SASL,
after a login whose session has no lifetime, or for a second re-authentication within a second.
"""

from kafkapy.handlers.context import ControllerServices, RequestContext, Services
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from kafkapy.protocol.messages.sasl_handshake_response import SaslHandshakeResponse


async def handle(
    services: Services | ControllerServices, context: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
