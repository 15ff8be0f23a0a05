"""The right to the cluster, which administrative requests need as a whole.

Deviation: where Apache Kafka's message prints the request with its connection and session ("Request Request(...) needs
ALTER permission."), it is the error's own sentence here.
"""

from kafkapy.errors import ApiError
from kafkapy.handlers.context import ControllerServices, RequestContext, Services
from kafkapy.metadata.acl_types import AclOperation, ResourceType
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.security.authorizer import CLUSTER_NAME


def check_cluster(services: Services | ControllerServices, context: RequestContext, operation: AclOperation) -> None:
    """Raise ApiError CLUSTER_AUTHORIZATION_FAILED unless the asker may do the operation to the cluster."""
    if not services.authorizer.authorize(context, operation, ResourceType.CLUSTER, CLUSTER_NAME):
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        raise ApiError(error, error.message)
