"""Answers to small produces that wait for replicas.

Apart from small_produces, which is compiled: a compiled class cannot inherit slots from an interpreted one.
"""

from collections.abc import Callable
from typing import Protocol

from kafkapy.timer.purgatory import DelayedOperation


class Replicated(Protocol):
    """Requests whose records are appended and not yet on all in-sync replicas."""

    def is_settled(self) -> bool: ...

    def answers(self) -> bytes: ...


class DelayedAnswers(DelayedOperation):
    """Answers that leave once the replicas have what was appended, or the requests' time-out is over."""

    __slots__ = ("_on_answers", "_together")

    def __init__(self, together: Replicated, on_answers: Callable[[bytes], None]) -> None:
        super().__init__()
        self._together = together
        self._on_answers = on_answers

    def try_complete(self) -> bool:
        return self._together.is_settled() and self.complete()

    def on_complete(self) -> None:
        self._on_answers(self._together.answers())
