import gc
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.descriptors import DIRECTORY, MAX_LEFT, Descriptors

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not DIRECTORY.is_dir(), reason="the system does not show open descriptors"),
]

OF_OTHERS = 20
"""Descriptors that threads of earlier tests of the worker may open or close meanwhile."""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    gc.collect()  # what other tests of the worker have left open is closed now, not while descriptors are counted
    with ExitStack() as entered:
        yield entered


def open_in(stack: ExitStack, directory: Path, count: int) -> None:
    for number in range(count):
        stack.enter_context((directory / f"{number}").open("wb"))


def test_more_than_a_few_are_reported_once(stack: ExitStack, tmp_path: Path) -> None:
    descriptors = Descriptors()
    open_in(stack, tmp_path, MAX_LEFT - OF_OTHERS)
    assert descriptors.left_open() == []
    open_in(stack, tmp_path, MAX_LEFT + OF_OTHERS)
    assert descriptors.left_open().count(f"{tmp_path}/0") == 2
    assert descriptors.left_open() == []


def test_those_of_a_running_broker_are_not_counted_those_of_a_stopped_one_are(stack: ExitStack) -> None:
    descriptors = Descriptors()
    with tempfile.TemporaryDirectory(prefix="kafkapy-") as data:
        open_in(stack, Path(data), MAX_LEFT + OF_OTHERS)
        assert descriptors.left_open() == []
    assert f"{data}/0 (deleted)" in descriptors.left_open()
