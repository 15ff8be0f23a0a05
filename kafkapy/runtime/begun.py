"""Background work that continues after its connection has closed; it gets a task only if it has to wait.

    writing = begin(self._write(...), self._start)    # a future, done already if the write did not have to wait
    refusals = await asyncio.shield(writing)

Until it first waits, the work runs in the caller and has no task of its own, as a handler (reactor/pending_request.py).
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def begin(
    work: Coroutine[Any, Any, T], start: "Callable[[Coroutine[Any, Any, T]], asyncio.Task[T]]"
) -> "asyncio.Future[T]":
    """Run the work until it first waits; `start` makes a task of the rest. Return a future of its result."""
    try:
        awaited = work.send(None)
    except StopIteration as end:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        done.set_result(end.value)
        return done
    return start(_finish(_Rest(work, awaited)))


async def _finish(rest: "_Rest[T]") -> T:
    return await rest


class _Rest(Generic[T]):
    """The rest of work that waits for `awaited`: a future, or None for the loop's next pass."""

    __slots__ = ("_awaited", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], awaited: Any) -> None:
        self._work = work
        self._awaited = awaited

    def __await__(self) -> Generator[Any, None, T]:
        """Pass each awaited object to the task, and the result or error of its wait to the work."""
        work, awaited = self._work, self._awaited
        try:
            while True:
                try:
                    yield awaited
                except BaseException as error:
                    awaited = work.throw(error)
                else:
                    awaited = work.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
