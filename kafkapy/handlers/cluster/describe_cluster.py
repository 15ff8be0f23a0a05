"""DescribeCluster 0-2: the brokers, with their endpoints of the request's listener, and the cluster id.

v1: endpoint type, brokers or controllers (KIP-919): a broker's listener only returns brokers. v2: fenced brokers on
request (KIP-1073). The controller id is a broker's, as in Metadata.
"""

from kafkapy.handlers.cluster_view import NO_BROKER, ClusterView, endpoint_of, random_alive_broker
from kafkapy.handlers.context import ControllerServices, RequestContext, Services
from kafkapy.handlers.stale_metadata import check_metadata_current
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_cluster_request import DescribeClusterRequest
from kafkapy.protocol.messages.describe_cluster_response import DescribeClusterBroker, DescribeClusterResponse
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType, authorized_operations

BROKER_ENDPOINTS = 1
CONTROLLER_ENDPOINTS = 2
ENDPOINT_TYPES = {BROKER_ENDPOINTS: "BROKER", CONTROLLER_ENDPOINTS: "CONTROLLER"}


async def handle(
    services: Services, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    check_metadata_current(services)
    if request.endpoint_type != BROKER_ENDPOINTS:
        return wrong_endpoint_type(request.endpoint_type, context.api_version, expected=BROKER_ENDPOINTS)
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
        response.cluster_authorized_operations = described_operations(services, context)
    return response


def wrong_endpoint_type(endpoint_type: int, api_version: int, *, expected: int) -> DescribeClusterResponse:
    """Return the error response to a request for endpoints of another type than this listener's (`expected`)."""
    if endpoint_type in ENDPOINT_TYPES:
        error = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = (
            f"The request was sent to an endpoint of type {ENDPOINT_TYPES[expected]}, but we wanted an endpoint of "
            f"type {ENDPOINT_TYPES[endpoint_type]}"
        )
    else:
        error = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"Unsupported endpoint type {endpoint_type}"
    return DescribeClusterResponse(
        error_code=ErrorCode.INVALID_REQUEST if api_version == 0 else error, error_message=message
    )


def described_operations(services: Services | ControllerServices, context: RequestContext) -> int:
    """Return the operations on the cluster that the principal may do, as bits; 0 without DESCRIBE."""
    if not services.authorizer.authorize(context, AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return authorized_operations(services.authorizer, context, ResourceType.CLUSTER, CLUSTER_NAME)
