"""Whoever judges by the clock that somebody fell silent lets the loop read first what waits in its sockets.

A loop that stood still, whatever for (a stopped process, a slow disk), finds its timers due together with frames that
came in time: libuv runs timers before it polls. So what such a timer is for is done READ_PASSES passes of the loop
after it. That is no time at all where nothing waits, and as long as reading takes where much does.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVarTuple, Unpack

Ts = TypeVarTuple("Ts")

READ_PASSES: Final = 3
"""One polls and reads what a socket holds, up to a turn's budget; one is for who waits for a turn behind that, or for a
connection that was accepted just now; and the first is the one in which the timer runs itself."""


class AfterReads:
    """A timer of the loop for what is not to be done before a read: `callback(*arguments)`, unless it is cancelled."""

    __slots__ = ("_handle", "_loop")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        delay_s: float,
        callback: Callable[[Unpack[Ts]], object],
        *arguments: *Ts,
    ) -> None:
        self._loop = loop
        self._handle: asyncio.Handle = loop.call_later(delay_s, self._pass, READ_PASSES, callback, *arguments)

    def _pass(self, left: int, callback: Callable[[Unpack[Ts]], object], *arguments: *Ts) -> None:
        if left:
            self._handle = self._loop.call_soon(self._pass, left - 1, callback, *arguments)
        else:
            callback(*arguments)

    def cancel(self) -> None:
        self._handle.cancel()
