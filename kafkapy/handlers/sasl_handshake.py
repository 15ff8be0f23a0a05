"""SaslHandshake 0-1 where no login is due: ILLEGAL_SASL_STATE, as in Apache Kafka.

Logins are answered before the router (handlers/login_gate.py): here comes what is sent to a listener without SASL,
after a login whose session does not end, or for the second time within a second.
"""

from kafkapy.handlers.context import ControllerServices, RequestContext, Services
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from kafkapy.protocol.messages.sasl_handshake_response import SaslHandshakeResponse


async def handle(
    services: Services | ControllerServices, context: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
