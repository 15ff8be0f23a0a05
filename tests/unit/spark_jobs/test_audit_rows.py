"""How audits read a row and compare it: each column, the record's key, the day; and what is no row at all."""

import json
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from confluent_kafka import Message

from spark_jobs.audit_bars import BARS
from spark_jobs.audit_rows import Kind, compare, found_in, on_this_machine
from spark_jobs.audit_trades import TRADES, letter, of_letter
from spark_jobs.schemas import BAR

Row = dict[str, Any]
TRADE: Row = {"symbol": "A", "trade_id": 7, "price": "1.5", "quantity": "2", "time_ms": 1_500, "is_buyer_maker": True}
EACH_COLUMN = [(BARS, column.name) for column in BAR.columns] + [(TRADES, name) for name in TRADE]


def row_of(kind: Kind) -> Row:
    if kind is TRADES:
        return dict(TRADE)
    names = {column.name: Decimal(1) if column.type.startswith("DECIMAL") else 1_000 for column in BAR.columns}
    return {**names, "symbol": "A", "width": "1s"}


def expected_of(kind: Kind) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    row = row_of(kind)
    return {kind.key_of(row): kind.values_of(row)}


def faults(kind: Kind, *rows: Row) -> dict[str, int]:
    return compare("here", expected_of(kind), found_in("here", rows, kind.of_row)).faults(may_repeat=False)


def record(key: bytes | None, value: bytes) -> Message:
    return Message(topic="t", partition=1, offset=3, key=key, value=value, headers=[("a", None)], timestamp=(1, 5))


def changed(row: Row, name: str) -> Row:
    value = row[name]
    if isinstance(value, bool):
        return {**row, name: not value}
    if isinstance(value, str):
        return {**row, name: f"{Decimal(value) + Decimal('1e-8'):f}" if name in ("price", "quantity") else value + "B"}
    return {**row, name: value + (Decimal("1e-16") if isinstance(value, Decimal) else 1)}


@pytest.mark.parametrize(("kind", "name"), EACH_COLUMN)
def test_another_value_of_any_column_is_found(kind: Kind, name: str) -> None:
    found = {"missing": 1, "unexpected": 1} if name in kind.key else {"differing": 1}
    assert faults(kind, changed(row_of(kind), name)) == found
    assert faults(kind, row_of(kind)) == {}


@pytest.mark.parametrize("kind", [BARS, TRADES])
def test_a_row_that_is_lost_twice_or_under_another_day_is_found(kind: Kind) -> None:
    row = row_of(kind)
    assert faults(kind) == {"missing": 1}
    assert faults(kind, row, row) == {"repeated": 1}
    assert faults(kind, {**row, "date": date(1970, 1, 2)}) == {"differing": 1}
    assert faults(kind, {**row, "date": date(1970, 1, 1)}) == {}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda row: {name: value for name, value in row.items() if name != "price"},
        lambda row: {**row, "price": None},
        lambda row: {**row, "price": "1.5x"},
        lambda row: {**row, "symbol": ["A"]},
        lambda row: {**row, "time_ms": "later"},
    ],
)
def test_a_row_that_cannot_be_read_is_missing_and_unexpected(spoil: Callable[[Row], Row]) -> None:
    assert faults(TRADES, spoil(row_of(TRADES))) == {"missing": 1, "unexpected": 1}


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        (b"A|7", json.dumps({"v": 1, **TRADE}).encode(), {}),
        (b"A|8", json.dumps({"v": 1, **TRADE}).encode(), {"differing": 1}),
        (None, json.dumps({"v": 1, **TRADE}).encode(), {"differing": 1}),
        (b"A|7", json.dumps({"v": 2, **TRADE}).encode(), {"differing": 1}),
        (b"A|7", b"{", {"missing": 1, "unexpected": 1}),
        (b"A|7", b"[]", {"missing": 1, "unexpected": 1}),
        (b"A|7", b'{"v":1}', {"missing": 1, "unexpected": 1}),
    ],
)
def test_a_record_is_read_by_its_value_and_held_against_its_key(key, value, found) -> None:
    rows = found_in("here", [record(key, value)], TRADES.of_record)
    assert compare("here", expected_of(TRADES), rows).faults(may_repeat=False) == found


def test_repeats_may_be_allowed_and_nothing_else() -> None:
    found = compare("here", expected_of(BARS), found_in("here", [row_of(BARS), row_of(BARS)], BARS.of_row))
    assert found.faults(may_repeat=True) == {}
    found = compare("here", expected_of(BARS), [])
    assert found.faults(may_repeat=True) == {"missing": 1}


def test_a_dead_letter_is_known_by_its_place_and_compared_as_a_whole() -> None:
    key, (value, headers) = letter(record(b"k", b"v"), "not JSON")
    assert key == ("t", 1, 3)
    assert value == b"v"
    assert headers == (
        ("dlq.reason", b"not JSON"),
        ("dlq.topic", b"t"),
        ("dlq.partition", b"1"),
        ("dlq.offset", b"3"),
        ("dlq.timestamp_ms", b"5"),
        ("dlq.key", b"k"),
        ("a", None),
    )
    there = Message(topic="dead", partition=0, offset=9, key=b"t-1-3", value=value, headers=list(headers))
    assert of_letter(there) == (key, (value, headers))


@pytest.mark.parametrize("url", ["/a b/c", "file:/a b/c", "file:///a b/c"])
def test_a_directory_may_be_an_url_of_this_machine(url: str) -> None:
    assert on_this_machine(url) == Path("/a b/c")
