"""Waiting for a count goes on while it rises, and ends with the count when it does not."""

from collections.abc import Callable

import pytest

from tests.support.eventually import eventually_reaches


def counting(*counts: int) -> Callable[[], int]:
    """Return a count that is each of these in turn, and then the last for ever."""
    left = list(counts)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def test_a_count_may_take_as_long_as_it_rises() -> None:
    count = counting(*range(101))
    eventually_reaches(count, 100, 0, what="it")
    assert count() == 100


def test_a_count_that_stands_still_is_told() -> None:
    with pytest.raises(AssertionError, match="the copy stands still at 7 of 10 for 0 s"):
        eventually_reaches(counting(3, 7, 7), 10, 0, what="the copy")


def test_an_error_is_no_progress() -> None:
    def refuse() -> int:
        raise OSError("nobody listens")

    with pytest.raises(AssertionError, match="it stands still at 0 of 10"):
        eventually_reaches(refuse, 10, 0, what="it")
