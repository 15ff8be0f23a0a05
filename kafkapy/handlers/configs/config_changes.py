"""Shared by AlterConfigs and IncrementalAlterConfigs: refuse resources one by one, then one write for the rest.

A broker checks its own configs, duplicates and permission before the controller decides.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Final, Protocol, TypeVar

from kafkapy.errors import ApiError, ConfigError
from kafkapy.handlers.context import ControllerServices, RequestContext, Services
from kafkapy.handlers.forwarding import forward_message
from kafkapy.machine import Decided
from kafkapy.metadata.controller import Controller
from kafkapy.metadata.image import (
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    ConfigResource,
)
from kafkapy.metadata.topic_names import invalid_topic_name_reason
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.primitives import Message
from kafkapy.runtime.pool import run_in_pool
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType
from kafkapy.types import INT32_MAX

KEY_STORE_KEY: Final = "store.location"
PKCS12_READER: Final = "cryptography.hazmat.primitives.serialization.pkcs12"

Results = dict[ConfigResource, ApiError | None]
ResponseT = TypeVar("ResponseT", covariant=True)
Decide = Callable[[Controller, int], Decided[Any, Results]]


class NamedConfig(Protocol):
    name: str
    value: str | None


class RequestedConfigs(Protocol):
    @property
    def configs(self) -> "Sequence[NamedConfig]": ...


class NewResponse(Protocol[ResponseT]):
    """The class of a resource's response, of which each of the two APIs has its own."""

    def __call__(
        self, *, error_code: int, error_message: str | None, resource_type: int, resource_name: str
    ) -> ResponseT: ...


class RequestedResource(Protocol):
    resource_type: int
    resource_name: str


def resource_of(requested: RequestedResource) -> ConfigResource:
    return ConfigResource(requested.resource_type, requested.resource_name)


def twice_named(resources: Iterable[RequestedResource]) -> set[ConfigResource]:
    """Return the resources that a request names more than once; all their entries are refused."""
    return {resource for resource, count in Counter(map(resource_of, resources)).items() if count > 1}


def check_duplicate(resource: ConfigResource, duplicates: set[ConfigResource]) -> None:
    if resource in duplicates:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


def check_names_and_values(configs: Iterable[NamedConfig], has_value: Callable[[Any], bool]) -> None:
    """Raise ApiError for duplicate keys, and for null values of configs for which `has_value` is true."""
    listed = list(configs)
    if len({config.name for config in listed}) != len(listed):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [config.name for config in listed if config.value is None and has_value(config)]
    if nulls:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")


def check_permission(
    services: Services | ControllerServices, context: RequestContext, resource: ConfigResource, operation: AclOperation
) -> None:
    """Raise ApiError unless the client may do `operation` on the resource's configs.

    Deviation: Apache Kafka's broker authorizes and checks changes of a broker's configs, and its controller authorizes
    all of them again. Here each is authorized once, because both have the same ACLs.
    """
    kind, refusal = ResourceType.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    name = CLUSTER_NAME
    if resource.resource_type == RESOURCE_TOPIC:
        kind, refusal, name = ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED, resource.name
    elif resource.resource_type == RESOURCE_GROUP:
        kind, refusal, name = ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED, resource.name
    if not services.authorizer.authorize(context, operation, kind, name):
        raise ApiError(refusal, refusal.message)


def is_direct(services: Services | ControllerServices, context: RequestContext) -> bool:
    """Return whether a client sent a request to the controllers' listener, and no broker has seen it."""
    return isinstance(services, ControllerServices) and not context.connection.is_forwarded


def check_topic_name(name: str) -> None:
    """Raise ApiError for an invalid topic name; the empty name is refused by the controller."""
    reason = invalid_topic_name_reason(name) if name else None
    if reason is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def check_broker_id(services: Services | ControllerServices, name: str) -> None:
    """Raise ApiError unless a broker resource is this broker, or all brokers ("").

    A controller accepts any node: requests forwarded by brokers, and its own.
    """
    if name and not isinstance(services, ControllerServices):
        check_own_id(services, name)


def check_own_id(services: Services | ControllerServices, name: str) -> None:
    """Raise ApiError unless `name` is this node's id."""
    if broker_id_of(name, "Node id must be an integer, but it is: ") != services.node_id:
        message = f"Unexpected broker id, expected {services.node_id}, but received {name}"
        raise ApiError(ErrorCode.INVALID_REQUEST, message)


def broker_id_of(name: str, complaint: str) -> int:
    digits = name[1:] if name[:1] in ("+", "-") else name
    if not digits.isdecimal() or len(digits) > len(str(INT32_MAX)):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{complaint}{name}")
    return int(name)


def check_broker_configs(services: Services | ControllerServices, name: str, configs: Mapping[str, str]) -> None:
    """Raise ApiError unless `configs` are valid as all dynamic configs of this broker, or of all brokers ("").

    Brokers check this before they forward: the controller does not know their properties files.
    """
    if isinstance(services, ControllerServices):
        return
    try:
        services.dynamic_config.validate(configs, is_per_broker=name != "")
    except ConfigError as error:
        # Kafka answers INVALID_REQUEST here and INVALID_CONFIG for topics (KAFKA-13609).
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error


async def load_key_store_reader(services: Services | ControllerServices, resources: Iterable[RequestedConfigs]) -> None:
    """Import the PKCS12 reader in the IO pool if a request names key stores: it takes 120 ms."""
    if PKCS12_READER in sys.modules:
        return
    if any(KEY_STORE_KEY in config.name for resource in resources for config in resource.configs):
        await run_in_pool(services.io_pool, partial(import_module, PKCS12_READER))


async def write(
    services: Services | ControllerServices,
    context: RequestContext,
    resources: Iterable[ConfigResource],
    decide: Decide,
    request: Message,
) -> Results:
    """Send the change to the controller. If that fails, the error is the result of every resource.

    `request` is the same change as a request, the rest of the client's, for a controller on another node.
    """
    try:
        if not isinstance(services, ControllerServices) and not services.active_controller.is_local:
            response = await forward_message(services, context, request)
            if response is not None:
                return _results(response)
        return await services.metadata_changes.change(decide)
    except ApiError as error:
        return dict.fromkeys(resources, error)


def _results(response: Any) -> Results:
    """Return the result of each resource from a forwarded AlterConfigs or IncrementalAlterConfigs."""
    return {
        ConfigResource(each.resource_type, each.resource_name): (
            ApiError(each.error_code, each.error_message) if each.error_code else None
        )
        for each in response.responses
    }


def responses(new: NewResponse[ResponseT], resources: Iterable[RequestedResource], results: Results) -> list[ResponseT]:
    """Return each resource's response."""
    results_of_all = []
    for requested in resources:
        error = results[resource_of(requested)]
        code, message = (error.code, error.message) if error is not None else (ErrorCode.NONE, None)
        results_of_all.append(
            new(
                error_code=code,
                error_message=message,
                resource_type=requested.resource_type,
                resource_name=requested.resource_name,
            )
        )
    return results_of_all
