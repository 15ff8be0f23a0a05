"""Runs long work that gives way between its steps (kafkapy.machine.SmallSteps)."""

from typing import TypeVar

from kafkapy.machine import SmallSteps

ResultT = TypeVar("ResultT")


def counted(steps: SmallSteps[ResultT]) -> tuple[int, ResultT]:
    """Return how often the work gave way, and its result."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: ResultT = end.value
            return count, result
        count += 1
