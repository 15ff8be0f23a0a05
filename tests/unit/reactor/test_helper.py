"""The helper process, real."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkapy.reactor import helper
from kafkapy.reactor.helper import SubprocessHelper
from kafkapy.seams import HELPER_NOT_STARTED

CALLS = "tests.support.helper_calls:"
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def importable_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """The helper does not have the working directory on its path."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))


def with_helper(use: Callable[[SubprocessHelper], Any], **options: bool) -> Any:
    async def main() -> Any:
        process = SubprocessHelper(asyncio.get_running_loop(), **options)
        try:
            return await asyncio.wait_for(use(process), 60)
        finally:
            process.close()

    return asyncio.run(main())


def call(process: SubprocessHelper, name: str, **arguments: Any) -> "asyncio.Future[tuple[Any, str | None]]":
    done = asyncio.get_running_loop().create_future()
    process.submit(CALLS + name, arguments, lambda result, error: done.set_result((result, error)))
    return done


def is_alive(process_id: int) -> bool:
    try:
        with open(f"/proc/{process_id}/stat") as status:
            return status.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_dead(process_id: int) -> bool:
    deadline = time.monotonic() + 60
    while is_alive(process_id) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not is_alive(process_id)


def test_calls_are_answered_in_order_by_one_process():
    async def use(process: SubprocessHelper) -> None:
        responses = [call(process, "add", first=index, second=1) for index in range(10)]
        assert await asyncio.gather(*responses) == [(index + 1, None) for index in range(10)]
        first, second = await call(process, "process_id"), await call(process, "process_id")
        assert first == second
        assert first[0] != os.getpid()

    with_helper(use)


def test_arguments_and_results_larger_than_a_pipe():
    async def use(process: SubprocessHelper) -> None:
        text = "größer\n" * 100_000
        assert await call(process, "echo", text=text) == (text, None)

    with_helper(use)


def test_an_error_comes_back_as_its_traceback():
    async def use(process: SubprocessHelper) -> None:
        result, error = await call(process, "fail", reason="no such segment")
        assert result is None
        assert error is not None
        assert "ValueError: no such segment" in error
        assert (await call(process, "missing"))[1] is not None
        assert await call(process, "add", first=1, second=1) == (2, None)

    with_helper(use)


def test_a_call_that_json_cannot_carry_is_an_error():
    async def use(process: SubprocessHelper) -> None:
        _, error = await call(process, "echo", text=b"bytes")
        assert error is not None
        assert "could not be made" in error

    with_helper(use)


def test_a_crash_costs_one_call_and_the_next_starts_a_new_process():
    async def use(process: SubprocessHelper) -> None:
        crashed, after = call(process, "crash"), call(process, "add", first=2, second=2)
        assert await crashed == (None, "the helper process has ended unexpectedly")
        assert await after == (4, None)

    with_helper(use)


def test_a_process_that_cannot_be_started_is_distinguished_from_one_that_died():
    async def use(process: SubprocessHelper) -> None:
        spare = os.dup(0)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (spare + 1, limits[1]))
            result, error = await call(process, "add", first=1, second=1)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            os.close(spare)
        assert result is None
        assert error is not None
        assert error.startswith(HELPER_NOT_STARTED)
        assert "Too many open files" in error
        assert await call(process, "add", first=1, second=1) == (2, None)

    with_helper(use)


def test_it_ends_when_idle_and_starts_again(monkeypatch: Any):
    monkeypatch.setattr(helper, "IDLE_SECONDS", 0.05)

    async def use(process: SubprocessHelper) -> None:
        first, _ = await call(process, "process_id")
        while is_alive(first):
            await asyncio.sleep(0.01)
        second, _ = await call(process, "process_id")
        assert second != first

    with_helper(use)


def test_close_ends_the_process_in_mid_call():
    async def use(process: SubprocessHelper) -> None:
        process_id, _ = await call(process, "process_id")
        sleeping, waiting = call(process, "sleep", seconds=60), call(process, "echo", text="x")
        await asyncio.sleep(0.05)
        process.close()
        assert await asyncio.gather(sleeping, waiting) == [(None, "the helper process is closed")] * 2
        assert wait_until_dead(process_id)

    with_helper(use)


def test_it_dies_with_a_killed_parent_even_in_mid_call():
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, cwd=os.getcwd(), env=dict(os.environ)
    )
    assert parent.stdout is not None
    helper_id = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert wait_until_dead(helper_id)


PARENT = f"""
import asyncio
from kafkapy.reactor.helper import SubprocessHelper
async def main():
    process = SubprocessHelper(asyncio.get_running_loop())
    process.submit("{CALLS}process_id", {{}}, lambda result, error: print(result, flush=True))
    process.submit("{CALLS}sleep", {{"seconds": 60}}, print)
    await asyncio.sleep(60)
asyncio.run(main())
"""


def test_the_helper_is_light():
    async def use(process: SubprocessHelper) -> None:
        modules, _ = await call(process, "loaded_modules")
        assert not {"asyncio", "uvloop", "pydantic", "socket"} & set(modules)

    with_helper(use)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="with one processor it would get none of it")
@pytest.mark.parametrize(("is_background", "policy"), [(False, os.SCHED_OTHER), (True, os.SCHED_IDLE)])
def test_in_the_background_it_gives_way(is_background: bool, policy: int) -> None:
    async def use(process: SubprocessHelper) -> None:
        assert await call(process, "scheduler") == (policy, None)

    with_helper(use, is_background=is_background)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="with one processor it is never in the background")
def test_after_a_call_that_hardly_ran_it_leaves_the_background() -> None:
    async def use(process: SubprocessHelper) -> None:
        before = time.monotonic()
        assert await call(process, "sleep", seconds=0.1) == (None, None)
        policy = await call(process, "scheduler")
        was_short = time.monotonic() - before < 1  # on a busy machine it may not have been
        assert policy == (os.SCHED_IDLE, None) or not was_short
        assert await call(process, "sleep", seconds=1.1) == (None, None)
        assert await call(process, "scheduler") == (os.SCHED_OTHER, None)

    with_helper(use, is_background=True)
