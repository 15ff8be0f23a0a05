"""Work that begins at once, and goes on as a task if it has to wait."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from kafkapy.runtime.begun import begin
from tests.simulator.loop import SimLoop


def _task(work: Coroutine[Any, Any, str]) -> "asyncio.Task[str]":
    return asyncio.get_running_loop().create_task(work)


def _no_task(work: Coroutine[Any, Any, str]) -> "asyncio.Task[str]":
    work.close()
    raise AssertionError("work that does not wait needs no task")


async def test_work_that_does_not_wait_is_done_at_once_without_a_task(loop: SimLoop) -> None:
    async def work() -> str:
        return "done"

    begun = begin(work(), _no_task)

    assert begun.done()
    assert await begun == "done"


async def test_work_that_waits_goes_on_where_it_stopped(loop: SimLoop) -> None:
    steps: list[str] = []
    released: asyncio.Future[str] = loop.create_future()

    async def work() -> str:
        steps.append("begun")
        await asyncio.sleep(0)
        await asyncio.sleep(0.1)
        return await released

    begun = begin(work(), _task)
    assert steps == ["begun"]
    await asyncio.sleep(1)
    assert not begun.done()
    released.set_result("released")

    assert await begun == "released"


async def test_what_the_awaited_future_failed_with_is_raised_in_the_work(loop: SimLoop) -> None:
    failing: asyncio.Future[str] = loop.create_future()

    async def work() -> str:
        try:
            return await failing
        except ValueError:
            return "caught"

    begun = begin(work(), _task)
    failing.set_exception(ValueError())

    assert await begun == "caught"


async def test_a_future_that_is_done_before_the_task_begins_is_not_waited_for_twice(loop: SimLoop) -> None:
    future: asyncio.Future[str] = loop.create_future()

    async def work() -> str:
        return await future

    begun = begin(work(), _task)
    future.set_result("early")

    assert await begun == "early"


async def test_a_cancelled_task_cancels_the_work(loop: SimLoop) -> None:
    ended: list[str] = []

    async def work() -> str:
        try:
            return await loop.create_future()
        finally:
            ended.append("cleaned up")

    begun = begin(work(), _task)
    await asyncio.sleep(0)
    begun.cancel()

    with pytest.raises(asyncio.CancelledError):
        await begun
    assert ended == ["cleaned up"]


async def test_an_exception_before_the_first_wait_is_the_callers(loop: SimLoop) -> None:
    async def work() -> str:
        raise ValueError("before the first wait")

    with pytest.raises(ValueError, match="before the first wait"):
        begin(work(), _no_task)
