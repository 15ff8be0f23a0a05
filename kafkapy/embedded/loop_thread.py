"""A thread that runs an event loop, for nodes embedded in a synchronous program."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

R = TypeVar("R")


class LoopThread:
    """A thread with an event loop; other threads submit coroutines to it."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """loop: to run; None: a new one."""
        self._loop = _new_loop() if loop is None else loop
        self._thread = threading.Thread(target=self._loop.run_forever, name="kafkapy-broker", daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Run a coroutine function on the loop and wait for its end; return its result."""
        return asyncio.run_coroutine_threadsafe(function(), self._loop).result()

    def run_soon(self, function: Callable[[], None]) -> None:
        """Run a plain function on the loop and wait for its end."""

        async def run() -> None:
            function()

        self.call(run)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()
