"""AlterPartition 2-3, for the controller listener: a leader changes the ISR of its partitions (KIP-497).

v3: the broker epochs of the replicas, so that a replica that has restarted since is not added (KIP-903).
"""

from kafkapy.errors import ApiError
from kafkapy.handlers.context import ControllerServices, RequestContext
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.alter_partition_request import AlterPartitionRequest
from kafkapy.protocol.messages.alter_partition_response import AlterPartitionResponse
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType


async def handle(
    services: ControllerServices, context: RequestContext, request: AlterPartitionRequest
) -> AlterPartitionResponse:
    if not services.authorizer.authorize(context, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return AlterPartitionResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        return await services.controller.write(
            lambda controller, _: controller.partitions.decide_alter_partition(request, context.api_version)
        )
    except ApiError as error:
        return AlterPartitionResponse(error_code=int(error.code))
