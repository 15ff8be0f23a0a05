"""DescribeConfigs 1-4: the configs of topics, brokers, groups, subscriptions and loggers, with their sources.

A node, broker or controller, describes itself (by its id) or the cluster-wide defaults (""); other ids are refused.
Null or no keys mean all keys; unknown keys are left out. v1: synonyms on request (KIP-226). v3: types, and
documentation on request. v4: flexible.

Deviation: Apache Kafka describes any number of resources. Here the first one beyond MAX_DESCRIBED_BYTES and all after
it get INVALID_REQUEST, because a response is in memory until it is read, and a group need not exist to have configs:
20,000 of them with documentation, a request of 200 KB, took 63 MiB.
"""

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Final

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
from kafkapy.handlers.configs import broker_loggers
from kafkapy.handlers.configs.config_changes import broker_id_of, check_permission, check_topic_name, resource_of
from kafkapy.handlers.context import ControllerServices, RequestContext, Services, walk
from kafkapy.handlers.table import MAX_DESCRIBED_BYTES
from kafkapy.metadata.configs import CONTROLLED_TYPES
from kafkapy.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
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

TOO_MANY: Final = f"The configs of the resources before this one take {MAX_DESCRIBED_BYTES} bytes: name fewer."
FIELDS_BYTES: Final = 8
"""Of a config beside its texts: their lengths, its flags and type. Of a synonym about as many."""
RESOURCE_TYPES = (*CONTROLLED_TYPES, RESOURCE_BROKER_LOGGER)


async def handle(
    services: Services | ControllerServices, context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    is_understood = all(requested.resource_type in RESOURCE_TYPES for requested in request.resources)
    described = _Described(services, request)
    results = []
    async for requested in walk(services, context).over(_distinct(request.resources)):
        result = DescribeConfigsResult(resource_type=requested.resource_type, resource_name=requested.resource_name)
        try:
            if not is_understood:  # like Kafka: one unknown type makes the whole request invalid
                raise ApiError(ErrorCode.INVALID_REQUEST, "The request names a resource of an unknown type.")
            check_permission(services, context, resource_of(requested), AclOperation.DESCRIBE_CONFIGS)
            result.configs = described.rows(requested)
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _distinct(resources: Iterable[DescribeConfigsResource]) -> Iterable[DescribeConfigsResource]:
    """Return each pair of resource and requested keys once.

    Deviation: Apache Kafka describes a resource as often as it is named. Here once, because a broker has 300 configs.
    """
    keys = ((each.resource_type, each.resource_name, tuple(each.configuration_keys or ())) for each in resources)
    return dict(zip(keys, resources, strict=True)).values()


class _Described:
    """The rows of a request's resources. Resources with equal configs share their rows, which are never modified."""

    def __init__(self, services: Services | ControllerServices, request: DescribeConfigsRequest) -> None:
        self._services = services
        self._has_synonyms = request.include_synonyms
        self._is_documented = request.include_documentation
        self._rows: dict[Hashable, list[DescribeConfigsResourceResult]] = {}
        self._sizes: dict[Hashable, int] = {}
        self._left_bytes = MAX_DESCRIBED_BYTES
        self._is_full = False
        """Whether a resource did not fit. No more rows are made then: each topic may have its own."""

    def rows(self, requested: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
        """Return the rows of the requested keys, or of all. Raises ApiError."""
        alike, entries = self._entries_of(requested)
        if self._is_full:
            raise ApiError(ErrorCode.INVALID_REQUEST, TOO_MANY)
        rows = self._rows.get(alike)
        if rows is None:
            rows = [_row(entry, has_synonyms=self._has_synonyms) for entry in entries()]
            if self._is_documented:
                _document(requested.resource_type, rows)
            self._keep(alike, rows)
        if requested.configuration_keys:
            keys = frozenset(requested.configuration_keys)
            alike = (alike, keys)
            found = self._rows.get(alike)
            rows = self._keep(alike, [row for row in rows if row.name in keys]) if found is None else found
        size = self._sizes[alike]
        if size > self._left_bytes:
            self._is_full = True
            raise ApiError(ErrorCode.INVALID_REQUEST, TOO_MANY)
        self._left_bytes -= size
        return rows

    def _keep(self, alike: Hashable, rows: list[DescribeConfigsResourceResult]) -> list[DescribeConfigsResourceResult]:
        """Keep rows for the next resource with the same ones; return them."""
        self._rows[alike] = rows
        self._sizes[alike] = sum(map(_size_of, rows))
        return rows

    def _entries_of(self, requested: DescribeConfigsResource) -> tuple[Hashable, Callable[[], list[ConfigEntry]]]:
        """Return a key that is equal for resources with equal configs, and a function for these. Raises ApiError."""
        services, kind, name = self._services, requested.resource_type, requested.resource_name
        if kind == RESOURCE_BROKER:
            is_default = _is_cluster_default(services, name)
            describe = describe_cluster_default if is_default else describe_broker
            return (kind, is_default), partial(describe, services.dynamic_config)
        if kind == RESOURCE_BROKER_LOGGER:
            _check_logger_broker(services, name)
            return kind, _logger_entries
        if kind == RESOURCE_TOPIC:
            _check_topic(services, name)
        elif not name:
            of_what = "Client metrics subscription" if kind == RESOURCE_CLIENT_METRICS else "Group"
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{of_what} name must not be empty")
        overrides = services.metadata.image.configs.of(kind, name)
        alike = (kind, tuple(sorted(overrides.items())))
        if kind == RESOURCE_CLIENT_METRICS:
            return alike, partial(describe_client_metrics, overrides)
        describe_own = describe_topic if kind == RESOURCE_TOPIC else describe_group
        return alike, partial(describe_own, services.dynamic_config, overrides)


def _check_topic(services: Services | ControllerServices, name: str) -> None:
    if not name:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: the empty string is not allowed")
    check_topic_name(name)
    if name not in services.metadata.image.topics.by_name:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def _is_cluster_default(services: Services | ControllerServices, name: str) -> bool:
    """Return whether `name` means all brokers (""), not this one. Raises ApiError for another broker's id."""
    if not name:
        return True
    if broker_id_of(name, "Broker id must be an integer, but it is: ") != services.node_id:
        message = f"Unexpected broker id, expected {services.node_id} or empty string, but received {name}"
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    return False


def _check_logger_broker(services: Services | ControllerServices, name: str) -> None:
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    if broker_id_of(name, "Broker id must be an integer, but it is: ") != services.node_id:
        message = f"Unexpected broker id, expected {services.node_id} but received {name}"
        raise ApiError(ErrorCode.INVALID_REQUEST, message)


def _logger_entries() -> list[ConfigEntry]:
    return [
        ConfigEntry(logger, level, SOURCE_BROKER_LOGGER) for logger, level in broker_loggers.levels_by_logger().items()
    ]


def _document(resource_type: int, rows: Iterable[DescribeConfigsResourceResult]) -> None:
    """Add the documentation of the keys. Loggers have none."""
    from kafkapy.config.documentation import documentation_of  # imported late: rarely requested

    if resource_type != RESOURCE_BROKER_LOGGER:
        for row in rows:
            row.documentation = documentation_of(resource_type, row.name)


def _row(entry: ConfigEntry, *, has_synonyms: bool) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if has_synonyms else []
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


def _size_of(row: DescribeConfigsResourceResult) -> int:
    """Return about how many bytes of a response a config takes; letters of other scripts count too little."""
    size = FIELDS_BYTES + len(row.name) + len(row.value or "") + len(row.documentation or "")
    for synonym in row.synonyms:
        size += FIELDS_BYTES + len(synonym.name) + len(synonym.value or "")
    return size
