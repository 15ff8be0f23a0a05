"""BrokerHeartbeat 0-2, for the controller listener: a broker is alive, asks to be unfenced, or to shut down.

v1: directories that went offline (KIP-858). v2: cordoned directories (KIP-1066).
"""

from kafkapy.errors import ApiError
from kafkapy.handlers.context import ControllerServices, RequestContext
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from kafkapy.protocol.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType


async def handle(
    services: ControllerServices, context: RequestContext, request: BrokerHeartbeatRequest
) -> BrokerHeartbeatResponse:
    if not services.authorizer.authorize(context, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return BrokerHeartbeatResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        return await services.controller.write(
            lambda controller, now_ms: controller.decide_heartbeat(request, now_ms), may_interrupt=True
        )
    except ApiError as error:
        return BrokerHeartbeatResponse(error_code=int(error.code))
