"""The checker of share groups finds each fault that is planted in a history, and none in a good one."""

import pytest

from tests.support.share_history import Act, Breach, Event, Rule, breaches

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


@pytest.mark.parametrize("rule", Rule)
def test_each_fault_is_found(rule: Rule) -> None:
    assert found(*FAULTS[rule]) == [Breach(rule, PLACE)]
