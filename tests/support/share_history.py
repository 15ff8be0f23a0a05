"""What members of a share group have done, and the rules that no broker may break whatever dies.

A history has the events of all members in the order of one clock. A response that a killed node never sent leaves an
acknowledgement without outcome: such a record may come again, or not.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

Place = tuple[int, int]
"""Partition and offset."""


class Act(StrEnum):
    DELIVERED = "delivered"
    """A poll returned the record."""
    ACCEPT = "accept"
    """The broker has answered that the record is accepted."""
    RELEASE = "release"
    REJECT = "reject"
    RENEW = "renew"
    """The broker has answered that the lock begins anew."""
    UNKNOWN = "unknown"
    """An acknowledgement was sent, and refused or not answered."""
    GONE = "gone"
    """The member was killed, or closed: it holds nothing more. `place` says nothing."""
    RESTARTED = "restarted"
    """The node was killed: locks and delivery counts may be forgotten. `place` says nothing."""


UNKNOWN_S: Final = 0.0
"""The begin of a delivery whose client may have had the record since an earlier poll."""
UNKNOWN_COUNT: Final = 0


@dataclass(frozen=True, slots=True)
class Event:
    """begin_s: when the client asked; end_s: when it had the response. What the broker did lies in between."""

    begin_s: float
    end_s: float
    member: str
    act: Act
    place: Place = (-1, -1)
    delivery_count: int = 0


class Rule(StrEnum):
    CAME_AGAIN = "a record that was accepted or rejected came again"
    TWO_HANDS = "a record was delivered to a second member while the first held it"
    TOO_OFTEN = "a record came more often than the limit"
    LOST = "the group has no lag, and nobody can have ended a record"
    ABORTED = "a record of an aborted transaction was delivered"
    POSITION = "the start offset or the lag does not fit what was done"


@dataclass(frozen=True, slots=True)
class Breach:
    rule: Rule
    place: Place


def breaches(events: Iterable[Event], sent: Iterable[Place], *, lock_s: float, limit: int) -> list[Breach]:
    """Return what breaks a rule for certain, once the group has no lag.

    lock_s: for how long a delivery holds its record.
    """
    of_place: defaultdict[Place, list[Event]] = defaultdict(list)
    ends: list[Event] = []
    for event in sorted(events, key=lambda each: each.end_s):
        if event.act in (Act.GONE, Act.RESTARTED):
            ends.append(event)
        else:
            of_place[event.place].append(event)
    attempts = limit * (1 + sum(each.act is Act.RESTARTED for each in ends))
    found: list[Breach] = []
    for place, here in of_place.items():
        deliveries = [each for each in here if each.act is Act.DELIVERED]
        if _came_again(here, deliveries):
            found.append(Breach(Rule.CAME_AGAIN, place))
        if any(_holds(first, second, here + ends, lock_s) for first in deliveries for second in deliveries):
            found.append(Breach(Rule.TWO_HANDS, place))
        if len(deliveries) > attempts or any(each.delivery_count > limit for each in deliveries):
            found.append(Breach(Rule.TOO_OFTEN, place))
    gone = {each.member for each in ends if each.act is Act.GONE}
    return found + [Breach(Rule.LOST, place) for place in sent if not _is_finished(of_place[place], gone, limit)]


def _came_again(here: list[Event], deliveries: list[Event]) -> bool:
    done_s = min((each.end_s for each in here if each.act in (Act.ACCEPT, Act.REJECT)), default=float("inf"))
    return any(each.begin_s > done_s for each in deliveries)


def _holds(first: Event, second: Event, others: list[Event], lock_s: float) -> bool:
    """Return whether the first delivery still held the record when the second one, to another member, came."""
    if first.member == second.member or second.begin_s < first.end_s or first.begin_s == UNKNOWN_S:
        return False
    renewals = [
        each.begin_s
        for each in others
        if each.act is Act.RENEW and each.member == first.member and first.end_s <= each.end_s <= second.begin_s
    ]
    held_until_s = max([first.begin_s, *renewals]) + lock_s
    for each in others:
        if each.act is Act.RENEW:
            continue
        ends_it = each.act is Act.RESTARTED or (each.member == first.member and each.act is not Act.DELIVERED)
        if ends_it and each.end_s >= first.end_s:
            held_until_s = min(held_until_s, each.begin_s)
    return second.end_s < held_until_s


def _is_finished(here: list[Event], gone: set[str], limit: int) -> bool:
    """Return whether the broker may have done with a record: its last delivery may have been acknowledged, or counted.

    What a killed member acknowledged last, and what was not answered, may have been done.
    """
    deliveries = [each for each in here if each.act is Act.DELIVERED]
    if here and here[-1].act is Act.DELIVERED and here[-1].delivery_count == UNKNOWN_COUNT:
        return True  # perhaps its last attempt, whose lock timed out
    if any(each.act in (Act.ACCEPT, Act.REJECT, Act.UNKNOWN) or each.delivery_count >= limit for each in here):
        return True
    return bool(deliveries) and deliveries[-1].member in gone and here[-1].act is not Act.RELEASE


class Position(NamedTuple):
    """What the group's coordinator says of a partition, and where its log ends."""

    start_offset: int
    lag: int
    end_offset: int


def wrong_positions(positions: Mapping[int, Position]) -> list[Breach]:
    """Return what is wrong once all members have ended all records: nothing is left, and the start is in the log."""
    return [
        Breach(Rule.POSITION, (partition, each.start_offset))
        for partition, each in positions.items()
        if each.lag != 0 or not 0 <= each.start_offset <= each.end_offset
    ]


def aborted_breaches(events: Iterable[Event], aborted: Iterable[Place]) -> list[Breach]:
    """Return the records of aborted transactions that a member of a read_committed group was given."""
    delivered = {event.place for event in events if event.act is Act.DELIVERED}
    return [Breach(Rule.ABORTED, place) for place in sorted(delivered.intersection(aborted))]
