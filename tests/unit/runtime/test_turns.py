"""Turns of long requests: how they are shared."""

import asyncio

from kafkapy.runtime.turns import Turns
from tests.simulator.loop import SimLoop


async def test_turns_go_round_by_client_not_by_request(loop: SimLoop) -> None:
    turns = Turns()
    order: list[str] = []

    async def walk(client: str, count: int) -> None:
        for _ in range(count):
            await turns.next(client)
            order.append(client)

    greedy = [loop.create_task(walk("greedy", 3)) for _ in range(100)]
    await asyncio.sleep(0)
    await walk("modest", 3)
    assert len(order) == order.count("greedy") + 3
    assert order.count("greedy") <= 4, "one turn before each of the other client's"
    await asyncio.gather(*greedy)
    assert len(order) == 303


async def test_a_request_that_is_cancelled_takes_no_turn(loop: SimLoop) -> None:
    turns = Turns()
    gone = [loop.create_task(turns.next("greedy")) for _ in range(3)]
    await asyncio.sleep(0)
    for task in gone:
        task.cancel()
    started_ms = loop.now_ms()
    await turns.next("modest")
    assert loop.now_ms() - started_ms <= 1
