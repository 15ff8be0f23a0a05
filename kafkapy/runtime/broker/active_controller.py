"""Sends requests to the active controller: in this process if this node is it, else over the network.

The leader of the metadata quorum is the active controller. If it changes before the response, or cannot be reached,
ApiError NOT_CONTROLLER is raised; the caller decides whether to retry. Requests that must not wait behind others (a
heartbeat behind a forwarded request) use an ActiveController of their own, with its own connection. Source: KIP-631,
and Apache Kafka's NodeToControllerChannelManager.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkapy.protocol.primitives import Message
from kafkapy.protocol.response_error import response_error

if TYPE_CHECKING:
    from kafkapy.machine import Decided
    from kafkapy.metadata.controller import Controller
    from kafkapy.metadata.image import MetadataImage
    from kafkapy.runtime.broker.controller_channel import ControllerChannel
    from kafkapy.runtime.controller.controller import MetadataRuntime

ResponseT = TypeVar("ResponseT", bound=Message)

LOCAL_TIMEOUT_MS: Final = 30_000
"""How long a request waits in this process: as long as a connection does by default (controller.socket.timeout.ms). A
controller whose log has no room any more never commits what it has appended, and another node is active by then."""


class ActiveController:
    """A broker's access to the active controller."""

    def __init__(
        self, controller: "MetadataRuntime", new_channel: "Callable[[], ControllerChannel] | None" = None
    ) -> None:
        """`new_channel` makes the connection to another node when it is first needed; None in a cluster of one node."""
        self._controller = controller
        self._new_channel = new_channel
        self._channel: ControllerChannel | None = None
        self._asking: set[asyncio.Task[None]] = set()

    @property
    def image(self) -> "MetadataImage":
        """The last committed image."""
        return self._controller.image

    @property
    def is_local(self) -> bool:
        """Whether this node is the active controller, or the only node that could be."""
        return self._new_channel is None or self._controller.is_active

    @property
    def api_versions(self) -> "dict[int, tuple[int, int]] | None":
        """The lowest and highest version of each API of an active controller elsewhere, by API key.

        None if it is this node, or while this node is not connected to it.
        """
        return None if self._channel is None or self.is_local else self._channel.api_versions

    async def send_request(
        self,
        request: Message,
        decide: "Callable[[Controller, int], Decided[Any, ResponseT]]",
        *,
        may_interrupt: bool = False,
        timeout_ms: int = LOCAL_TIMEOUT_MS,
    ) -> ResponseT:
        """Return the response to `request`; if this node is the active controller, `decide` makes it.

        may_interrupt, timeout_ms: see MetadataRuntime.write; a connection has a time-out of its own. Raises ApiError if
        the response as a whole is an error.
        """
        if self.is_local:
            return await self._controller.write(decide, timeout_ms=timeout_ms, may_interrupt=may_interrupt)
        response: Any = await self.call(request)
        if getattr(response, "error_code", 0):
            raise response_error(response.error_code, getattr(response, "error_message", None))
        answered: ResponseT = response
        return answered

    def send_request_soon(
        self,
        request: Message,
        decide: "Callable[[Controller, int], Decided[Any, ResponseT]]",
        on_done: "Callable[[ResponseT | BaseException], None]",
    ) -> None:
        """Like `send_request` without waiting; `on_done` gets the response or the error."""
        if self.is_local:
            self._controller.write_soon(decide, on_done, timeout_ms=LOCAL_TIMEOUT_MS)
            return

        async def run() -> None:
            try:
                result: ResponseT | BaseException = await self.send_request(request, decide)
            except Exception as error:  # on_done must be called after any error
                result = error
            on_done(result)

        task = asyncio.get_running_loop().create_task(run())
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def call(self, request: Message) -> Message:
        """Return another node's response unchanged. Raises ApiError: NOT_CONTROLLER, UNSUPPORTED_VERSION."""
        assert self._new_channel is not None
        if self._channel is None:
            self._channel = self._new_channel()
        response: Message = await self._channel.call(request)
        return response
