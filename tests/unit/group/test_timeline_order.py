"""The order of Kafka's TimelineHashMap, whose own iteration the literals are (Apache Kafka 4.4.0)."""

import pytest

from kafkapy.group.timeline_order import ORDERED_AT_MOST, in_timeline_order, members_in_order

ORDERS = [
    (False, "0"),
    (False, "1 0"),
    (False, "3 1 0 2 4"),
    (False, "1 3 5 0 2 4"),
    (False, "6 1 3 8 5 0 7 2 4 9"),
    (False, "1 6 3 8 0 5 11 2 7 4 10 9"),
    (False, "15 1 20 6 12 3 17 8 14 0 5 19 11 16 2 7 13 4 18 10 9"),
    (False, "1 15 20 6 12 3 17 8 22 0 14 5 19 24 11 2 16 7 21 13 4 18 23 10 9"),
    (True, "0"),
    (True, "1 0"),
    (True, "1 3 0 2 4"),
    (True, "1 3 5 0 2 4"),
    (True, "1 6 3 8 0 5 2 7 4 9"),
    (True, "1 6 3 8 0 5 11 2 7 4 10 9"),
    (True, "1 15 20 6 12 3 17 8 0 14 5 19 11 2 16 7 13 4 18 10 9"),
    (True, "1 15 20 6 12 3 17 8 22 0 14 5 19 24 11 2 16 7 21 13 4 18 23 10 9"),
]
"""The numbers of the keys; True: the first key was put again at the end."""


@pytest.mark.parametrize(("is_put_again", "order"), ORDERS)
def test_keys_are_in_the_order_of_kafkas_map(is_put_again: bool, order: str) -> None:
    numbers = order.split()
    keys = [f"group-{number}" for number in range(len(numbers))]
    assert in_timeline_order(keys, is_put_again=is_put_again) == [f"group-{number}" for number in numbers]


def test_a_large_map_is_in_the_order_of_insertion() -> None:
    keys = [f"group-{number}" for number in range(ORDERED_AT_MOST + 1)]
    assert in_timeline_order(keys) == keys
    assert in_timeline_order(keys[:-1]) != keys[:-1]


def test_a_page_of_members_is_a_part_of_that_order() -> None:
    members = {f"group-{number}": number for number in range(10)}
    assert list(members_in_order(members, 3, 4)) == [8, 0, 5, 2]
    assert list(members_in_order(members, 8, None)) == [4, 9]
