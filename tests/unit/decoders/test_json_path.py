"""Conditions on JSON by a path: what they select, what they accept, what is none."""

import pytest

from kafkapy.decoders.errors import DecodeError
from kafkapy.decoders.json_path import MAX_CHARACTERS, JsonPath

VALUE = {
    "id": 7,
    "price": 100.5,
    "user": {"name": "Ann", "is_admin": True, "a-b": 1},
    "items": [{"id": "a", "n": 1}, {"id": "b", "n": None}],
    "with.dot": "x",
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$", [VALUE]),
        ("$.id", [7]),
        ("$.user.name", ["Ann"]),
        ("$.user.a-b", [1]),
        ("$['with.dot']", ["x"]),
        ('$["id"]', [7]),
        ("$.items[0].id", ["a"]),
        ("$.items[-1].id", ["b"]),
        ("$.items[*].id", ["a", "b"]),
        ("$.items[9]", []),
        ("$.user.*", ["Ann", True, 1]),
        ("$..id", [7, "a", "b"]),
        ("$..[0]", [{"id": "a", "n": 1}]),
        ("$.missing.deeper", []),
        ("$.id.deeper", []),
    ],
)
def test_a_path_selects(path: str, expected: list[object]) -> None:
    assert list(JsonPath(path).select(VALUE)) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$.price", True),
        ("$.missing", False),
        ("$.price > 100", True),
        ("$.price>=100.5", True),
        ("$.price < 100", False),
        ("$.price <= 100.5", True),
        ("$.user.name == 'Ann'", True),
        ('$.user.name == "Ann"', True),
        ("$.user.name == Ann", True),
        ("$.user.name != Ann", False),
        ("$.user.name > 'Al'", True),
        ("$.user.name > 5", False),
        ("$.user.is_admin == true", True),
        ("$.user.is_admin == 1", False),
        ("$.items[*].id == b", True),
        ("$.items[1].n == null", True),
        ("$..id =~ ^[ab]$", True),
        ("$.user.name =~ /nn/", True),
        ("$.id =~ 7", False),
    ],
)
def test_a_condition_is_met(path: str, expected: bool) -> None:
    assert JsonPath(path).is_met(VALUE) is expected


@pytest.mark.parametrize(
    "text",
    ["", "price", "$price", "$.price >", "$.price ~ 1", "$[", "$.a[x]", "$.a =~ (", "$..", "$." + "a" * MAX_CHARACTERS],
)
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        JsonPath(text)


def test_deep_json_is_searched_without_recursion() -> None:
    value: object = 1
    for _ in range(50_000):
        value = [value]
    assert JsonPath("$..[0] == 1").is_met(value)


def nested(value: object, depth: int) -> object:
    for _ in range(depth):
        value = {"a": value}
    return value


def test_each_part_is_selected_once_however_many_ways_lead_to_it() -> None:
    """Of 30 names at any depth, each may be each of 60 levels: more ways than a search ever ends with."""
    assert len(list(JsonPath("$" + "..*" * 4).select(nested(1, 60)))) == 57
    assert not JsonPath("$" + "..a" * 300 + " == 2").is_met(nested(1, 60))
    assert list(JsonPath("$..a..b").select({"a": {"a": [{"b": 1}, {"b": 1}]}})) == [1, 1]


def test_each_part_is_visited_once_to_be_replaced() -> None:
    """A mask with 30 names at any depth, and a record of 60 levels, which anybody may have written."""
    leaf = {"b": 1, "c": [{"b": 2}], "d": 3}
    path = JsonPath("$" + "..a" * 30 + "..b")
    assert path.replaced(nested(leaf, 60), "***") == nested({"b": "***", "c": [{"b": "***"}], "d": 3}, 60)
    assert path.replaced(nested(leaf, 29), "***") == nested(leaf, 29), "an a too few"
    assert JsonPath("$..[-1]").replaced([[1, 2], 3, [4, [5, 6]]], 0) == [[1, 0], 3, 0]
