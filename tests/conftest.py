"""For all tests: no property is judged by the clock, and each run tries the same examples, `make soak` others.

A test whose name differs from process to process is refused: pytest-xdist would run nothing at all. Of its workers one
runs all files of Spark: a session of Spark takes 17 s of CPU until its first stream has ended.

A test that is a coroutine function is run on a loop: in virtual time if it or one of its fixtures takes `loop`.

The last test of a file fails if the file leaves many descriptors open: select() watches none above 1023.

Of a test that is run with many seeds `make test` takes the first ones; the others are long (CONTRIBUTING.md, "Tiers").

What the collection of the tests made is excluded from garbage collections: a million objects, which a process keeps to
its end and would scan again and again. Nothing is searched for garbage while it is made.
"""

import asyncio
import functools
import gc
import inspect
import os
from collections.abc import Generator, Iterator
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.simulator.loop import SimLoop, run_on
from tests.support.descriptors import Descriptors

settings.register_profile(
    "kafkapy",
    deadline=None,
    derandomize="KAFKAPY_SOAK_SEEDS" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("kafkapy")
descriptors = Descriptors()
for variable in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
    os.environ[variable] = os.devnull  # the settings of the user who runs the tests are not used
for variable in ("KAFKAPY_BOOTSTRAP_SERVERS", "KAFKAPY_COMMAND_CONFIG"):
    os.environ.pop(variable, None)


FIRST = "tests/unit/test_pages.py"
"""A file is one worker's. This one takes three minutes, and in the order of names it would be the last one."""
SHORT_SEEDS = {"seed": 10, "first_seed": 2}
"""How many values of such a parameter are in `make test`; `first_seed` begins a block of seeds."""
GC_THRESHOLDS = (5_000, 5, 5)
"""Allocations until a collection of each generation: with the tests frozen, full ones are as frequent as before."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the outcomes of the texts in tests/texts anew")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    gc.disable()
    collected = yield
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()
    return collected


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.path.match(FIRST))
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid}: an address in a test's name; give the parameters ids")
        if is_of_a_later_seed(item):
            item.add_marker(pytest.mark.long)


def is_of_a_later_seed(item: pytest.Item) -> bool:
    """Whether a parameter of SHORT_SEEDS has a later value, in the order of its list, than `make test` takes."""
    indices = item.callspec.indices if hasattr(item, "callspec") else {}
    return any(indices.get(name, 0) >= count for name, count in SHORT_SEEDS.items())


@pytest.fixture
def loop(request: pytest.FixtureRequest) -> Iterator[SimLoop]:
    """The loop in virtual time that runs the test, a coroutine; of the test's parameter `seed` if it has one."""
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    loop = SimLoop(parameters.get("seed", 0))
    yield loop
    loop.close()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Give pytest a function that runs the test, if that is a coroutine function, to its end.

    pytest then calls that function. It fails each test that returns a value, so also one that returns a coroutine.
    """
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return

    @functools.wraps(test)
    def run_to_its_end(**arguments: Any) -> Any:
        loop = pyfuncitem.funcargs.get("loop")
        return run_on(loop, lambda _: test(**arguments)) if loop is not None else asyncio.run(test(**arguments))

    pyfuncitem.obj = run_to_its_end


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    yield
    if nextitem is None or nextitem.path != item.path:
        left = descriptors.left_open()
        assert not left, f"{item.path.name} leaves descriptors open: {', '.join(left)}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return the scheduler of `--dist loadfile` in which Spark's files are one; None for that of another mode."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class SparkOnOneWorker(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return "spark" if PurePosixPath(file).name.startswith("test_spark") else file

    return SparkOnOneWorker(config, log)
