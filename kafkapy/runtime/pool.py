"""Waiting for a worker of the IO pool."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from kafkapy.seams import IoPool

T = TypeVar("T")


async def run_in_pool(io_pool: IoPool, call: Callable[[], T]) -> T:
    """Run a blocking call on a worker and return what it returns, or raise what it raises."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def on_done(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    io_pool.submit(call, on_done)
    return await future
