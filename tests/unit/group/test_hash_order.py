"""Orders of Java's hash maps; the hashes are those of jshell."""

import pytest

from kafkapy.group.hash_order import (
    capacity_for,
    capacity_of_copy,
    hash_of_int,
    hash_of_text,
    hash_of_topic,
    hash_of_uuid,
    in_computed_order,
    in_order_of_copy,
    in_put_order,
)


@pytest.mark.parametrize(
    ("text", "expected"), [("", 0), ("foo", 101574), ("é", 233), ("\U0001f600", 1772899), ("orders", -1008770331)]
)
def test_hash_of_a_string_is_javas(text: str, expected: int) -> None:
    assert hash_of_text(text) == expected & 0xFFFFFFFF


def test_hash_of_an_id_is_the_exclusive_or_of_its_parts() -> None:
    uuid = bytes.fromhex("00000001000000020000000400000008")
    assert hash_of_uuid(uuid) == 1 ^ 2 ^ 4 ^ 8
    assert hash_of_topic(uuid) == 31 * 15


def test_keys_of_a_bucket_are_in_the_order_of_puts_and_against_it_if_computed() -> None:
    assert in_put_order([3, 33, 17, 1], hash_of_int) == [33, 17, 1, 3]
    assert in_computed_order([3, 33, 17, 1], hash_of_int, 16) == [1, 17, 33, 3]


def test_map_grows_beyond_three_quarters() -> None:
    keys = [16, *range(1, 12)]
    assert in_put_order(keys, hash_of_int)[0] == 16, "12 keys: 16 buckets"
    assert in_put_order([*keys, 12], hash_of_int)[-1] == 16, "13 keys: 32 buckets"
    assert in_computed_order([*keys, 12], hash_of_int, 16)[0] == 16, "13 keys: 16 buckets until the next one"


def test_capacities() -> None:
    assert [capacity_for(count) for count in (0, 1, 5, 6, 1000)] == [2, 4, 16, 16, 2048]
    assert [capacity_of_copy(count) for count in (0, 11, 12, 13, 24, 100)] == [16, 16, 32, 32, 64, 256]


def test_copied_keys_come_after_those_that_are_added_to_the_copy() -> None:
    assert in_order_of_copy([17, 1], (), [], hash_of_int) == [17, 1], "4 buckets"
    assert in_order_of_copy([17, 1], (), [33, 49, 33], hash_of_int) == [49, 33, 17, 1]
    assert in_order_of_copy([17, 1, 2], [17], [33, 2], hash_of_int) == [33, 1, 2]
    assert in_order_of_copy([], (), [5, 1, 1], hash_of_int) == [1, 5], "1 bucket, then 2, then 4 for the last call"
