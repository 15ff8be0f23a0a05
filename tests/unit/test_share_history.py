"""The checker of share groups finds each fault that is planted in a history, and none in a good one."""

import pytest

from tests.support.share_history import (
    UNKNOWN_COUNT,
    UNKNOWN_S,
    Act,
    Breach,
    Event,
    Position,
    Rule,
    aborted_breaches,
    breaches,
    wrong_positions,
)

PLACE = (0, 7)
LOCK_S, LIMIT = 2.0, 3


def found(*events: Event) -> list[Breach]:
    return breaches(events, [PLACE], lock_s=LOCK_S, limit=LIMIT)


def event(at_s: float, member: str, act: Act, delivery_count: int = 0) -> Event:
    return Event(at_s, at_s + 0.1, member, act, PLACE, delivery_count)


def test_a_good_history_breaks_no_rule() -> None:
    assert not found(
        event(1, "a", Act.DELIVERED, 1),
        event(2, "a", Act.RELEASE),
        event(2.2, "b", Act.DELIVERED, 2),
        event(5, "a", Act.DELIVERED, 3),
        event(5.1, "b", Act.UNKNOWN),
        event(6, "a", Act.ACCEPT),
    )


def test_a_member_that_was_killed_and_a_node_that_was_hold_nothing() -> None:
    for end in (Event(1.2, 1.2, "a", Act.GONE), Event(1.2, 1.3, "", Act.RESTARTED)):
        assert not found(
            event(1, "a", Act.DELIVERED, 1), end, event(1.5, "b", Act.DELIVERED, 2), event(1.7, "b", Act.ACCEPT)
        )


FAULTS = {
    Rule.CAME_AGAIN: [
        event(1, "a", Act.DELIVERED, 1),
        event(2, "a", Act.ACCEPT),
        event(3, "b", Act.DELIVERED, 1),
    ],
    Rule.TWO_HANDS: [
        event(1, "a", Act.DELIVERED, 1),
        event(1.5, "b", Act.DELIVERED, 2),
        event(2, "b", Act.ACCEPT),
    ],
    Rule.TOO_OFTEN: [event(at, "a", Act.DELIVERED, min(at, LIMIT)) for at in range(1, LIMIT + 2)],
    Rule.LOST: [event(1, "a", Act.DELIVERED, 1), event(2, "a", Act.RELEASE)],
}


@pytest.mark.parametrize("rule", FAULTS)
def test_each_fault_is_found(rule: Rule) -> None:
    assert found(*FAULTS[rule]) == [Breach(rule, PLACE)]


def test_a_lock_that_was_renewed_holds_its_record_from_then_on() -> None:
    begun = [event(1, "a", Act.DELIVERED, 1), event(2.5, "a", Act.RENEW)]
    assert found(*begun, event(3.5, "b", Act.DELIVERED, 2), event(4, "b", Act.ACCEPT)) == [
        Breach(Rule.TWO_HANDS, PLACE)
    ]
    assert not found(*begun, event(4.7, "b", Act.DELIVERED, 2), event(5, "b", Act.ACCEPT))


def test_a_record_that_a_client_had_since_an_earlier_poll_says_nothing_of_its_lock() -> None:
    stale = Event(UNKNOWN_S, 3, "a", Act.DELIVERED, PLACE, 1)
    assert not found(stale, event(3.2, "b", Act.DELIVERED, 2), event(4, "b", Act.ACCEPT))
    ended = event(2, "b", Act.ACCEPT)
    assert not found(event(1, "b", Act.DELIVERED, 2), ended, stale)


def test_a_delivery_without_a_count_may_have_been_the_last() -> None:
    assert not found(event(1, "a", Act.DELIVERED, UNKNOWN_COUNT))


def test_records_of_aborted_transactions_are_not_delivered() -> None:
    events = [event(1, "a", Act.DELIVERED, 1)]
    assert aborted_breaches(events, [PLACE]) == [Breach(Rule.ABORTED, PLACE)]
    assert aborted_breaches(events, [(0, 8)]) == []


@pytest.mark.parametrize("position", [Position(9, 1, 10), Position(11, 0, 10), Position(-1, 0, 10)])
def test_a_start_or_lag_that_does_not_fit_is_found(position: Position) -> None:
    assert wrong_positions({0: Position(10, 0, 10), 1: position}) == [Breach(Rule.POSITION, (1, position.start_offset))]
