"""A thread that runs an event loop, for nodes embedded in a synchronous program."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

IN_CHILD: Final = "this runs in the parent process, not in a forked child, which can use bootstrap_servers alone"

R = TypeVar("R")
P = ParamSpec("P")


class OfThread(Protocol):
    """An object whose coroutines may run on a thread of their own."""

    _thread: "LoopThread | None"


S = TypeVar("S", bound=OfThread)


def refuse_in_child(parent_pid: int) -> None:
    """Raise RuntimeError in a process that was forked from this one."""
    if os.getpid() != parent_pid:
        raise RuntimeError(IN_CHILD)


class LoopThread:
    """A thread with an event loop; other threads submit coroutines to it."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """loop: to run; None: a new one."""
        self._loop = _new_loop() if loop is None else loop
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kafkapy-broker", daemon=True)
        self._thread.start()

    @property
    def is_of_parent(self) -> bool:
        """Whether this process is a forked child, which has the object and not the thread."""
        return os.getpid() != self._pid

    def call(self, function: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Run a coroutine function on the loop; return its result at its end. Raises RuntimeError in a forked child."""
        self.check_not_in_child()
        return asyncio.run_coroutine_threadsafe(function(), self._loop).result()

    async def call_from(self, function: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Run a coroutine function on the loop, awaited from any loop; return its result. Raises as `call`."""
        if asyncio.get_running_loop() is self._loop:
            return await function()
        self.check_not_in_child()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(function(), self._loop))

    def check_not_in_child(self) -> None:
        """Raise RuntimeError in a forked child."""
        refuse_in_child(self._pid)

    def run_soon(self, function: Callable[[], None]) -> None:
        """Run a plain function on the loop and wait for its end."""

        async def run() -> None:
            function()

        self.call(run)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def on_own_loop(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Run a coroutine method on the loop of the object's thread, if it has one, else on the caller's."""

    async def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        thread = self._thread
        if thread is None:
            return await method(self, *args, **kwargs)
        return await thread.call_from(lambda: method(self, *args, **kwargs))

    run.__name__, run.__qualname__, run.__doc__ = method.__name__, method.__qualname__, method.__doc__
    return run


def _new_loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()
