"""A stop is taken to its end, whatever one of its steps fails with: what comes last, the logs, matters most."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

logger = logging.getLogger("kafkapy.server")


async def take_steps(steps: "Iterable[Callable[[], Awaitable[object] | None]]") -> None:
    """Take the steps of a stop in their order. One that fails is logged, and those behind it are taken all the same.

    Raises the first failure once all are taken. To be cancelled is a failure, too, of the step at work.
    """
    first: BaseException | None = None
    for step in steps:
        try:
            waits = step()
            if waits is not None:
                await waits
        except (Exception, asyncio.CancelledError) as error:
            logger.error("The stop goes on after %s failed: %r", step.__qualname__, error, exc_info=error)
            first = first or error
    if first is not None:
        raise first
