"""UnregisterController 0: remove the registration of a controller that is gone for good.

Needs ALTER on the cluster, and metadata.version 4.4-IV2. INVALID_REQUEST for the active controller itself,
CONTROLLER_ID_NOT_REGISTERED if there is no such registration. A controller that runs registers again.
"""

from kafkapy.handlers.cluster_access import check_cluster
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.protocol.messages.unregister_controller_request import UnregisterControllerRequest
from kafkapy.protocol.messages.unregister_controller_response import UnregisterControllerResponse
from kafkapy.security.authorizer import AclOperation


async def handle(
    services: Services, context: RequestContext, request: UnregisterControllerRequest
) -> UnregisterControllerResponse:
    check_cluster(services, context, AclOperation.ALTER)
    await services.metadata_changes.change(
        lambda controller, _: controller.decide_unregister_controller(request.controller_id)
    )
    return UnregisterControllerResponse(error_message=None)
