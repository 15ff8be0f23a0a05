"""Connections of the console's server whose request has not arrived yet, or whose response is not read: their bounds.

A request line with its headers has HEAD_TIMEOUT_S. If there are more than MAX_CONNECTIONS, the connection that has kept
its head back for longest is closed. So half requests, however many, keep no one out.

A response of which the peer reads nothing for UNREAD_TIMEOUT_S ends its connection, and with it a search or tail: there
are few of them for all visitors. If more than MAX_UNSENT_BYTES are unsent, those that wait longest are closed.
"""

import asyncio
import socket
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_TIMEOUT_S: Final = 5.0
"""A browser sends a request's head at once: half a head for so long is none."""
MAX_CONNECTIONS: Final = 200
"""Some thirty browsers with the six connections that each opens to a host."""
UNREAD_TIMEOUT_S: Final = 30.0
"""A browser reads what a hidden tab gets, too. One that was suspended connects again, and its tail goes on."""
SEND_BUFFER_BYTES: Final = 1 << 16
"""Of the kernel, for each connection: by default it takes megabytes, and an unread tail is noticed after hours."""
MAX_UNSENT_BYTES: Final = 32 << 20
"""Of all responses together: several events of a search, which are the largest responses with 4 MiB of records each."""


def new_protocol(
    *,
    max_connections: int = MAX_CONNECTIONS,
    head_timeout_s: float = HEAD_TIMEOUT_S,
    unread_timeout_s: float = UNREAD_TIMEOUT_S,
    max_unsent_bytes: int = MAX_UNSENT_BYTES,
) -> type[H11Protocol]:
    """Return the protocol class of one server: its connections know each other."""
    unread: dict[H11Protocol, asyncio.TimerHandle] = {}
    """Connections with unsent bytes and their timers, the one that waits longest first."""
    incomplete: dict[H11Protocol, asyncio.TimerHandle] = {}
    """Connections without a whole head and their timers, the oldest first."""

    class BoundedProtocol(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            connection = transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
            transport.set_write_buffer_limits(0)  # any unsent byte pauses the response, and is watched
            self._await_head()
            if len(self.connections) > max_connections:
                # Many may be accepted before the loop tells of the first one's end: each takes another one's place.
                oldest = next(iter(incomplete))
                incomplete.pop(oldest).cancel()
                oldest.transport.abort()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._stop_waiting()
            elif self not in incomplete:  # the head of a further request has begun
                self._await_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            self._stop_watching()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._watch()
            unsent_bytes = sum(each.transport.get_write_buffer_size() for each in unread)
            while unsent_bytes > max_unsent_bytes and len(unread) > 1:
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
            unread[self] = self.loop.call_later(unread_timeout_s, self._end_if_unread, unsent_bytes)

        def _end_if_unread(self, unsent_bytes: int) -> None:
            if self.transport.get_write_buffer_size() < unsent_bytes:
                self._watch()
            else:
                self._stop_watching()
                self.transport.abort()

        def _stop_watching(self) -> None:
            timer = unread.pop(self, None)
            if timer is not None:
                timer.cancel()

        def _await_head(self) -> None:
            incomplete[self] = self.loop.call_later(head_timeout_s, self.transport.abort)

        def _stop_waiting(self) -> None:
            timer = incomplete.pop(self, None)
            if timer is not None:
                timer.cancel()

    return BoundedProtocol
