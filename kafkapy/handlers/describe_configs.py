"""DescribeConfigs 1-4: the configs of topics, brokers, groups, subscriptions and loggers, with their sources.

A broker describes itself (its id), or what is set for all brokers (""); others' ids are refused. Null or no keys mean
all of them, a key that does not exist is left out. v1: synonyms on request (KIP-226). v3: types (documentation is not
given, whatever is asked for). v4: flexible.
"""

from kafkapy.config.describe import (
    ConfigEntry,
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from kafkapy.config.rules import SOURCE_BROKER_LOGGER
from kafkapy.errors import ApiError
from kafkapy.handlers import broker_loggers
from kafkapy.handlers.config_changes import broker_id_of, check_permission, check_topic_name, resource_of
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.metadata.configs import CONTROLLED_TYPES
from kafkapy.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
)
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkapy.protocol.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kafkapy.security.authorizer import AclOperation

RESOURCE_TYPES = (*CONTROLLED_TYPES, RESOURCE_BROKER_LOGGER)


async def handle(
    services: Services, context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    is_understood = all(requested.resource_type in RESOURCE_TYPES for requested in request.resources)
    results = []
    for requested in request.resources:
        result = DescribeConfigsResult(resource_type=requested.resource_type, resource_name=requested.resource_name)
        try:
            if not is_understood:  # one type that nobody knows, and Kafka takes the whole request for malformed
                raise ApiError(ErrorCode.INVALID_REQUEST, "The request names a resource of an unknown type.")
            check_permission(services, context, resource_of(requested), AclOperation.DESCRIBE_CONFIGS)
            entries = _entries(services, requested)
            result.configs = [_row(entry, request.include_synonyms) for entry in _asked_for(requested, entries)]
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _entries(services: Services, requested: DescribeConfigsResource) -> list[ConfigEntry]:
    """Return all of a resource's configs. Raises ApiError."""
    name = requested.resource_name
    if requested.resource_type == RESOURCE_TOPIC:
        return _topic_entries(services, name)
    if requested.resource_type == RESOURCE_BROKER:
        return _broker_entries(services, name)
    if requested.resource_type == RESOURCE_BROKER_LOGGER:
        return _logger_entries(services, name)
    configs = services.metadata.image.configs
    if requested.resource_type == RESOURCE_CLIENT_METRICS:
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        return describe_client_metrics(configs.of(RESOURCE_CLIENT_METRICS, name))
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    return describe_group(services.dynamic_config, configs.of(RESOURCE_GROUP, name))


def _topic_entries(services: Services, name: str) -> list[ConfigEntry]:
    if not name:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: the empty string is not allowed")
    check_topic_name(name)
    image = services.metadata.image
    if name not in image.topics.by_name:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    return describe_topic(services.dynamic_config, image.configs.of(RESOURCE_TOPIC, name))


def _broker_entries(services: Services, name: str) -> list[ConfigEntry]:
    if not name:
        return describe_cluster_default(services.dynamic_config)
    if broker_id_of(name, "Broker id must be an integer, but it is: ") != services.node_id:
        message = f"Unexpected broker id, expected {services.node_id} or empty string, but received {name}"
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    return describe_broker(services.dynamic_config)


def _logger_entries(services: Services, name: str) -> list[ConfigEntry]:
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    if broker_id_of(name, "Broker id must be an integer, but it is: ") != services.node_id:
        message = f"Unexpected broker id, expected {services.node_id} but received {name}"
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    return [
        ConfigEntry(logger, level, SOURCE_BROKER_LOGGER) for logger, level in broker_loggers.levels_by_logger().items()
    ]


def _asked_for(requested: DescribeConfigsResource, entries: list[ConfigEntry]) -> list[ConfigEntry]:
    if not requested.configuration_keys:
        return entries
    keys = set(requested.configuration_keys)
    return [entry for entry in entries if entry.name in keys]


def _row(entry: ConfigEntry, with_synonyms: bool) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if with_synonyms else []
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[DescribeConfigsSynonym(name=name, value=value, source=source) for name, value, source in synonyms],
        config_type=entry.type_code,
        documentation=None,
    )
