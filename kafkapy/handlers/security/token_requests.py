"""Shared by the requests about delegation tokens: the check of the connection, and forwarding to the controller."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from kafkapy.errors import ApiError
from kafkapy.handlers.context import ControllerServices, RequestContext, Services
from kafkapy.handlers.forwarding import forward_message
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.primitives import Message

if TYPE_CHECKING:
    from kafkapy.machine import Decided
    from kafkapy.metadata.controller import Controller

R = TypeVar("R")

ANONYMOUS = "User:ANONYMOUS"
NO_TIME = -1
"""The timestamps in responses of a broker that refuses."""


def check_connection(context: RequestContext) -> None:
    """Raise ApiError unless the client is authenticated, and not by a delegation token.

    If the request is forwarded, the forwarding broker has checked the connection.
    """
    connection = context.connection
    protocol = context.security_protocol
    is_stranger = protocol == "PLAINTEXT" or (protocol == "SSL" and context.principal == ANONYMOUS)
    if connection.is_by_token or (is_stranger and not connection.is_forwarded):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


async def forward_to_controller(
    services: Services | ControllerServices, context: RequestContext, request: Message
) -> Message | None:
    """Forward the request if another node is the active controller; return its response, None if this node decides."""
    if isinstance(services, ControllerServices) or services.active_controller.is_local:
        return None
    return await forward_message(services, context, request)


async def change(services: Services | ControllerServices, decide: "Callable[[Controller, int], Decided[Any, R]]") -> R:
    """Send a decision to the controller; it gets the wall clock time in ms. Raises ApiError."""
    now_ms = services.clock.wall_ms()
    return await services.metadata_changes.change(lambda controller, _: decide(controller, now_ms))


def split(principal: str) -> tuple[str, str]:
    """Return type and name of a principal."""
    kind, _, name = principal.partition(":")
    return kind, name
