"""The IO pool on real threads."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from kafkapy.reactor.io_pool import ThreadIoPool


def with_pool(thread_count: int, use: Callable[[asyncio.AbstractEventLoop, ThreadIoPool], Any]) -> Any:
    async def main() -> Any:
        loop = asyncio.get_running_loop()
        pool = ThreadIoPool(loop, thread_count)
        try:
            return await use(loop, pool)
        finally:
            pool.close()

    return asyncio.run(asyncio.wait_for(main(), 60))


def submitted(pool: ThreadIoPool, call: Callable[[], Any]) -> "asyncio.Future[tuple[Any, BaseException | None]]":
    done = asyncio.get_running_loop().create_future()
    pool.submit(call, lambda result, error: done.set_result((result, error)))
    return done


def test_results_and_errors_come_back_on_the_loops_thread():
    async def use(loop: asyncio.AbstractEventLoop, pool: ThreadIoPool) -> None:
        threads = []
        done = loop.create_future()

        def on_done(result: int | None, error: BaseException | None) -> None:
            threads.append(threading.get_ident())
            done.set_result((result, error))

        pool.submit(lambda: 6 * 7, on_done)
        assert await done == (42, None)
        assert threads == [threading.get_ident()]
        result, error = await submitted(pool, lambda: 1 // 0)
        assert result is None
        assert isinstance(error, ZeroDivisionError)

    with_pool(2, use)


def test_threads_start_only_as_far_as_there_is_work_for_them():
    async def use(loop: asyncio.AbstractEventLoop, pool: ThreadIoPool) -> None:
        assert pool.thread_count == 0
        for _ in range(5):
            await submitted(pool, lambda: None)
        assert pool.thread_count == 1
        gate = threading.Event()
        waits = [submitted(pool, gate.wait) for _ in range(10)]
        assert pool.thread_count == 4
        gate.set()
        await asyncio.gather(*waits)
        assert pool.unfinished_count == 0

    with_pool(4, use)


@pytest.mark.parametrize("worker_count", [1, 6])
def test_a_new_size_holds_for_the_work_to_come(worker_count: int):
    async def use(loop: asyncio.AbstractEventLoop, pool: ThreadIoPool) -> None:
        for new_size in (3, worker_count):
            pool.resize(new_size)
            gate = threading.Event()
            waits = [submitted(pool, gate.wait) for _ in range(10)]
            thread_count = pool.thread_count
            gate.set()
            await asyncio.gather(*waits)
            assert thread_count == new_size

    with_pool(4, use)


def test_close_waits_for_workers_that_a_smaller_size_let_go_of():
    async def use(loop: asyncio.AbstractEventLoop, pool: ThreadIoPool) -> None:
        all_at_work = threading.Barrier(5)
        is_closing = threading.Event()
        finished: list[str] = []

        def work() -> None:
            all_at_work.wait()
            is_closing.wait()
            if threading.current_thread().name != "kafkapy-io-0":
                time.sleep(0.1)
            finished.append(threading.current_thread().name)

        for _ in range(4):
            pool.submit(work, lambda result, error: None)
        all_at_work.wait()
        pool.resize(1)
        is_closing.set()
        pool.close()
        assert len(finished) == 4

    with_pool(4, use)


def test_completions_that_pile_up_wake_the_loop_once():
    async def use(loop: asyncio.AbstractEventLoop, pool: ThreadIoPool) -> None:
        wakes = []
        original = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *args, **kwargs: (wakes.append(1), original(*args, **kwargs))[1]  # type: ignore
        waits = [submitted(pool, lambda: None) for _ in range(100)]
        deadline = time.monotonic() + 60
        while len(pool._done) < 100 and time.monotonic() < deadline:
            time.sleep(0.001)  # the loop looks away
        await asyncio.gather(*waits)
        assert len(wakes) == 1

    with_pool(2, use)


def test_a_failing_completion_does_not_stop_the_others(caplog: pytest.LogCaptureFixture):
    async def use(loop: asyncio.AbstractEventLoop, pool: ThreadIoPool) -> None:
        def broken(result: object, error: BaseException | None) -> None:
            raise KeyError("mine")

        pool.submit(lambda: None, broken)
        assert await submitted(pool, lambda: 1) == (1, None)

    with_pool(1, use)
    assert "KeyError: 'mine'" in caplog.text


def test_close_finishes_what_was_submitted_and_refuses_more():
    async def use(loop: asyncio.AbstractEventLoop, pool: ThreadIoPool) -> None:
        before = [submitted(pool, lambda: 1) for _ in range(20)]
        pool.close()
        _, error = await submitted(pool, lambda: 2)
        assert isinstance(error, RuntimeError)
        assert await asyncio.gather(*before) == [(1, None)] * 20

    with_pool(3, use)


def refuse(_thread: threading.Thread) -> None:
    raise RuntimeError("can't create new thread at interpreter shutdown")


@pytest.mark.parametrize("worker_count", [0, 1])
def test_where_no_thread_can_be_started_others_do_its_part(worker_count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.12 starts none at the end of a program, when `Broker` stops."""

    async def use(loop: asyncio.AbstractEventLoop, pool: ThreadIoPool) -> None:
        for _ in range(worker_count):
            await submitted(pool, int)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            several = [submitted(pool, threading.get_ident) for _ in range(3)]
            results = await asyncio.gather(*several)
        assert pool.thread_count == worker_count
        assert [error for _, error in results] == [None] * 3
        here = threading.get_ident()
        assert {result == here for result, _ in results} == {worker_count == 0}

    with_pool(4, use)
