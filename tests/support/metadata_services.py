"""Services and contexts for the handlers of the metadata plane: a Cluster whose decisions are committed at once."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kafkapy.config.load import load
from kafkapy.errors import ApiError
from kafkapy.handlers.encoded_responses import EncodedResponse, EncodedResponses
from kafkapy.handlers.topics_in_creation import TopicsInCreation
from kafkapy.metadata.image import MetadataImage
from kafkapy.protocol.messages.metadata_response import MetadataResponse
from kafkapy.runtime.turns import Turns
from kafkapy.security.authorizer import AclOperation, ResourceType
from tests.support.chance import SeededRandom
from tests.support.controllers import CLUSTER_ID, Cluster

PROPERTIES = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093",
}


class InstantController:
    """MetadataRuntime's face on a Cluster: what is decided is committed and in the image before write returns."""

    is_local = True

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.error: ApiError | None = None
        self.soon: list[Any] = []

    @property
    def image(self) -> MetadataImage:
        return self._cluster.image

    async def write(
        self, decide: Callable[[Any, int], Any], *, timeout_ms: int | None = None, may_interrupt: bool = False
    ) -> Any:
        if self.error is not None:
            raise self.error
        return self._cluster.commit(decide(self._cluster.controller, self._cluster.now_ms))

    async def change(self, decide: Callable[[Any, int], Any], *, timeout_ms: int | None = None) -> Any:
        """As MetadataPublisher does."""
        return await self.write(decide, timeout_ms=timeout_ms)

    async def send_request(
        self, request: Any, decide: Callable[[Any, int], Any], *, may_interrupt: bool = False
    ) -> Any:
        """As ActiveController does."""
        return await self.write(decide)

    def send_request_soon(
        self, request: Any, decide: Callable[[Any, int], Any], on_done: Callable[[Any], None]
    ) -> None:
        self.write_soon(decide, on_done)

    def write_soon(self, decide: Callable[[Any, int], Any], on_done: Callable[[Any], None]) -> None:
        response = self._cluster.commit(decide(self._cluster.controller, self._cluster.now_ms))
        self.soon.append(response)
        on_done(response)


class Deny:
    """An authorizer that allows all but the given (operation, resource name) pairs; name "" means any.

    It keeps what it was asked: operation, resource type, name, reference count, log_if_allowed, log_if_denied.
    """

    allows_everything = False
    logs_what_it_allows = True

    def __init__(self, *denied: tuple[AclOperation, str]) -> None:
        self._denied = set(denied)
        self.questions: list[tuple[str, str, str, int, bool, bool]] = []

    def authorize(
        self,
        requester: Any,
        operation: AclOperation,
        resource_type: ResourceType,
        resource_name: str,
        *,
        reference_count: int = 1,
        log_if_allowed: bool = True,
        log_if_denied: bool = True,
    ) -> bool:
        question = (operation.name, resource_type.name, resource_name, reference_count, log_if_allowed, log_if_denied)
        self.questions.append(question)
        return self.is_allowed(requester, operation, resource_type, resource_name)

    def is_allowed(
        self, requester: Any, operation: AclOperation, resource_type: ResourceType, resource_name: str
    ) -> bool:
        return (operation, resource_name) not in self._denied and (operation, "") not in self._denied

    def authorize_by_resource_type(self, requester: Any, operation: AclOperation, resource_type: ResourceType) -> bool:
        return (operation, "") not in self._denied


def services(cluster: Cluster, *, authorizer: Any = None, **properties: str) -> Any:
    config, _ = load({**PROPERTIES, **{key.replace("_", "."): value for key, value in properties.items()}})
    controller = InstantController(cluster)
    return SimpleNamespace(
        cluster_id=CLUSTER_ID,
        node_id=1,
        config=config,
        random=SeededRandom(),
        authorizer=authorizer or Deny(),
        metadata=controller,
        controller=controller,
        active_controller=controller,
        metadata_changes=controller,
        encoded_responses=EncodedResponses(),
        topics_in_creation=TopicsInCreation(),
        **walking(),
    )


def walking() -> dict[str, Any]:
    """Return the services that a walk over entries takes, on a clock that stands still, and a quorum that goes on."""
    return {
        "turns": Turns(),
        "clock": SimpleNamespace(monotonic_ms=lambda: 0),
        "quorum": SimpleNamespace(effects=SimpleNamespace(waited_ms=0)),
    }


def context(api_version: int, listener_name: str = "PLAINTEXT") -> Any:
    return SimpleNamespace(
        api_version=api_version,
        listener_name=listener_name,
        principal="User:ANONYMOUS",
        client_host="127.0.0.1",
        meter=None,
        is_long=False,
    )


def response_of(coroutine: Any) -> Any:
    """Drive a handler that must not suspend."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the handler waits")


def on_wire(response: Any, api_version: int) -> Any:
    """Return the response as a client reads it: what cannot be encoded at its version fails here."""
    if isinstance(response, EncodedResponse):
        return MetadataResponse.decode(response.body, api_version)
    return type(response).decode(response.encode(api_version), api_version)
