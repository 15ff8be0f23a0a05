"""Hands out producer ids to idempotent producers (InitProducerId), from a ProducerIdBlock of the controller.

A block is used by one broker only; ids left at a stop are never used. The next block is requested when 90 % of the
current one are used.

Deviation: Apache Kafka answers COORDINATOR_LOAD_IN_PROGRESS if no id is left while a block is being requested. Here the
request waits for it, because a producer's first request then needs no retry.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode

PREFETCH_AT = 0.9

logger = logging.getLogger("kafkapy.runtime")


class ProducerIdManager:
    """Hands out ids; `allocate_block` asks the controller for a range reserved for us (it may raise ApiError)."""

    def __init__(self, allocate_block: Callable[[], Awaitable[range]]) -> None:
        self._allocate_block = allocate_block
        self._block = range(0)
        self._used = 0
        self._next_block: asyncio.Task[range] | None = None

    async def next_id(self) -> int:
        """Return an unused id. Raises ApiError COORDINATOR_LOAD_IN_PROGRESS if there is none."""
        await self.at_hand()
        producer_id = self.allocate()
        assert producer_id is not None
        return producer_id

    async def at_hand(self) -> None:
        """Return once `allocate` has an id to return. Raises ApiError COORDINATOR_LOAD_IN_PROGRESS."""
        while self._used == len(self._block):
            await self._request_next_block()

    def allocate(self) -> int | None:
        """Return an unused id, or None if the block is used up (then await `at_hand`)."""
        if self._used == len(self._block):
            return None
        producer_id = self._block[self._used]
        self._used += 1
        if self._used >= len(self._block) * PREFETCH_AT:
            self._request_block()
        return producer_id

    async def close(self) -> None:
        """Cancel a pending request."""
        task, self._next_block = self._next_block, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _request_block(self) -> asyncio.Task[range]:
        if self._next_block is None:
            self._next_block = asyncio.ensure_future(self._allocate())
            self._next_block.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._next_block

    async def _allocate(self) -> range:
        """Request a block. Raises ApiError COORDINATOR_LOAD_IN_PROGRESS, which makes every producer retry."""
        try:
            return await self._allocate_block()
        except ApiError as error:
            logger.warning("Could not get producer ids from the controller: %s", error)
            message = "No producer id is at hand, and the controller gave none."
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message) from error

    async def _request_next_block(self) -> None:
        """Wait for the requested block; if several callers wait for it, the first to wake installs it."""
        task = self._request_block()
        try:
            block = await asyncio.shield(task)
        finally:
            if task.done() and self._next_block is task:
                self._next_block = None
        if self._used == len(self._block) and block.start >= self._block.stop:
            self._block, self._used = block, 0
