"""What AlterConfigs and IncrementalAlterConfigs share: refusing resources one by one, then one write for the rest.

A broker checks what concerns itself (its own configs, duplicates, permission) before the controller decides.
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
from kafkapy.metadata.topics import invalid_topic_name_reason
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.primitives import Message
from kafkapy.runtime.pool import run_in_pool
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType

KEY_STORE_KEY: Final = "store.location"
PKCS12_READER: Final = "cryptography.hazmat.primitives.serialization.pkcs12"

Results = dict[ConfigResource, ApiError | None]
ResponseT = TypeVar("ResponseT")
Decide = Callable[[Controller, int], Decided[Any, Results]]


class NamedConfig(Protocol):
    name: str
    value: str | None


class RequestedConfigs(Protocol):
    @property
    def configs(self) -> "Sequence[NamedConfig]": ...


class RequestedResource(Protocol):
    resource_type: int
    resource_name: str


def resource_of(requested: RequestedResource) -> ConfigResource:
    return ConfigResource(requested.resource_type, requested.resource_name)


def twice_named(resources: Iterable[RequestedResource]) -> set[ConfigResource]:
    """Return the resources that a request names more than once: each time they are refused."""
    return {resource for resource, count in Counter(map(resource_of, resources)).items() if count > 1}


def check_duplicate(resource: ConfigResource, duplicates: set[ConfigResource]) -> None:
    if resource in duplicates:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


def check_names_and_values(configs: Iterable[NamedConfig], has_value: Callable[[Any], bool]) -> None:
    """Refuse keys named twice, and nulls where `has_value` says that a value is needed. Raises ApiError."""
    listed = list(configs)
    if len({config.name for config in listed}) != len(listed):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [config.name for config in listed if config.value is None and has_value(config)]
    if nulls:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")


def check_permission(
    services: Services | ControllerServices, context: RequestContext, resource: ConfigResource, operation: AclOperation
) -> None:
    """Raise ApiError unless the asker may do `operation` to the resource's configs.

    Deviation: it is asked before a broker's configs are checked, so that the answer tells nothing to who may not know.
    Apache Kafka's broker checks them first, and its controller asks about what has passed.
    """
    kind, refusal = ResourceType.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    name = CLUSTER_NAME
    if resource.resource_type == RESOURCE_TOPIC:
        kind, refusal, name = ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED, resource.name
    elif resource.resource_type == RESOURCE_GROUP:
        kind, refusal, name = ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED, resource.name
    if not services.authorizer.authorize(context, operation, kind, name):
        raise ApiError(refusal, refusal.message)


def check_topic_name(name: str) -> None:
    """Raise ApiError for a name that no topic can have; the empty one is refused by the controller's rules."""
    reason = invalid_topic_name_reason(name) if name else None
    if reason is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def check_broker_id(services: Services | ControllerServices, name: str) -> None:
    """Raise ApiError unless a broker's configs are asked of that broker itself ("": of all brokers).

    A controller takes any node's: those that a broker has passed on, and its own.
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
    if not digits.isdecimal():
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{complaint}{name}")
    return int(name)


def check_broker_configs(services: Services | ControllerServices, name: str, configs: Mapping[str, str]) -> None:
    """Raise ApiError unless `configs` could become all that is set for this broker, or for all ("").

    A broker checks its own before it passes them on; the controller knows no broker's properties file.
    """
    if isinstance(services, ControllerServices):
        return
    try:
        services.dynamic_config.validate(configs, is_per_broker=name != "")
    except ConfigError as error:
        # Kafka answers INVALID_REQUEST here and INVALID_CONFIG for topics (KAFKA-13609).
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error


async def load_key_store_reader(services: Services | ControllerServices, resources: Iterable[RequestedConfigs]) -> None:
    """Import what opens PKCS12 files, if a request names key stores: 120 ms, which nobody else is to wait for."""
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
    """Have the controller decide; where it cannot, that is the result of every resource.

    `request` says the same for a controller on another node: what is left of the client's request.
    """
    try:
        if not isinstance(services, ControllerServices) and not services.active_controller.is_local:
            response = await forward_message(services, context, request)
            if response is not None:
                return _results(response)
        return await services.follower.change(decide)
    except ApiError as error:
        return dict.fromkeys(resources, error)


def _results(response: Any) -> Results:
    """Return what the controller's answer to AlterConfigs or IncrementalAlterConfigs says of each resource."""
    return {
        ConfigResource(each.resource_type, each.resource_name): (
            ApiError(each.error_code, each.error_message) if each.error_code else None
        )
        for each in response.responses
    }


def responses(
    new: Callable[[int, str | None, int, str], ResponseT], resources: Iterable[RequestedResource], results: Results
) -> list[ResponseT]:
    """Return what is told of each resource, as `new(error_code, error_message, resource_type, resource_name)`."""
    told = []
    for requested in resources:
        error = results[resource_of(requested)]
        code, message = (error.code, error.message) if error is not None else (ErrorCode.NONE, None)
        told.append(new(code, message, requested.resource_type, requested.resource_name))
    return told
