"""Waiting for a worker of the IO pool, and one account of the memory that conversions and inflations take there."""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from kafkapy.seams import IoPool

T = TypeVar("T")

WORK_BYTES: Final = 128 << 20
"""What all heavy work may hold at a time beside its requests: two of the largest batches that a topic with Kafka's
max.message.bytes takes, and a small one. What needs more (a topic that takes more) runs alone."""

SMALL_WORK_BYTES: Final = 8 << 20
"""Up to here work is small. One such has a turn and so much of the account of its own: it is done in some milliseconds,
and is not kept waiting by larger work, whose records may take a second to walk."""

ANSWER_BYTES: Final = 64 << 20
"""What results that wait for peers to take them may hold beside that: a part of its own, as a peer that takes nothing
must not keep others' work waiting."""

SMALL_ANSWER_BYTES: Final = 64 << 10
"""A result of this size has room always: any other API may have more waiting for a peer."""

LARGE_AT_ONCE: Final = 2
"""Large work takes a processor each, and the interpreter from the event loop at times."""


class QueuedWork:
    """Work of the pool that needs little memory: so much at a time, the others wait in their order."""

    def __init__(self, io_pool: IoPool, at_once: int) -> None:
        self._io_pool = io_pool
        self._turns = asyncio.Semaphore(at_once)

    async def run(self, call: Callable[[], T]) -> T:
        """Run a call on a worker when its turn comes; return what it returns, or raise what it raises."""
        async with self._turns:
            return await run_in_pool(self._io_pool, call)


class HeavyWork:
    """Work of the pool that needs much memory or time: within WORK_BYTES together, each kind in the order it came."""

    def __init__(self, io_pool: IoPool) -> None:
        self._io_pool = io_pool
        self._small = _Lane(most_at_once=1, most_bytes=SMALL_WORK_BYTES)
        self._large = _Lane(most_at_once=LARGE_AT_ONCE, most_bytes=WORK_BYTES - SMALL_WORK_BYTES)
        self.answer_bytes = 0

    @property
    def bytes_in_use(self) -> int:
        return self._small.bytes_in_use + self._large.bytes_in_use

    async def run(self, call: Callable[[], T], needed_bytes: int) -> T:
        """Run a call on a worker once there is room for what it needs; return what it returns, or raise what it raises.

        needed_bytes: a bound of the memory that it takes beside the request.
        """
        lane = self._small if needed_bytes <= SMALL_WORK_BYTES else self._large
        held_bytes = min(needed_bytes, lane.most_bytes)
        await lane.enter(held_bytes)
        try:
            return await run_in_pool(self._io_pool, call)
        finally:
            lane.leave(held_bytes)

    def take_answer_room(self, wanted_bytes: int) -> "AnswerRoom | None":
        """Return room for a result, less than is wanted where little is left; None where a small one alone has any."""
        room_bytes = ANSWER_BYTES - self.answer_bytes
        if wanted_bytes <= SMALL_ANSWER_BYTES:
            return AnswerRoom(self, wanted_bytes)
        return AnswerRoom(self, min(wanted_bytes, room_bytes)) if room_bytes >= SMALL_ANSWER_BYTES else None


class AnswerRoom:
    """What a result holds of HeavyWork.answer_bytes, until it is released: its peer has taken it, or is gone."""

    __slots__ = ("_work", "byte_count")

    def __init__(self, work: HeavyWork, byte_count: int) -> None:
        self._work = work
        self.byte_count = 0
        self.resize(byte_count)

    def resize(self, byte_count: int) -> None:
        """The result has become so large."""
        self._work.answer_bytes += byte_count - self.byte_count
        self.byte_count = byte_count
        assert self._work.answer_bytes >= 0

    def release(self) -> None:
        self.resize(0)


class _Lane:
    """Work of one kind: its share of the account, and what waits for room in it."""

    def __init__(self, *, most_at_once: int, most_bytes: int) -> None:
        self._most_at_once = most_at_once
        self.most_bytes = most_bytes
        self.bytes_in_use = 0
        self._count = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def enter(self, held_bytes: int) -> None:
        """Wait for a turn. Cancelled while it waits, it has none."""
        if not self._waiting and self._has_room(held_bytes):
            self._take(held_bytes)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((held_bytes, turn))
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.leave(held_bytes)
            turn.cancel()
            raise

    def leave(self, held_bytes: int) -> None:
        """End a turn, and begin those there is room for now."""
        self._count -= 1
        self.bytes_in_use -= held_bytes
        while self._waiting and (self._waiting[0][1].done() or self._has_room(self._waiting[0][0])):
            next_bytes, turn = self._waiting.popleft()
            if not turn.done():  # else cancelled
                self._take(next_bytes)
                turn.set_result(None)

    def _has_room(self, held_bytes: int) -> bool:
        return self._count < self._most_at_once and self.bytes_in_use + held_bytes <= self.most_bytes

    def _take(self, held_bytes: int) -> None:
        self._count += 1
        self.bytes_in_use += held_bytes
        assert self.bytes_in_use <= self.most_bytes


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
