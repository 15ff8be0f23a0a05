"""Waits with a time limit, and the errors of waits and look-ups."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from kafkapy.errors import KafkapyError, described

R = TypeVar("R")

TIMEOUT_S: Final = 10.0
"""The default time limit of a wait."""
POLL_S: Final = 0.01


class ObservationError(KafkapyError, LookupError):
    """A topic, group or format that does not exist, or a source that cannot be produced; the message names it."""


class NotObserved(KafkapyError, AssertionError):
    """A test's wait or assertion has failed. The message shows the last records, groups and requests."""


def wait_until(find: Callable[[], R | None], complaint: Callable[[], str], timeout_s: float) -> R:
    """Poll `find` until it returns a result. Raises NotObserved with the complaint once the time is over.

    Errors of what does not exist yet, or moves, count as no result; the last one ends the first line of the complaint.
    """
    __tracebackhide__ = True  # of pytest: a report ends at the line of the test
    deadline = time.monotonic() + timeout_s
    last_error = ""
    while True:
        try:
            found = find()
            last_error = ""
        except (KafkapyError, OSError) as error:
            found, last_error = None, f" ({described(error)})"
        if found is not None:
            return found
        if time.monotonic() >= deadline:
            head, newline, rest = complaint().partition("\n")
            raise NotObserved(f"after {timeout_s:g} s: {head}{last_error}{newline}{rest}")
        time.sleep(POLL_S)
