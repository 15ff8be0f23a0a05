"""IncrementalAlterConfigs 0-1: set, delete, append to or subtract from single keys of topics, brokers and others.

A resource's operations succeed or fail together; resources are independent. A broker's own configs are checked by that
broker, so other brokers refuse them; the name "" means all brokers. BROKER_LOGGER sets log levels, which are not stored
(KIP-412). Source: KIP-339.
"""

from kafkapy.config.definitions import ConfigType, broker_definitions
from kafkapy.errors import ApiError
from kafkapy.handlers.configs import broker_loggers
from kafkapy.handlers.configs.config_changes import (
    Results,
    check_broker_configs,
    check_broker_id,
    check_duplicate,
    check_names_and_values,
    check_own_id,
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
from kafkapy.metadata.configs import CONTROLLED_TYPES, ConfigOperation, ConfigOperationType
from kafkapy.metadata.image import RESOURCE_BROKER, RESOURCE_BROKER_LOGGER, RESOURCE_TOPIC, ConfigResource
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkapy.protocol.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from kafkapy.security.authorizer import AclOperation


async def handle(
    services: Services | ControllerServices, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    await load_key_store_reader(services, request.resources)
    results: Results = {}
    changes: dict[ConfigResource, list[ConfigOperation]] = {}
    duplicates = twice_named(request.resources)
    async for requested in walk(services, context).over(request.resources):
        resource = resource_of(requested)
        try:
            check_duplicate(resource, duplicates)
            operations = _checked_operations(services, context, requested)
        except ApiError as error:
            results[resource] = error
            continue
        if resource.resource_type == RESOURCE_BROKER_LOGGER:
            results[resource] = broker_loggers.alter(operations, validate_only=request.validate_only)
        else:
            changes[resource] = operations
    if changes:
        results |= await write(
            services,
            context,
            changes,
            lambda controller, _: controller.configs.decide_incremental_alter(
                changes, validate_only=request.validate_only, is_direct=is_direct(services, context)
            ),
            IncrementalAlterConfigsRequest(  # for a controller elsewhere: the rest was refused, or done here
                resources=[each for each in request.resources if resource_of(each) in changes],
                validate_only=request.validate_only,
            ),
        )
    return IncrementalAlterConfigsResponse(
        responses=responses(AlterConfigsResourceResponse, request.resources, results)
    )


def _checked_operations(
    services: Services | ControllerServices, context: RequestContext, requested: AlterConfigsResource
) -> list[ConfigOperation]:
    """Return the operations, after the checks that this broker can do. Raises ApiError."""
    check_names_and_values(
        requested.configs, has_value=lambda config: config.config_operation != ConfigOperationType.DELETE
    )
    resource = resource_of(requested)
    check_permission(services, context, resource, _right(services, resource))
    operations = [_operation(config) for config in requested.configs]
    if resource.resource_type == RESOURCE_TOPIC:
        check_topic_name(resource.name)
    elif resource.resource_type == RESOURCE_BROKER:
        check_broker_id(services, resource.name)
        if not isinstance(services, ControllerServices):
            check_broker_configs(services, resource.name, _next_broker_configs(services, resource.name, operations))
    elif resource.resource_type == RESOURCE_BROKER_LOGGER:
        check_own_id(services, resource.name or "none")
    elif resource.resource_type not in CONTROLLED_TYPES:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
    return operations


def _right(services: Services | ControllerServices, resource: ConfigResource) -> AclOperation:
    """Return the right that a change needs. Log levels of a controller need that of nodes, those of a broker do not."""
    if resource.resource_type == RESOURCE_BROKER_LOGGER and isinstance(services, ControllerServices):
        return AclOperation.CLUSTER_ACTION
    return AclOperation.ALTER_CONFIGS


def _operation(config: AlterableConfig) -> ConfigOperation:
    try:
        operation = ConfigOperationType(config.config_operation)
    except ValueError:
        message = f"Unknown operations type {config.config_operation}"
        raise ApiError(ErrorCode.INVALID_REQUEST, message) from None
    return ConfigOperation(config.name, operation, config.value)


def _next_broker_configs(services: Services, name: str, operations: list[ConfigOperation]) -> dict[str, str]:
    """Return all dynamic configs of this broker, or of all brokers (""), after the operations. Raises ApiError."""
    configs = dict(services.dynamic_config.broker if name else services.dynamic_config.cluster)
    for operation in operations:
        match operation.operation:
            case ConfigOperationType.SET:
                configs[operation.name] = operation.value or ""
            case ConfigOperationType.DELETE:
                configs.pop(operation.name, None)
            case _:
                configs[operation.name] = _apply_to_validated_list(configs.get(operation.name), operation)
    return configs


def _apply_to_validated_list(current: str | None, operation: ConfigOperation) -> str:
    definition = broker_definitions().get(operation.name)
    if definition is None:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown config name: {operation.name}")
    verb = operation.operation.name.lower()
    if definition.type is not ConfigType.LIST:
        message = f"Config value {verb} is not allowed for config key: {operation.name}"
        raise ApiError(ErrorCode.INVALID_CONFIG, message)
    text = current if current is not None else definition.default_text or ""
    elements, changed = text.split(",") if text else [], (operation.value or "").split(",")
    if operation.operation is ConfigOperationType.APPEND:
        known = frozenset(elements)
        return ",".join([*elements, *(element for element in changed if element not in known)])
    removed = frozenset(changed)
    return ",".join(element for element in elements if element not in removed)
