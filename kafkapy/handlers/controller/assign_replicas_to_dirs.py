"""AssignReplicasToDirs 0, for the controller listener: a broker reports its replicas' log directories (KIP-858)."""

from kafkapy.errors import ApiError
from kafkapy.handlers.context import ControllerServices, RequestContext
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest
from kafkapy.protocol.messages.assign_replicas_to_dirs_response import AssignReplicasToDirsResponse
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType


async def handle(
    services: ControllerServices, context: RequestContext, request: AssignReplicasToDirsRequest
) -> AssignReplicasToDirsResponse:
    if not services.authorizer.authorize(context, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return AssignReplicasToDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        return await services.controller.write(
            lambda controller, _: controller.partitions.decide_assign_replicas(request)
        )
    except ApiError as error:
        return AssignReplicasToDirsResponse(error_code=int(error.code))
