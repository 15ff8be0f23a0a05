"""Counts the lines that the timer package executes: a measure of work that no machine's speed disturbs."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_steps(call: Callable[[], Any]) -> int:
    """Return how many lines of kafkapy/timer run during `call`."""
    steps = 0

    def on_line(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        steps += event == "line"
        return on_line

    def on_call(frame: FrameType, event: str, argument: Any) -> Any:
        return on_line if "kafkapy/timer" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        call()
    finally:
        sys.settrace(before)
    return steps
