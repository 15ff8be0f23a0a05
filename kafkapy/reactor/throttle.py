"""The throttle of one connection: until its end no request starts (KIP-219)."""

import asyncio
from collections.abc import Callable


class Throttle:
    """A timer for the end of the longest throttle."""

    __slots__ = ("_loop", "_on_end", "_timer", "_until_s")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_end: Callable[[], None]) -> None:
        self._loop = loop
        self._on_end = on_end
        self._timer: asyncio.TimerHandle | None = None
        self._until_s = 0.0

    def extend(self, throttle_ms: int) -> bool:
        """Throttle for so long from now on, at least; return whether there was no throttle before."""
        until_s = self._loop.time() + throttle_ms / 1000
        is_new = self._timer is None
        if not is_new and until_s <= self._until_s:
            return False
        self.cancel()
        self._until_s = until_s
        self._timer = self._loop.call_at(until_s, self._end)
        return is_new

    def cancel(self) -> None:
        """Cancel the throttle, whose end may be days ahead."""
        if self._timer is not None:
            self._timer.cancel()

    def _end(self) -> None:
        self._timer = None
        self._on_end()
