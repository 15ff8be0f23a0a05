"""A timer that declares a peer dead only after the event loop has read what its sockets already hold.

After a stall (a stopped process, a slow disk) the loop finds timers due together with frames that arrived in time, and
libuv runs timers before it polls. So the callback runs READ_PASSES passes of the loop after the timer. An idle loop
makes these passes at once; a loop with much to read takes as long as reading takes.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVarTuple, Unpack

Ts = TypeVarTuple("Ts")

READ_PASSES: Final = 3
"""One pass polls and reads each socket up to its budget. One is for sockets that wait for their turn after that, and
for connections accepted just now. The first is the pass in which the timer itself runs."""


class AfterReads:
    """Calls `callback(*arguments)` after `delay_s` and READ_PASSES passes of the loop, unless cancelled."""

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
