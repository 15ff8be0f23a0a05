"""HeavyWork: what needs memory on a worker, within one account."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Iterator

import pytest

from kafkapy.reactor.io_pool import ThreadIoPool
from kafkapy.runtime.pool import (
    RESPONSE_BYTES,
    SMALL_RESPONSE_BYTES,
    SMALL_WORK_BYTES,
    WORK_BYTES,
    HeavyWork,
    run_in_pool,
)
from tests.simulator.io_pool import SimIoPool
from tests.simulator.loop import SimLoop, run

LARGEST = WORK_BYTES - SMALL_WORK_BYTES


class Work:
    """Calls that take so long on a worker; what the account held while each was at work."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.heavy = HeavyWork(SimIoPool(loop, worker_count=8))
        self.held: list[int] = []
        self.ended: list[str] = []

    async def run(self, name: str, needed_bytes: int, duration_ms: int = 100, client: str = "") -> str:
        def call() -> str:
            self.held.append(self.heavy.bytes_in_use)
            self.loop.block(duration_ms)
            return name

        result = await self.heavy.run(call, needed_bytes, client)
        self.ended.append(result)
        return result


def on_work(test: Callable[[Work], Awaitable[None]]) -> Callable[[], None]:
    def call() -> None:
        async def main(loop: SimLoop) -> None:
            await test(Work(loop))

        run(main)

    call.__name__ = test.__name__
    return call


@on_work
async def test_what_needs_memory_waits_for_room_in_its_order(work: Work) -> None:
    sizes = {"a": 70 << 20, "b": 50 << 20, "c": 60 << 20, "d": 9 << 20}
    await asyncio.gather(*(work.run(name, size) for name, size in sizes.items()))
    assert work.ended == ["a", "b", "c", "d"]
    assert max(work.held) <= LARGEST
    assert work.heavy.bytes_in_use == 0


@on_work
async def test_a_client_with_much_work_lets_others_go_between(work: Work) -> None:
    names = ["a1", "a2", "a3", "a4", "b1", "b2"]
    await asyncio.gather(*(work.run(name, LARGEST, client=name[0]) for name in names))
    assert work.ended == ["a1", "a2", "b1", "a3", "b2", "a4"]


@on_work
async def test_what_needs_more_than_there_is_runs_alone(work: Work) -> None:
    await asyncio.gather(work.run("a", 1 << 30), work.run("b", 9 << 20), work.run("c", 1 << 30))
    assert work.ended == ["a", "b", "c"]
    assert max(work.held) == LARGEST


@on_work
async def test_small_work_is_not_kept_waiting_by_large(work: Work) -> None:
    large = [asyncio.create_task(work.run("large", LARGEST, 5000)) for _ in range(10)]
    await asyncio.sleep(0.01)
    start = work.loop.time()
    await work.run("small", SMALL_WORK_BYTES, 10)
    assert work.loop.time() - start < 0.25
    await asyncio.gather(*large)


@on_work
async def test_work_that_fails_gives_its_room_back(work: Work) -> None:
    def fail() -> None:
        raise ValueError("broken")

    for _ in range(3):
        with pytest.raises(ValueError, match="broken"):
            await work.heavy.run(fail, LARGEST)
    assert await work.run("after", LARGEST) == "after"


@on_work
async def test_work_that_is_cancelled_as_it_waits_leaves_no_trace(work: Work) -> None:
    first = asyncio.create_task(work.run("first", LARGEST))
    waiting = [asyncio.create_task(work.run("never", LARGEST)) for _ in range(2)]
    last = asyncio.create_task(work.run("last", LARGEST))
    await asyncio.sleep(0.01)
    for each in waiting:
        each.cancel()
    await asyncio.gather(first, last)
    assert work.ended == ["first", "last"]
    assert work.heavy.bytes_in_use == 0


@on_work
async def test_results_that_nobody_takes_leave_room_for_small_ones_only(work: Work) -> None:
    heavy = work.heavy
    held = heavy.acquire_response_room(RESPONSE_BYTES - SMALL_RESPONSE_BYTES)
    rest = heavy.acquire_response_room(8 << 20)
    assert held is not None
    assert rest is not None
    assert rest.byte_count == SMALL_RESPONSE_BYTES
    assert heavy.acquire_response_room(SMALL_RESPONSE_BYTES + 1) is None
    small = heavy.acquire_response_room(SMALL_RESPONSE_BYTES)
    assert small is not None
    assert await work.run("others", LARGEST) == "others"
    held.resize(1000)
    for room in (held, rest, small):
        room.release()
        room.release()
    assert heavy.response_bytes == 0


class Inflated:
    """Stands for the megabytes that a call on a worker has in a local variable when it raises."""


@pytest.fixture
def no_collections() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


async def test_what_a_failed_call_held_is_freed_without_a_garbage_collection(no_collections: None) -> None:
    """Even if the awaited future is still held: from Python 3.12 the traceback leads to frames that have it."""
    held: list[weakref.ref[Inflated]] = []

    def inflate() -> None:
        inflated = Inflated()
        held.append(weakref.ref(inflated))
        raise ValueError("more than is allowed")

    pool = ThreadIoPool(asyncio.get_running_loop(), thread_count=1)
    call = run_in_pool(pool, inflate)
    awaited: asyncio.Future[object] = call.send(None)
    await asyncio.wait([awaited], timeout=60)
    with pytest.raises(ValueError, match="more than is allowed"):
        call.send(None)
    pool.close()
    assert awaited.done()
    assert [inflated() for inflated in held] == [None]
