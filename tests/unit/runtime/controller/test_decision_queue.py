"""Whose turn it is to decide: in order, and not that of a caller who is gone."""

import asyncio

from kafkapy.runtime.controller.decision_queue import DecisionQueue
from tests.simulator.loop import SimLoop


async def test_turns_go_in_the_order_of_requests(loop: SimLoop) -> None:
    queue, order = DecisionQueue(), list[int]()

    async def decide(number: int) -> None:
        await queue.acquire()
        order.append(number)
        await asyncio.sleep(0.01)
        queue.release()

    await asyncio.gather(*(decide(number) for number in range(4)))
    assert order == [0, 1, 2, 3]
    assert not queue.is_taken


async def test_a_free_turn_is_taken_without_waiting(loop: SimLoop) -> None:
    taking = DecisionQueue().acquire()
    try:
        taking.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits")


async def test_a_caller_that_is_closed_while_it_waits_keeps_nobody_waiting(loop: SimLoop) -> None:
    queue = DecisionQueue()
    await queue.acquire()
    closed = queue.acquire()
    closed.send(None)
    next_one = asyncio.ensure_future(queue.acquire())
    await asyncio.sleep(0)
    closed.close()
    queue.release()
    await asyncio.wait_for(next_one, 1)
    queue.release()
    assert not queue.is_taken


async def test_a_caller_that_goes_with_the_turn_just_given_passes_it_on(loop: SimLoop) -> None:
    queue = DecisionQueue()
    await queue.acquire()
    first, second = (asyncio.ensure_future(queue.acquire()) for _ in range(2))
    await asyncio.sleep(0)
    queue.release()
    first.cancel()
    await asyncio.wait_for(second, 1)
    queue.release()
    assert not queue.is_taken
