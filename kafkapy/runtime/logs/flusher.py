"""Flushes that requests wait for: with flush.messages, a produce response waits until its records are durable.

One flush of a log runs at a time; the next one covers everything appended meanwhile and all its waiters.

Deviation: Apache Kafka blocks the log and its readers during a flush for flush.messages. Here consumers may read a
record before its producer has been answered, because the event loop does not wait for disks.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkapy.errors import ApiError, StorageError
from kafkapy.runtime.pool import run_in_pool
from kafkapy.storage.log.flush import Flush, prepare_flush

if TYPE_CHECKING:
    from kafkapy.seams import Clock, IoPool
    from kafkapy.storage.log.log import Log

logger = logging.getLogger("kafkapy.storage")


class LogFlusher:
    """Group commit: all callers that wait for a log share its next flush; one flush of a log runs at a time."""

    def __init__(self, io_pool: "IoPool", clock: "Clock") -> None:
        self._io_pool = io_pool
        self._clock = clock
        self._waiting: dict[Log, list[asyncio.Future[None]]] = {}
        self._tasks: dict[Log, asyncio.Task[None]] = {}

    async def flush(self, log: "Log") -> None:
        """Return once all records now in the log are durable. Raises StorageError, ApiError KAFKA_STORAGE_ERROR."""
        await self._begin(log)

    def request(self, log: "Log", on_done: Callable[[], None]) -> None:
        """Call on_done() once all records now in the log are durable, or the flush has failed."""

        def on_outcome(future: asyncio.Future[None]) -> None:
            error = future.exception()
            if error is not None:
                logger.warning("Could not flush %s: %s", log.topic_partition, error)
            on_done()

        self._begin(log).add_done_callback(on_outcome)

    def _begin(self, log: "Log") -> "asyncio.Future[None]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(log, []).append(future)
        if log not in self._tasks:
            self._tasks[log] = loop.create_task(self._work(log))
        return future

    async def close(self) -> None:
        """Wait for the requested flushes."""
        await asyncio.gather(*self._tasks.values())

    async def _work(self, log: "Log") -> None:
        try:
            while log in self._waiting:
                while (other := log.flush_under_way) is not None:
                    await _end_of(other)
                waiting = self._waiting.pop(log)
                try:
                    await self._flush(log)
                except (ApiError, StorageError, AssertionError) as error:
                    _set_outcomes(waiting, error)
                else:
                    _set_outcomes(waiting, None)
        finally:
            del self._tasks[log]

    async def _flush(self, log: "Log") -> None:
        flush = prepare_flush(log)
        try:
            await run_in_pool(self._io_pool, flush.run)
        finally:
            flush.complete(self._clock.wall_ms())


async def _end_of(flush: Flush) -> None:
    """Return once another flush of the log (the periodic one) is complete."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    flush.on_complete.append(lambda: None if future.done() else future.set_result(None))
    await future


def _set_outcomes(waiting: "list[asyncio.Future[None]]", error: Exception | None) -> None:
    for future in waiting:
        if future.done():
            continue  # the waiter was cancelled
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
