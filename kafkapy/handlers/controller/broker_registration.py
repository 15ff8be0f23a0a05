"""BrokerRegistration 0-4, for the controller listener: a broker registers and gets its broker epoch.

v1: is_migrating_zk_broker (always refused). v2: log directories (KIP-858). v3: the previous broker epoch, to recognise
a clean restart (KIP-966). v4: features whose minimum is 0.
"""

from kafkapy.errors import ApiError
from kafkapy.handlers.context import ControllerServices, RequestContext
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.broker_registration_request import BrokerRegistrationRequest
from kafkapy.protocol.messages.broker_registration_response import BrokerRegistrationResponse
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType


async def handle(
    services: ControllerServices, context: RequestContext, request: BrokerRegistrationRequest
) -> BrokerRegistrationResponse:
    if not services.authorizer.authorize(context, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return BrokerRegistrationResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        return await services.controller.write(
            lambda controller, now_ms: controller.decide_register_broker(request, now_ms)
        )
    except ApiError as error:
        return BrokerRegistrationResponse(error_code=int(error.code))
