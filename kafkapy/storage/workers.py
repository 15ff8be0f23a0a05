"""Yielding the GIL during long Python work on a worker thread, so that the event loop keeps running."""

import time
from typing import Final

GIVE_WAY_S: Final = 0.0001
"""A sleep of zero seconds does not let another thread take the GIL."""


def give_way() -> None:
    """Let other threads run. Call it at least once per millisecond of work."""
    time.sleep(GIVE_WAY_S)
