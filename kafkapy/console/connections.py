"""Connections of the console's server whose request has not arrived yet, or whose response is not read: their bounds.

A request line with its headers has HEAD_TIMEOUT_S. If there are more than MAX_CONNECTIONS, the connection that has kept
its head back for longest is closed. So requests that never become complete, however many, lock no visitor out.

A response of which the peer reads nothing for UNREAD_TIMEOUT_S ends its connection, and with it a search or tail: there
are few of them for all visitors. If more than MAX_UNSENT_BYTES are unsent, those that wait longest are closed.
"""

import asyncio
import socket
from dataclasses import field
from typing import Any, ClassVar, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from kafkapy.dataclass import dataclass

HEAD_TIMEOUT_S: Final = 5.0
"""A browser sends a request's head at once: half a head for so long is none."""
MAX_CONNECTIONS: Final = 200
"""Some thirty browsers with the six connections that each opens to a host."""
UNREAD_TIMEOUT_S: Final = 30.0
"""A browser reads what a hidden tab gets, too. One that was suspended connects again, and its tail goes on."""
SEND_BUFFER_BYTES: Final = 1 << 16
"""The kernel's send buffer of a connection: its default is megabytes, and an unread tail is noticed after hours."""
MAX_UNSENT_BYTES: Final = 32 << 20
"""Unsent bytes of all responses: several events of a search, the largest responses, with 4 MiB of records each."""


@dataclass(slots=True)
class Bounds:
    """The bounds of one server, and its connections that are watched."""

    max_connections: int
    head_timeout_s: float
    unread_timeout_s: float
    max_unsent_bytes: int
    unread: dict["BoundedProtocol", asyncio.TimerHandle] = field(default_factory=dict)
    """Connections with unsent bytes and their timers, the one that waits longest first."""
    incomplete: dict["BoundedProtocol", asyncio.TimerHandle] = field(default_factory=dict)
    """Connections without a whole head and their timers, the oldest first."""


class BoundedProtocol(H11Protocol):
    """A connection of a server whose `bounds` all its connections share."""

    bounds: ClassVar[Bounds]

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        transport.set_write_buffer_limits(0)  # any unsent byte pauses the response, and is watched
        self._await_head()
        if len(self.connections) > self.bounds.max_connections:
            # Several are accepted in one pass of the loop, which reports ends later: each takes another's place.
            oldest = next(iter(self.bounds.incomplete))
            self.bounds.incomplete.pop(oldest).cancel()
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()
        elif self not in self.bounds.incomplete:  # the head of a further request has begun
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._stop_watching()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()
        unread = self.bounds.unread
        unsent_bytes = sum(each.transport.get_write_buffer_size() for each in unread)
        while unsent_bytes > self.bounds.max_unsent_bytes and len(unread) > 1:
            longest = next(iter(unread))
            unread.pop(longest).cancel()
            unsent_bytes -= longest.transport.get_write_buffer_size()
            longest.transport.abort()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_watching()

    def _watch(self) -> None:
        """Look whether the peer reads: while the response is paused, unsent bytes only become fewer."""
        unsent_bytes = self.transport.get_write_buffer_size()
        timer = self.loop.call_later(self.bounds.unread_timeout_s, self._end_if_unread, unsent_bytes)
        self.bounds.unread[self] = timer

    def _end_if_unread(self, unsent_bytes: int) -> None:
        if self.transport.get_write_buffer_size() < unsent_bytes:
            self._watch()
        else:
            self._stop_watching()
            self.transport.abort()

    def _stop_watching(self) -> None:
        timer = self.bounds.unread.pop(self, None)
        if timer is not None:
            timer.cancel()

    def _await_head(self) -> None:
        self.bounds.incomplete[self] = self.loop.call_later(self.bounds.head_timeout_s, self.transport.abort)

    def _stop_waiting(self) -> None:
        timer = self.bounds.incomplete.pop(self, None)
        if timer is not None:
            timer.cancel()


def new_protocol(
    *,
    max_connections: int = MAX_CONNECTIONS,
    head_timeout_s: float = HEAD_TIMEOUT_S,
    unread_timeout_s: float = UNREAD_TIMEOUT_S,
    max_unsent_bytes: int = MAX_UNSENT_BYTES,
) -> type[BoundedProtocol]:
    """Return the protocol class of one server: its connections know each other."""

    class ServerProtocol(BoundedProtocol):
        bounds = Bounds(max_connections, head_timeout_s, unread_timeout_s, max_unsent_bytes)

    return ServerProtocol
