"""Work in the IO pool that needs little memory: the clients that wait for a worker take turns."""

import asyncio

from kafkapy.runtime.pool import QueuedWork
from tests.simulator.io_pool import SimIoPool
from tests.simulator.loop import SimLoop


async def test_a_client_with_much_work_lets_others_go_between(loop: SimLoop) -> None:
    """A connection has one large request at a time, but a client any number of connections."""

    work = QueuedWork(SimIoPool(loop, worker_count=4), at_once=1)
    order: list[str] = []
    async with asyncio.TaskGroup() as waiting:
        for client in ["greedy"] * 5 + ["a", "b", "a"]:
            waiting.create_task(work.run(lambda client=client: order.append(client), client))
    assert order == ["greedy", "greedy", "a", "b", "greedy", "a", "greedy", "greedy"]


async def test_work_that_fails_or_is_cancelled_gives_its_worker_back(loop: SimLoop) -> None:
    work = QueuedWork(SimIoPool(loop, worker_count=4), at_once=1)
    first, second, third = (loop.create_task(work.run(lambda: 1 // 0, each)) for each in ("a", "b", "c"))
    await asyncio.sleep(0)
    second.cancel()
    first.cancel()
    await asyncio.wait((first, second, third))
    assert isinstance(third.exception(), ZeroDivisionError)
    assert await work.run(lambda: 7) == 7
