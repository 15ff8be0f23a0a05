"""AlterPartitionReassignments 0-1: move partitions to other brokers, or cancel that (KIP-455).

Needs ALTER on the cluster. Each partition succeeds or fails on its own; success means that a reassignment has begun,
not that it is complete. v1: may forbid changes of the replication factor (KIP-860).
"""

from kafkapy.errors import ApiError
from kafkapy.handlers.cluster_access import check_cluster
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.protocol.messages.alter_partition_reassignments_request import AlterPartitionReassignmentsRequest
from kafkapy.protocol.messages.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kafkapy.security.authorizer import AclOperation


async def handle(
    services: Services, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    try:
        check_cluster(services, context, AclOperation.ALTER)
        return await services.metadata_changes.change(
            lambda controller, _: controller.reassignments.decide_alter(request), timeout_ms=request.timeout_ms
        )
    except ApiError as error:
        return _failure(request, error)


def _failure(request: AlterPartitionReassignmentsRequest, error: ApiError) -> AlterPartitionReassignmentsResponse:
    """Return an error of the whole request, on each partition, too."""
    code, message = int(error.code), error.message
    topics = [
        ReassignableTopicResponse(
            topic.name,
            partitions=[
                ReassignablePartitionResponse(each.partition_index, error_code=code, error_message=message)
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=message, responses=topics)
