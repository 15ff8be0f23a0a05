"""ListPartitionReassignments 0: the reassignments in progress, of some or all partitions (KIP-455).

Needs DESCRIBE on the cluster. The timeout has no effect, as in Apache Kafka: nothing is waited for. Requested
partitions that are not being reassigned are left out.
"""

from kafkapy.errors import ApiError
from kafkapy.handlers.cluster_access import check_cluster
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.protocol.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from kafkapy.protocol.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from kafkapy.security.authorizer import AclOperation


async def handle(
    services: Services, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    try:
        check_cluster(services, context, AclOperation.DESCRIBE)
        return await services.metadata_changes.change(
            lambda controller, _: controller.reassignments.decide_list(request)
        )
    except ApiError as error:
        return _failure(request, error)


def _failure(request: ListPartitionReassignmentsRequest, error: ApiError) -> ListPartitionReassignmentsResponse:
    topics = [
        OngoingTopicReassignment(
            topic.name, partitions=[OngoingPartitionReassignment(each) for each in topic.partition_indexes]
        )
        for topic in request.topics or ()
    ]
    return ListPartitionReassignmentsResponse(error_code=int(error.code), error_message=error.message, topics=topics)
