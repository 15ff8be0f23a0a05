"""What tests/conftest.py makes of tests that are coroutine functions, seen in a run of pytest over such tests."""

import re
import subprocess
import sys
from pathlib import Path

TESTS = """
import asyncio
import random
from collections.abc import Coroutine

import pytest

from tests.simulator.loop import SimLoop


async def test_virtual_time(loop: SimLoop) -> None:
    await asyncio.sleep(600)
    assert asyncio.get_running_loop() is loop
    assert loop.now == 600


@pytest.mark.parametrize("seed", [0, 7])
async def test_seed(seed: int, loop: SimLoop) -> None:
    assert loop.rng.random() == random.Random(seed).random()


@pytest.fixture
def its_loop(loop: SimLoop) -> SimLoop:
    return loop


async def test_loop_of_a_fixture(its_loop: SimLoop) -> None:
    assert asyncio.get_running_loop() is its_loop


class TestOfClass:
    async def test_real_loop(self) -> None:
        await asyncio.sleep(0)
        assert not isinstance(asyncio.get_running_loop(), SimLoop)


async def test_fails_in_virtual_time(loop: SimLoop) -> None:
    await asyncio.sleep(1)
    assert loop.now == 2


async def test_fails_on_a_real_loop() -> None:
    await asyncio.sleep(0)
    raise AssertionError


async def test_fails_if_it_hangs(loop: SimLoop) -> None:
    await asyncio.Event().wait()


async def test_fails_if_it_does_not_end(loop: SimLoop) -> None:
    while True:
        await asyncio.sleep(60)


async def test_fails_if_it_returns_anything() -> bool:
    return True


async def test_fails_if_it_yields():
    yield


def test_fails_if_it_returns_a_coroutine() -> Coroutine[None, None, None]:
    return asyncio.sleep(0)
"""
ROOT = Path(__file__).parents[3]


def test_coroutine_tests_are_run_to_their_end_or_fail(tmp_path: Path) -> None:
    path = tmp_path / "test_coroutines.py"
    path.write_text(TESTS)
    options = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"), "-vv", "--tb=no"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert re.findall(r"^\S*?::(\S+) .*(PASSED|FAILED) +\[", run.stdout, re.MULTILINE) == [
        ("test_virtual_time", "PASSED"),
        ("test_seed[0]", "PASSED"),
        ("test_seed[7]", "PASSED"),
        ("test_loop_of_a_fixture", "PASSED"),
        ("TestOfClass::test_real_loop", "PASSED"),
        ("test_fails_in_virtual_time", "FAILED"),
        ("test_fails_on_a_real_loop", "FAILED"),
        ("test_fails_if_it_hangs", "FAILED"),
        ("test_fails_if_it_does_not_end", "FAILED"),
        ("test_fails_if_it_returns_anything", "FAILED"),
        ("test_fails_if_it_yields", "FAILED"),
        ("test_fails_if_it_returns_a_coroutine", "FAILED"),
    ], run.stdout
