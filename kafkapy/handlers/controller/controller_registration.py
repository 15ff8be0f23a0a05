"""ControllerRegistration 0, for the controller listener: a controller's endpoints and supported features (KIP-919)."""

from kafkapy.errors import ApiError
from kafkapy.handlers.context import ControllerServices, RequestContext
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.controller_registration_request import ControllerRegistrationRequest
from kafkapy.protocol.messages.controller_registration_response import ControllerRegistrationResponse
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType


async def handle(
    services: ControllerServices, context: RequestContext, request: ControllerRegistrationRequest
) -> ControllerRegistrationResponse:
    if not services.authorizer.authorize(context, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return ControllerRegistrationResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        return await services.controller.write(lambda controller, _: controller.decide_register_controller(request))
    except ApiError as error:
        return ControllerRegistrationResponse(error_code=int(error.code), error_message=error.message)
