"""Connections of the console's server whose request has not arrived yet: what bounds them.

A request line with its headers has HEAD_TIMEOUT_S. If there are more than MAX_CONNECTIONS, the connection that has kept
its head back for longest is closed. So half requests, however many, keep no one out.
"""

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_TIMEOUT_S: Final = 5.0
"""A browser sends a request's head at once: half a head for so long is none."""
MAX_CONNECTIONS: Final = 200
"""Some thirty browsers with the six connections that each opens to a host."""


def new_protocol(
    *, max_connections: int = MAX_CONNECTIONS, head_timeout_s: float = HEAD_TIMEOUT_S
) -> type[H11Protocol]:
    """Return the protocol class of one server: its connections know each other."""
    incomplete: dict[H11Protocol, asyncio.TimerHandle] = {}
    """Connections without a whole head and their timers, the oldest first."""

    class BoundedProtocol(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._await_head()
            if len(self.connections) > max_connections:
                next(iter(incomplete)).transport.abort()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._stop_waiting()
            elif self not in incomplete:  # the head of a further request has begun
                self._await_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def _await_head(self) -> None:
            incomplete[self] = self.loop.call_later(head_timeout_s, self.transport.abort)

        def _stop_waiting(self) -> None:
            timer = incomplete.pop(self, None)
            if timer is not None:
                timer.cancel()

    return BoundedProtocol
