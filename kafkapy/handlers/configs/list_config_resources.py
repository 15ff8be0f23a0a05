"""ListConfigResources 0-1: the resources whose configs can be described.

v0: client metrics subscriptions only (KIP-714, then called ListClientMetricsResources). v1: the requested types, or all
if none is requested; an unknown type gets UNSUPPORTED_VERSION (KIP-1142).
"""

from collections.abc import Iterable

from kafkapy.handlers.context import RequestContext, Services
from kafkapy.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
)
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.list_config_resources_request import ListConfigResourcesRequest
from kafkapy.protocol.messages.list_config_resources_response import ConfigResource, ListConfigResourcesResponse
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType

ALL_TYPES = (RESOURCE_GROUP, RESOURCE_CLIENT_METRICS, RESOURCE_BROKER_LOGGER, RESOURCE_BROKER, RESOURCE_TOPIC)


async def handle(
    services: Services, context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    authorize = services.authorizer.authorize
    if not authorize(context, AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    supported = ALL_TYPES if context.api_version >= 1 else (RESOURCE_CLIENT_METRICS,)
    if any(resource_type not in supported for resource_type in request.resource_types):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    wanted = request.resource_types or supported
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=resource_type)
            for resource_type in supported
            if resource_type in wanted
            for name in _names(services, context, resource_type)
        ]
    )


def _names(services: Services, context: RequestContext, resource_type: int) -> Iterable[str]:
    image = services.metadata.image
    if resource_type == RESOURCE_TOPIC:
        return list(image.topics.by_name)
    if resource_type in (RESOURCE_BROKER, RESOURCE_BROKER_LOGGER):
        return [str(broker_id) for broker_id in image.cluster.alive_broker_ids(context.listener_name)]
    return [resource.name for resource in image.configs.by_resource if resource.resource_type == resource_type]
