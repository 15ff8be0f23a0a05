"""DescribeCluster 0-2: the brokers, as the listener of the request sees them, and the cluster id.

v1: endpoint type, brokers or controllers (KIP-919): a broker's listener tells of brokers only. v2: fenced brokers, if
asked for (KIP-1073). The controller id is a broker's, as in Metadata.
"""

from kafkapy.handlers.cluster_view import NO_BROKER, ClusterView, endpoint_of, random_alive_broker
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_cluster_request import DescribeClusterRequest
from kafkapy.protocol.messages.describe_cluster_response import DescribeClusterBroker, DescribeClusterResponse
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType, authorized_operations

BROKER_ENDPOINTS = 1
CONTROLLER_ENDPOINTS = 2


async def handle(
    services: Services, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if request.endpoint_type != BROKER_ENDPOINTS:
        return _wrong_endpoint_type(request.endpoint_type, context.api_version)
    cluster = services.metadata.image.cluster
    view = ClusterView(cluster, context.listener_name)
    shown = view.reachable if request.include_fenced_brokers else view.alive
    controller_id = random_alive_broker(cluster, services.random)
    response = DescribeClusterResponse(
        cluster_id=services.cluster_id,
        controller_id=controller_id if controller_id in shown else NO_BROKER,
        endpoint_type=BROKER_ENDPOINTS,
    )
    for broker in shown.values():
        host, port = endpoint_of(broker, context.listener_name)
        response.brokers.append(
            DescribeClusterBroker(broker_id=broker.id, host=host, port=port, rack=broker.rack, is_fenced=broker.fenced)
        )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = _operations(services, context)
    return response


def _wrong_endpoint_type(endpoint_type: int, api_version: int) -> DescribeClusterResponse:
    if endpoint_type == CONTROLLER_ENDPOINTS:
        error = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
    else:
        error = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"Unsupported endpoint type {endpoint_type}"
    return DescribeClusterResponse(
        error_code=ErrorCode.INVALID_REQUEST if api_version == 0 else error, error_message=message
    )


def _operations(services: Services, context: RequestContext) -> int:
    if not services.authorizer.authorize(context, AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return authorized_operations(services.authorizer, context, ResourceType.CLUSTER, CLUSTER_NAME)
