"""AllocateProducerIds 0, for the controller listener: a block of producer ids for one broker (KIP-730)."""

from kafkapy.errors import ApiError
from kafkapy.handlers.context import ControllerServices, RequestContext
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from kafkapy.protocol.messages.allocate_producer_ids_response import AllocateProducerIdsResponse
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType


async def handle(
    services: ControllerServices, context: RequestContext, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    if not services.authorizer.authorize(context, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return AllocateProducerIdsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        return await services.controller.write(lambda controller, _: controller.decide_allocate_producer_ids(request))
    except ApiError as error:
        return AllocateProducerIdsResponse(error_code=int(error.code))
