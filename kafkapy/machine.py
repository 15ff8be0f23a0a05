"""The contract of every state machine ("machine") in kafkapy.

A machine takes an event and the current time and returns what should happen. It reads no clock, uses no randomness and
does no IO. There are two kinds:

* `step(event, now_ms) -> list[Effect]`: the machine changes its state immediately and returns what its driver must do
  (used for Raft). `deadline_ms()` returns when it must be stepped again, or None when nothing is pending.
* `decide -> append -> replay`: the machine is backed by a log. A request produces a `Decision` from the current state
  without changing it; only `replay(record)` changes the state. No other code runs between a decision and the replay of
  its records. The response is sent once the records are committed.
"""

from collections.abc import Generator
from dataclasses import field
from typing import Generic, TypeAlias, TypeVar

from kafkapy.dataclass import dataclass

RecordT = TypeVar("RecordT")
ResponseT = TypeVar("ResponseT")
ResultT = TypeVar("ResultT")


class Event:
    """Something that happened: a message arrived, a write ended, time passed. Subclasses are frozen dataclasses."""

    __slots__ = ()


class Effect:
    """Something the driver must do: send, append, respond. Subclasses are frozen dataclasses."""

    __slots__ = ()


@dataclass(slots=True)
class Decision(Generic[RecordT, ResponseT]):
    """The result of a request to a log-backed machine: records to append, and the response to send when committed.

    `is_atomic`: the records must become visible all or none (written as one batch, or as a metadata transaction).
    """

    response: ResponseT
    records: list[RecordT] = field(default_factory=list)
    is_atomic: bool = False


SmallSteps: TypeAlias = Generator[None, None, ResultT]
"""Long work of a machine, which yields after each millisecond or so: other events may come in between."""


def end_of(steps: "SmallSteps[ResultT]") -> ResultT:
    """Run steps to their end at once, and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: ResultT = end.value
            return result


Steps: TypeAlias = Generator[list[RecordT], None, Decision[RecordT, ResponseT]]
"""A long decision, split into steps of at most one millisecond each. The generator's return value is the Decision.

Each step yields the records to append and replay before the next step; an empty list only yields to the event loop. No
other decision is made between two steps. The records of different steps are not atomic.
"""
Decided: TypeAlias = Decision[RecordT, ResponseT] | Steps[RecordT, ResponseT]
"""A decision made at once, or in steps."""
