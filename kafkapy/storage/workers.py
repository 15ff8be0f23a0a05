"""What long work in Python does on a worker, so that the event loop beside it runs on."""

import time
from typing import Final

GIVE_WAY_S: Final = 0.0001
"""A sleep of no length does not hand the interpreter over."""


def give_way() -> None:
    """Let other threads run; to be called after each millisecond of work at the latest."""
    time.sleep(GIVE_WAY_S)
