"""Authorization for the cluster resource, which administrative requests need.

Deviation: Apache Kafka's error message prints the request with its connection and session ("Request Request(...) needs
ALTER permission."). Here it is the default message of the error code, because the request may hold secrets.
"""

from kafkapy.errors import ApiError
from kafkapy.handlers.context import ControllerServices, RequestContext, Services
from kafkapy.metadata.acl_types import AclOperation, ResourceType
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.security.authorizer import CLUSTER_NAME


def check_cluster(services: Services | ControllerServices, context: RequestContext, operation: AclOperation) -> None:
    """Raise ApiError CLUSTER_AUTHORIZATION_FAILED unless the client may do the operation on the cluster."""
    if not services.authorizer.authorize(context, operation, ResourceType.CLUSTER, CLUSTER_NAME):
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        raise ApiError(error, error.message)
