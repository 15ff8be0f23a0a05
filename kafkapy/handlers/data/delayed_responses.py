"""Responses to small Produce requests that wait for replicas.

Not in small_produces, which is compiled: a compiled class cannot inherit slots from an interpreted one.
"""

from collections.abc import Callable
from typing import Protocol

from kafkapy.timer.purgatory import DelayedOperation


class Replicated(Protocol):
    """Requests whose records are appended, but not yet on all in-sync replicas."""

    def is_final(self) -> bool: ...

    def responses(self) -> bytes: ...


class DelayedResponses(DelayedOperation):
    """Sends the responses once the in-sync replicas have the records, or after the requests' time-out."""

    __slots__ = ("_on_responses", "_together")

    def __init__(self, together: Replicated, on_responses: Callable[[bytes], None]) -> None:
        super().__init__()
        self._together = together
        self._on_responses = on_responses

    def try_complete(self) -> bool:
        return self._together.is_final() and self.complete()

    def on_complete(self) -> None:
        self._on_responses(self._together.responses())
