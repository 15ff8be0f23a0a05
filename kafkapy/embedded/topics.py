"""Topics of an embedded broker or cluster, created and deleted without a client."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkapy.errors import ApiError
from kafkapy.metadata.topic_names import prohibited_name_error
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkapy.protocol.messages.create_topics_response import CreateTopicsResponse
from kafkapy.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState

if TYPE_CHECKING:
    from kafkapy.server.broker import BrokerServer
    from kafkapy.server.cluster.queries import Ask

MS_PER_S: Final = 1000
RETRY_S: Final = 0.05
WITHOUT_CONTROLLER: Final = frozenset((ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT))


async def create_topics(
    server: "BrokerServer", names: Sequence[str], *, partitions: int, configs: Mapping[str, str], timeout_s: float
) -> None:
    """Create topics with distinct names; all that can be, then raise the first ApiError."""
    request = topic_creation(names, partitions=partitions, replicas=-1, configs=configs, timeout_s=timeout_s)
    raise_first(await server.change(lambda controller, _: controller.topics.decide_create(request)))


async def delete_topics(server: "BrokerServer", names: Sequence[str]) -> None:
    """Delete the topics of these names that exist. Raises ApiError."""
    by_name = server.node.controller.image.topics.by_name
    topic_ids = [by_name[name].topic_id for name in names if name in by_name]
    for error in (await server.change(lambda controller, _: controller.topics.decide_delete(topic_ids))).values():
        if error is not None:
            raise error


def topic_creation(
    names: Sequence[str], *, partitions: int, replicas: int, configs: Mapping[str, str], timeout_s: float
) -> CreateTopicsRequest:
    """Return the request that creates topics. Raises ApiError for names that are reserved, TypeError for no texts."""
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"topics are created by name: create_topics('orders', 'invoices'), not of {name!r}")
        error = prohibited_name_error(name)
        if error is not None:
            raise error
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=replicas,
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
            )
            for name in names
        ],
        timeout_ms=int(timeout_s * MS_PER_S),
    )


def topic_deletion(names: Sequence[str], *, timeout_s: float) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in names], timeout_ms=int(timeout_s * MS_PER_S)
    )


def request_of_controller(
    new_ask: "Callable[[], Ask]", request: CreateTopicsRequest | DeleteTopicsRequest, *, timeout_s: float
) -> Any:
    """Return a broker's response to a request for the active controller; wait for a controller. Raises as an Ask."""
    deadline = time.monotonic() + timeout_s
    while True:
        response = new_ask()(request, timeout_s=timeout_s)
        codes = {result.error_code for result in _results(response)}
        if codes.isdisjoint(WITHOUT_CONTROLLER) or time.monotonic() > deadline:
            return response
        time.sleep(RETRY_S)


def raise_first(response: Any, *ignored: ErrorCode) -> None:
    """Raise the first ApiError of a response to CreateTopics or DeleteTopics."""
    for result in _results(response):
        if result.error_code and result.error_code not in ignored:
            raise ApiError(ErrorCode(result.error_code), f"{result.name}: {result.error_message}")


def _results(response: Any) -> Any:
    return response.topics if isinstance(response, CreateTopicsResponse) else response.responses
