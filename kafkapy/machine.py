"""The contract of every pure machine.

A machine takes an event and the time and returns what should happen; it reads no clock, rolls no dice, does no IO.
Two shapes exist:

* `step(event, now_ms) -> list[Effect]`: the machine changes its state at once and says what its driver must do
  (Raft). `deadline_ms()` is the time at which it wants to be stepped again, None when nothing is pending.
* `decide -> append -> replay`: the machine is backed by a log. A request is answered with a `Decision` made from the
  state as it is; only `replay(record)` changes that state. Nothing runs between the decision and its replay, and the
  response leaves once the records are committed.
"""

from collections.abc import Generator
from dataclasses import field
from typing import Generic, TypeAlias, TypeVar

from kafkapy.dataclass import dataclass

RecordT = TypeVar("RecordT")
ResponseT = TypeVar("ResponseT")


class Event:
    """Something that happened: a message came, a write ended, time passed. Subclasses are frozen dataclasses."""

    __slots__ = ()


class Effect:
    """Something a driver must do: send, append, answer. Subclasses are frozen dataclasses."""

    __slots__ = ()


@dataclass(slots=True)
class Decision(Generic[RecordT, ResponseT]):
    """What a log-backed machine answers to a request: records to append, and the response once they are committed.

    `is_atomic` asks for all of the records or none to become visible (one batch, or a metadata transaction).
    """

    response: ResponseT
    records: list[RecordT] = field(default_factory=list)
    is_atomic: bool = False


Steps: TypeAlias = Generator[list[RecordT], None, Decision[RecordT, ResponseT]]
"""A decision that takes long, in steps of at most a millisecond; its end is the decision's end.

A step yields the records that are to be appended and replayed before the next one (none: just a place to give way). No
other decision is made between two steps, and the records of the steps are not atomic.
"""
Decided: TypeAlias = Decision[RecordT, ResponseT] | Steps[RecordT, ResponseT]
"""What is decided at once, or in steps."""
