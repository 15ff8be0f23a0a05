"""Awaiting calls in the IO pool, and a memory budget for conversions and decompressions that run there."""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final, TypeAlias, TypeVar

from kafkapy.seams import IoPool

T = TypeVar("T")
_Outcome: TypeAlias = tuple[T | None, BaseException | None]

WORK_BYTES: Final = 128 << 20
"""Memory of all heavy work at a time, beside its requests: two of the largest batches of Kafka's default
max.message.bytes, and a small one. Work that needs more (a topic with larger batches) runs alone."""

SMALL_WORK_BYTES: Final = 8 << 20
"""Work up to this size is small. Small work has its own slot and its own part of the budget: it takes some milliseconds
and need not wait for larger work, which may take a second."""

RESPONSE_BYTES: Final = 64 << 20
"""Separate budget for results that wait until peers read them, so that a peer that reads nothing does not delay the
work of others."""

SMALL_RESPONSE_BYTES: Final = 64 << 10
"""A result up to this size always gets room: responses of any other API may be as large."""

UNLIMITED: Final = 1 << 62

LARGE_AT_ONCE: Final = 2
"""Large work items at a time: each occupies a processor, and sometimes keeps the GIL from the event loop."""


class QueuedWork:
    """Pool work that needs little memory: at most `at_once` calls at a time; waiting clients take turns."""

    def __init__(self, io_pool: IoPool, at_once: int) -> None:
        self._io_pool = io_pool
        self._lane = Lane(max_at_once=at_once, max_bytes=0)

    async def run(self, call: Callable[[], T], client: Hashable = None) -> T:
        """Run a call on a worker when its turn comes; return its result or raise its error."""
        await self._lane.enter(0, client)
        try:
            return await run_in_pool(self._io_pool, call)
        finally:
            self._lane.leave(0)


class HeavyWork:
    """Pool work that needs much memory or time: WORK_BYTES in total. Clients take turns for small and large work."""

    def __init__(self, io_pool: IoPool) -> None:
        self._io_pool = io_pool
        self._small = Lane(max_at_once=1, max_bytes=SMALL_WORK_BYTES)
        self._large = Lane(max_at_once=LARGE_AT_ONCE, max_bytes=WORK_BYTES - SMALL_WORK_BYTES)
        self.response_bytes = 0

    @property
    def bytes_in_use(self) -> int:
        return self._small.bytes_in_use + self._large.bytes_in_use

    async def run(self, call: Callable[[], T], needed_bytes: int, client: Hashable = None) -> T:
        """Run a call on a worker once there is room for `needed_bytes`; return its result or raise its error.

        needed_bytes: an upper bound of the memory it needs beside the request.
        """
        lane = self._small if needed_bytes <= SMALL_WORK_BYTES else self._large
        held_bytes = min(needed_bytes, lane.max_bytes)
        await lane.enter(held_bytes, client)
        try:
            return await run_in_pool(self._io_pool, call)
        finally:
            lane.leave(held_bytes)

    def acquire_response_room(self, wanted_bytes: int) -> "ResponseRoom | None":
        """Reserve room for a result, less than wanted if little is left; None if only small results have room."""
        room_bytes = RESPONSE_BYTES - self.response_bytes
        if wanted_bytes <= SMALL_RESPONSE_BYTES:
            return ResponseRoom(self, wanted_bytes)
        return ResponseRoom(self, min(wanted_bytes, room_bytes)) if room_bytes >= SMALL_RESPONSE_BYTES else None


class ResponseRoom:
    """A result's reservation in HeavyWork.response_bytes, until it is released: the peer has read it or is gone."""

    __slots__ = ("_work", "byte_count")

    def __init__(self, work: HeavyWork, byte_count: int) -> None:
        self._work = work
        self.byte_count = 0
        self.resize(byte_count)

    def resize(self, byte_count: int) -> None:
        """Change the reservation to the result's new size."""
        self._work.response_bytes += byte_count - self.byte_count
        self.byte_count = byte_count
        assert self._work.response_bytes >= 0

    def release(self) -> None:
        self.resize(0)


class Lane:
    """A bound of memory, and of work at once, with a queue for it: clients take turns, each in FIFO order.

    Without clients all wait in one FIFO order.
    """

    def __init__(self, *, max_bytes: int, max_at_once: int = UNLIMITED) -> None:
        self._max_at_once = max_at_once
        self.max_bytes = max_bytes
        self.bytes_in_use = 0
        self._count = 0
        self._waiting: dict[Hashable, deque[tuple[int, asyncio.Future[None]]]] = {}
        """By client; the next turn is that of the first."""

    def try_enter(self, held_bytes: int) -> bool:
        """Take room if there is some and no client waits for it; return whether it was taken."""
        if self._waiting or not self._has_room(held_bytes):
            return False
        self._acquire(held_bytes)
        return True

    async def enter(self, held_bytes: int, client: Hashable = None) -> None:
        """Wait for room. If cancelled while waiting, nothing is held."""
        if self.try_enter(held_bytes):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append((held_bytes, turn))
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.leave(held_bytes)
            turn.cancel()
            raise

    def shrink(self, held_bytes: int, to_bytes: int) -> None:
        """Release a part of what was taken."""
        assert 0 <= to_bytes <= held_bytes
        self.bytes_in_use -= held_bytes - to_bytes
        self._admit()

    def leave(self, held_bytes: int) -> None:
        """Release what `enter` took."""
        self._count -= 1
        self.bytes_in_use -= held_bytes
        assert self._count >= 0
        assert self.bytes_in_use >= 0
        self._admit()

    def _admit(self) -> None:
        """Admit waiting work that now has room."""
        while self._waiting:
            client, queue = next(iter(self._waiting.items()))
            next_bytes, turn = queue[0]
            if not turn.done():  # else cancelled
                if not self._has_room(next_bytes):
                    return
                self._acquire(next_bytes)
                turn.set_result(None)
            queue.popleft()
            del self._waiting[client]
            if queue:
                self._waiting[client] = queue  # behind the other clients

    def _has_room(self, held_bytes: int) -> bool:
        return self._count < self._max_at_once and self.bytes_in_use + held_bytes <= self.max_bytes

    def _acquire(self, held_bytes: int) -> None:
        self._count += 1
        self.bytes_in_use += held_bytes
        assert self.bytes_in_use <= self.max_bytes


async def run_in_pool(io_pool: IoPool, call: Callable[[], T]) -> T:
    """Run a blocking call on a worker; return its result or raise its error."""
    future: asyncio.Future[list[_Outcome[T]]] = asyncio.get_running_loop().create_future()
    io_pool.submit(call, partial(_complete, future))
    result, error = (await future).pop()
    if error is None:
        return result  # type: ignore[return-value]
    try:
        raise error
    finally:
        del error  # breaks the reference cycle with the traceback, which keeps the call's data alive


def _complete(future: asyncio.Future[list[_Outcome[T]]], result: T | None, error: BaseException | None) -> None:
    """Give the future the outcome in a list, from which it is taken: frames of the traceback may hold the future."""
    if not future.done():
        future.set_result([(result, error)])
