"""AlterConfigs 0-2: replace all configs of a topic, a broker (itself, or "" for all), a group or a subscription.

Configs that the request does not name are unset, which is why clients now use IncrementalAlterConfigs. Log levels
cannot be set. v2: flexible. Source: KIP-133, deprecated by KIP-339.
"""

from kafkapy.errors import ApiError
from kafkapy.handlers.configs.config_changes import (
    Results,
    check_broker_configs,
    check_broker_id,
    check_duplicate,
    check_names_and_values,
    check_permission,
    check_topic_name,
    is_direct,
    load_key_store_reader,
    resource_of,
    responses,
    twice_named,
    write,
)
from kafkapy.handlers.context import ControllerServices, RequestContext, Services, walk
from kafkapy.metadata.configs import CONTROLLED_TYPES
from kafkapy.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC, ConfigResource
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.alter_configs_request import AlterConfigsRequest, AlterConfigsResource
from kafkapy.protocol.messages.alter_configs_response import AlterConfigsResourceResponse, AlterConfigsResponse
from kafkapy.security.authorizer import AclOperation


async def handle(
    services: Services | ControllerServices, context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    await load_key_store_reader(services, request.resources)
    results: Results = {}
    changes: dict[ConfigResource, dict[str, str | None]] = {}
    duplicates = twice_named(request.resources)
    async for requested in walk(services, context).over(request.resources):
        resource = resource_of(requested)
        try:
            check_duplicate(resource, duplicates)
            changes[resource] = _checked_configs(services, context, requested)
        except ApiError as error:
            results[resource] = error
    if changes:
        results |= await write(
            services,
            context,
            changes,
            lambda controller, _: controller.configs.decide_legacy_alter(
                changes, validate_only=request.validate_only, is_direct=is_direct(services, context)
            ),
            AlterConfigsRequest(
                resources=[each for each in request.resources if resource_of(each) in changes],
                validate_only=request.validate_only,
            ),
        )
    return AlterConfigsResponse(responses=responses(AlterConfigsResourceResponse, request.resources, results))


def _checked_configs(
    services: Services | ControllerServices, context: RequestContext, requested: AlterConfigsResource
) -> dict[str, str | None]:
    """Return the configs to set, after the checks that this broker can do. Raises ApiError."""
    check_names_and_values(requested.configs, has_value=lambda config: True)
    resource = resource_of(requested)
    if resource.resource_type not in CONTROLLED_TYPES:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
    check_permission(services, context, resource, AclOperation.ALTER_CONFIGS)
    if resource.resource_type == RESOURCE_TOPIC:
        check_topic_name(resource.name)
    if resource.resource_type == RESOURCE_BROKER:
        check_broker_id(services, resource.name)
        configs = {config.name: config.value for config in requested.configs if config.value is not None}
        check_broker_configs(services, resource.name, configs)
    return {config.name: config.value for config in requested.configs}
