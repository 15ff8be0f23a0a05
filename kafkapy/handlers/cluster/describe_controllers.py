"""DescribeCluster 0-2 on the controllers' listener: the registered controllers and the active one (KIP-919).

It needs ALTER on the cluster, unlike a broker's. Below metadata.version 3.7-IV0 no controller is registered:
UNSUPPORTED_VERSION. v0 has no endpoint type and means brokers, which a controller does not describe.
"""

from kafkapy.errors import ApiError
from kafkapy.handlers.cluster.describe_cluster import CONTROLLER_ENDPOINTS, described_operations, wrong_endpoint_type
from kafkapy.handlers.cluster_access import check_cluster
from kafkapy.handlers.cluster_view import NO_BROKER
from kafkapy.handlers.context import ControllerServices, RequestContext
from kafkapy.metadata.features import MV_3_7_IV0
from kafkapy.metadata.image import METADATA_VERSION
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_cluster_request import DescribeClusterRequest
from kafkapy.protocol.messages.describe_cluster_response import DescribeClusterBroker, DescribeClusterResponse
from kafkapy.security.authorizer import AclOperation


async def handle(
    services: ControllerServices, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    image = services.metadata.image
    if image.features.levels.get(METADATA_VERSION, 0) < MV_3_7_IV0:
        message = "Direct-to-controller communication is not supported with the current MetadataVersion."
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, message)
    check_cluster(services, context, AclOperation.ALTER)
    if request.endpoint_type != CONTROLLER_ENDPOINTS:
        return wrong_endpoint_type(request.endpoint_type, context.api_version, expected=CONTROLLER_ENDPOINTS)
    response = DescribeClusterResponse(cluster_id=services.cluster_id, endpoint_type=CONTROLLER_ENDPOINTS)
    for controller in image.cluster.controllers.values():
        endpoint = controller.endpoints.get(context.listener_name)
        if endpoint is not None:
            node = DescribeClusterBroker(broker_id=controller.id, host=endpoint.host, port=endpoint.port, rack=None)
            response.brokers.append(node)
    leader_id = services.quorum.leader_id
    is_shown = any(node.broker_id == leader_id for node in response.brokers)
    response.controller_id = leader_id if is_shown else NO_BROKER
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = described_operations(services, context)
    return response
