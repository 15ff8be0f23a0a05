"""What clients of transactions did and saw: events that a test records while it troubles a broker.

A history is a list of events, in any order; `to_lines` and `from_lines` keep it as JSON lines. Times are seconds of one
monotonic clock. Each event says when its request was sent (`invoked`) and when its response came (`completed`); of what
had no response, `completed` is when the client gave up.

`tests.support.history_checker` finds what no broker may do in it.
"""

import json
import threading
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

NOT_ACKNOWLEDGED = -1


class Outcome(StrEnum):
    """How a transaction ended, as far as its client knows."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    """Also if the client never asked to commit it, or was refused for good."""
    UNKNOWN = "unknown"
    """The client asked to commit and got no response."""


class Limit(StrEnum):
    """What a partition or a group tells of itself that may only rise."""

    LAST_STABLE_OFFSET = "last stable offset"
    HIGH_WATERMARK = "high watermark"
    COMMITTED_OFFSET = "committed offset"


@dataclass(frozen=True, slots=True)
class Write:
    """One record was sent within a transaction. `value` is its own in all the history.

    Events of one producer and partition stand in the order in which the records were sent.
    """

    producer: str
    transaction: str
    partition: str
    value: str
    offset: int
    """As acknowledged, or NOT_ACKNOWLEDGED."""
    invoked: float
    completed: float


@dataclass(frozen=True, slots=True)
class SendOffset:
    """A transaction was told to commit `offset` of a group ("group topic-partition")."""

    transaction: str
    group: str
    offset: int


@dataclass(frozen=True, slots=True)
class End:
    """The transaction's client knows no more of it. Without a request to commit, `invoked` is when it gave up."""

    transaction: str
    outcome: Outcome
    invoked: float
    completed: float


@dataclass(frozen=True, slots=True)
class Poll:
    """A consumer got records: (offset, value) each, in their order. It goes on behind the last one next time."""

    consumer: str
    is_read_committed: bool
    partition: str
    records: tuple[tuple[int, str], ...]
    invoked: float
    completed: float


@dataclass(frozen=True, slots=True)
class Observe:
    """A limit of a partition, or of a group's partition, was seen."""

    limit: Limit
    name: str
    value: int
    invoked: float
    completed: float


@dataclass(frozen=True, slots=True)
class Finish:
    """When all was over, a read_committed consumer read the partition from its start; all clients had ended."""

    partition: str
    records: tuple[tuple[int, str], ...]
    last_stable_offset: int
    log_end_offset: int


Event = Write | SendOffset | End | Poll | Observe | Finish
_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in (Write, SendOffset, End, Poll, Observe, Finish)}


class Recorder:
    """Collects the events of many threads."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._lock = threading.Lock()

    def add(self, event: Event) -> None:
        with self._lock:
            self._events.append(event)

    def events(self) -> list[Event]:
        with self._lock:
            return list(self._events)


def to_lines(events: Iterable[Event]) -> Iterator[str]:
    for event in events:
        yield json.dumps({"kind": type(event).__name__, **asdict(event)}, separators=(",", ":"))


def from_lines(lines: Iterable[str]) -> Iterator[Event]:
    for line in lines:
        fields = json.loads(line)
        kind = _KINDS[fields.pop("kind")]
        if "records" in fields:
            fields["records"] = tuple((offset, value) for offset, value in fields["records"])
        for name, enum in (("outcome", Outcome), ("limit", Limit)):
            if name in fields:
                fields[name] = enum(fields[name])
        yield kind(**fields)
