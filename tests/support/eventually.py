"""Waiting for what a cluster comes to by itself."""

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException


def eventually(check: Callable[[], Any], timeout_s: float = 120, *, what: str = "it") -> Any:
    """Return what `check` returns once that is true; a KafkaException or OSError that it raises is: not yet."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            found = check()
        except (KafkaException, OSError):  # a time-out; nobody listens; a file that is not there
            found = None
        if found:
            return found
        assert time.monotonic() < deadline, f"{what} did not come true within {timeout_s} s"
        time.sleep(0.1)


def eventually_reaches(count: Callable[[], int], goal: int, standstill_s: float, *, what: str) -> None:
    """Wait until `count` returns `goal` or more. Fails if the count does not rise within standstill_s.

    The time that `count` itself takes to return is not part of standstill_s.
    """
    highest, deadline = -1, time.monotonic() + standstill_s
    while highest < goal:
        asked_at = time.monotonic()
        try:
            found = count()
        except (KafkaException, OSError):
            found = -1
        if found > highest:
            highest, deadline = found, time.monotonic() + standstill_s
        else:
            assert asked_at < deadline, f"{what} stands still at {max(highest, 0)} of {goal} for {standstill_s} s"
            time.sleep(0.1)
