"""Waiting for a worker of the IO pool."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from kafkapy.seams import IoPool

T = TypeVar("T")

HEAVY_AT_ONCE: Final = 2
"""How much heavy work is done at a time: each may take some hundred MB of memory, and a processor."""


class HeavyWork:
    """Work of the pool that is large enough to be bounded: `at_once` at a time, the others wait in their order."""

    def __init__(self, io_pool: IoPool, at_once: int = HEAVY_AT_ONCE) -> None:
        self._io_pool = io_pool
        self._turns = asyncio.Semaphore(at_once)

    async def run(self, call: Callable[[], T]) -> T:
        """Run a call on a worker when its turn comes; return what it returns, or raise what it raises."""
        async with self._turns:
            return await run_in_pool(self._io_pool, call)


async def run_in_pool(io_pool: IoPool, call: Callable[[], T]) -> T:
    """Run a blocking call on a worker and return what it returns, or raise what it raises."""
    future: asyncio.Future[tuple[T | None, BaseException | None]] = asyncio.get_running_loop().create_future()
    io_pool.submit(call, partial(_complete, future))
    result, error = await future
    if error is None:
        return result  # type: ignore[return-value]
    try:
        raise error
    finally:
        del future, error  # else they, the traceback and this frame hold each other, and all that the call had in hand


def _complete(
    future: asyncio.Future[tuple[T | None, BaseException | None]], result: T | None, error: BaseException | None
) -> None:
    if not future.done():
        future.set_result((result, error))
