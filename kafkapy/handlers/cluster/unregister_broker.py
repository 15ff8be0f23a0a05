"""UnregisterBroker 0: remove the registration of a broker that has been decommissioned (KIP-500).

Needs ALTER on the cluster. The broker is removed from every ISR. A broker that is unregistered while it runs must be
restarted. BROKER_ID_NOT_REGISTERED if there is no such broker.
"""

from kafkapy.handlers.cluster_access import check_cluster
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.protocol.messages.unregister_broker_request import UnregisterBrokerRequest
from kafkapy.protocol.messages.unregister_broker_response import UnregisterBrokerResponse
from kafkapy.security.authorizer import AclOperation


async def handle(
    services: Services, context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    check_cluster(services, context, AclOperation.ALTER)
    await services.metadata_changes.change(lambda controller, _: controller.decide_unregister_broker(request.broker_id))
    return UnregisterBrokerResponse(error_message=None)
