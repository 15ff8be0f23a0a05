"""Finds in a history of transactions what no broker may do; the anomalies are those of jepsen.tests.kafka, and more.

    anomalies = find_anomalies(events)
    assert not anomalies

A history ends with a Finish of each partition: what a read_committed consumer finds when all is over decides which
transactions of unknown outcome were committed. The checker only knows what clients know; it asks nothing of a broker.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from tests.support.history import (
    NOT_ACKNOWLEDGED,
    End,
    Event,
    Finish,
    Limit,
    Observe,
    Outcome,
    Poll,
    SendOffset,
    Write,
)


class Kind(StrEnum):
    """An anomaly."""

    LOST_WRITE = "lost write"
    """A record of a committed transaction, or one that a read_committed consumer has had, is not there."""
    DUPLICATE = "duplicate"
    """A value stands at two offsets, or a consumer got one offset twice."""
    INCONSISTENT_OFFSET = "inconsistent offset"
    """An offset held two values, or a record stands elsewhere than was acknowledged."""
    UNSENT = "unsent value"
    """A value was read that nobody sent to the partition."""
    ABORTED_READ = "aborted read"
    """A read_committed consumer got a record of an aborted transaction (G1a), or its offset was committed."""
    PRECOMMITTED_READ = "precommitted read"
    """A read_committed consumer got a record, or a group its offset, before the client asked to commit (G1b)."""
    TORN_TRANSACTION = "torn transaction"
    """Some of a transaction's records and offsets are there, and some are not."""
    REORDERING = "reordering"
    """A producer's records stand in another order than it sent them in; or a consumer's offsets went back."""
    SKIPPED = "skipped"
    """A read_committed consumer passed over records of a committed transaction."""
    WENT_BACK = "went back"
    """A last stable offset, a high watermark or a committed offset went back."""
    HANGING = "hanging transaction"
    """When all was over, a partition still had an open transaction."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """What is wrong, with a sentence about it."""

    kind: Kind
    text: str


class _Story:
    """A history, sorted by what it is about."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.writes: dict[str, Write] = {}
        """By value."""
        self.ends: dict[str, End] = {}
        self.offsets: list[SendOffset] = []
        self.polls: list[Poll] = []
        self.observations: list[Observe] = []
        self.finishes: dict[str, Finish] = {}
        for event in events:
            self._take(event)
        self.visible = {value for finish in self.finishes.values() for _, value in finish.records}
        """What a read_committed consumer finds in the end."""
        self.by_transaction: dict[str, list[Write]] = defaultdict(list)
        for write in self.writes.values():
            self.by_transaction[write.transaction].append(write)

    def _take(self, event: Event) -> None:
        match event:
            case Write():
                assert event.value not in self.writes, f"{event.value} was sent twice: a fault of the test"
                self.writes[event.value] = event
            case End():
                assert event.transaction not in self.ends, f"{event.transaction} ended twice: a fault of the test"
                self.ends[event.transaction] = event
            case SendOffset():
                self.offsets.append(event)
            case Poll():
                self.polls.append(event)
            case Observe():
                self.observations.append(event)
            case Finish():
                self.finishes[event.partition] = event

    def outcome_of(self, transaction: str) -> Outcome:
        """Return how it ended; one without an End was never to be committed."""
        end = self.ends.get(transaction)
        return Outcome.ABORTED if end is None else end.outcome

    def is_visible(self, transaction: str) -> bool:
        """Whether any of its records is there in the end."""
        return any(write.value in self.visible for write in self.by_transaction.get(transaction, ()))


def find_anomalies(events: Iterable[Event]) -> list[Anomaly]:
    """Return all anomalies of a history. It needs a Finish of every partition that was written to."""
    story = _Story(events)
    unfinished = {write.partition for write in story.writes.values()} - story.finishes.keys()
    assert not unfinished, f"nobody looked at {unfinished} when all was over"
    return [anomaly for check in _CHECKS for anomaly in check(story)]


# -- what is there in the end ---------------------------------------------------------------------------------------


def _find_lost_writes(story: _Story) -> Iterator[Anomaly]:
    for write in story.writes.values():
        if story.outcome_of(write.transaction) is Outcome.COMMITTED and write.value not in story.visible:
            yield Anomaly(Kind.LOST_WRITE, f"{write} was committed")
    for poll in story.polls:
        if poll.is_read_committed:
            for offset, value in poll.records:
                if value not in story.visible:
                    yield Anomaly(Kind.LOST_WRITE, f"{poll.consumer} got {value} at {poll.partition} {offset}")


def _find_duplicates(story: _Story) -> Iterator[Anomaly]:
    for finish in story.finishes.values():
        seen: dict[str, int] = {}
        for offset, value in finish.records:
            if value in seen:
                yield Anomaly(Kind.DUPLICATE, f"{value} is at {seen[value]} and {offset} of {finish.partition}")
            seen[value] = offset


def _find_unsent(story: _Story) -> Iterator[Anomaly]:
    for _, partition, offset, value in _all_reads(story):
        write = story.writes.get(value)
        if write is None or write.partition != partition:
            yield Anomaly(Kind.UNSENT, f"{value} at {partition} {offset}")


def _find_inconsistent_offsets(story: _Story) -> Iterator[Anomaly]:
    known: dict[tuple[str, int], str] = {}
    places: dict[tuple[str, str], int] = {}
    for write in story.writes.values():
        if write.offset != NOT_ACKNOWLEDGED:
            known[write.partition, write.offset] = write.value
            places[write.partition, write.value] = write.offset
    for reader, partition, offset, value in _all_reads(story):
        if known.setdefault((partition, offset), value) != value:
            before = known[partition, offset]
            yield Anomaly(Kind.INCONSISTENT_OFFSET, f"{reader}: {partition} {offset} is {before} and {value}")
        if places.setdefault((partition, value), offset) != offset:
            before_at = places[partition, value]
            yield Anomaly(Kind.INCONSISTENT_OFFSET, f"{reader}: {value} is at {partition} {before_at} and {offset}")


def _find_reordering(story: _Story) -> Iterator[Anomaly]:
    order = {value: number for number, value in enumerate(story.writes)}
    for finish in story.finishes.values():
        last: dict[str, str] = {}
        for _, value in finish.records:
            write = story.writes.get(value)
            if write is None:
                continue
            before = last.get(write.producer)
            if before is not None and order[before] > order[value]:
                yield Anomaly(Kind.REORDERING, f"{finish.partition}: {before} stands before {value}")
            last[write.producer] = value


def _find_torn_transactions(story: _Story) -> Iterator[Anomaly]:
    for transaction, writes in story.by_transaction.items():
        missing = [write.value for write in writes if write.value not in story.visible]
        if missing and len(missing) < len(writes):
            yield Anomaly(Kind.TORN_TRANSACTION, f"{transaction}: {missing} of {len(writes)} records are not there")
    final: dict[str, int] = {}
    for seen in sorted(story.observations, key=lambda each: each.completed):
        if seen.limit is Limit.COMMITTED_OFFSET:
            final[seen.name] = seen.value
    for sent in story.offsets:
        if sent.group not in final:
            continue
        if story.is_visible(sent.transaction) and sent.offset > final[sent.group]:
            text = f"{sent.transaction}: its records are there, its offset {sent.offset} of {sent.group} is not"
            yield Anomaly(Kind.TORN_TRANSACTION, text)
        if not story.is_visible(sent.transaction) and sent.offset == final[sent.group]:
            text = f"{sent.transaction}: its offset {sent.offset} of {sent.group} is there, its records are not"
            yield Anomaly(Kind.TORN_TRANSACTION, text)


def _find_hanging(story: _Story) -> Iterator[Anomaly]:
    for finish in story.finishes.values():
        if finish.last_stable_offset != finish.log_end_offset:
            text = f"{finish.partition}: {finish.last_stable_offset} is stable of {finish.log_end_offset}"
            yield Anomaly(Kind.HANGING, text)


# -- what was seen on the way ---------------------------------------------------------------------------------------


def _find_dirty_reads(story: _Story) -> Iterator[Anomaly]:
    """Aborted and precommitted reads, of the final look too."""
    for finish in story.finishes.values():
        for offset, value in finish.records:
            write = story.writes.get(value)
            if write is not None and story.outcome_of(write.transaction) is Outcome.ABORTED:
                yield Anomaly(Kind.ABORTED_READ, f"{value} of {write.transaction} is at {finish.partition} {offset}")
    for poll in story.polls:
        if poll.is_read_committed:
            yield from _dirty_reads_of(story, poll)


def _dirty_reads_of(story: _Story, poll: Poll) -> Iterator[Anomaly]:
    for offset, value in poll.records:
        write = story.writes.get(value)
        if write is None:
            continue
        text = f"{poll.consumer} got {value} of {write.transaction} at {poll.partition} {offset}"
        if story.outcome_of(write.transaction) is Outcome.ABORTED:
            yield Anomaly(Kind.ABORTED_READ, text)
        elif poll.completed < story.ends[write.transaction].invoked:
            yield Anomaly(Kind.PRECOMMITTED_READ, text)


def _find_dirty_offsets(story: _Story) -> Iterator[Anomaly]:
    """Committed offsets that somebody saw before their transaction was to be committed, or though it was aborted."""
    sent_by = {(sent.group, sent.offset): sent.transaction for sent in story.offsets}
    for seen in story.observations:
        transaction = sent_by.get((seen.name, seen.value)) if seen.limit is Limit.COMMITTED_OFFSET else None
        if transaction is None:
            continue
        text = f"the offset {seen.value} of {seen.name} is that of {transaction}"
        if story.outcome_of(transaction) is Outcome.ABORTED:
            yield Anomaly(Kind.ABORTED_READ, text)
        elif seen.completed < story.ends[transaction].invoked:
            yield Anomaly(Kind.PRECOMMITTED_READ, text)


def _find_faults_of_consumers(story: _Story) -> Iterator[Anomaly]:
    """What one consumer got twice, backwards, or not at all."""
    by_consumer: dict[tuple[str, str, bool], list[Poll]] = defaultdict(list)
    for poll in story.polls:
        by_consumer[poll.consumer, poll.partition, poll.is_read_committed].append(poll)
    for (consumer, partition, is_read_committed), polls in by_consumer.items():
        offsets = [offset for poll in sorted(polls, key=lambda each: each.invoked) for offset, _ in poll.records]
        where = f"{consumer} of {partition}"
        for before, after in pairwise(offsets):
            if after == before:
                yield Anomaly(Kind.DUPLICATE, f"{where} got {after} twice")
            elif after < before:
                yield Anomaly(Kind.REORDERING, f"{where} got {after} after {before}")
        if is_read_committed and partition in story.finishes:
            yield from _skipped(where, set(offsets), story.finishes[partition])


def _skipped(where: str, offsets: set[int], finish: Finish) -> Iterator[Anomaly]:
    """Offsets between the first and the last that the consumer got, which it did not get."""
    there = [offset for offset, _ in finish.records]
    if offsets:
        for offset in there[bisect_left(there, min(offsets)) : bisect_right(there, max(offsets))]:
            if offset not in offsets:
                yield Anomaly(Kind.SKIPPED, f"{where} passed over {offset}")


def _find_limits_that_went_back(story: _Story) -> Iterator[Anomaly]:
    """A limit is lower than one that was seen before: that answer had come before this request was sent."""
    by_name: dict[tuple[Limit, str], list[Observe]] = defaultdict(list)
    for seen in story.observations:
        by_name[seen.limit, seen.name].append(seen)
    for (limit, name), all_seen in by_name.items():
        completed = sorted(all_seen, key=lambda each: each.completed)
        highest, position = -1, 0
        for seen in sorted(all_seen, key=lambda each: each.invoked):
            while completed[position].completed < seen.invoked:
                highest = max(highest, completed[position].value)
                position += 1
            if seen.value < highest:
                yield Anomaly(Kind.WENT_BACK, f"the {limit} of {name} went from {highest} to {seen.value}")


def _all_reads(story: _Story) -> Iterator[tuple[str, str, int, str]]:
    """Yield reader, partition, offset and value of all that was read."""
    for poll in story.polls:
        for offset, value in poll.records:
            yield poll.consumer, poll.partition, offset, value
    for finish in story.finishes.values():
        for offset, value in finish.records:
            yield "the last look", finish.partition, offset, value


_CHECKS: tuple[Callable[[_Story], Iterator[Anomaly]], ...] = (
    _find_lost_writes,
    _find_duplicates,
    _find_unsent,
    _find_inconsistent_offsets,
    _find_reordering,
    _find_torn_transactions,
    _find_hanging,
    _find_dirty_reads,
    _find_dirty_offsets,
    _find_faults_of_consumers,
    _find_limits_that_went_back,
)
