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
