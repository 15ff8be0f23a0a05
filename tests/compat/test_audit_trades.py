"""audit-trades finds a trade, and a dead letter, that is lost, twice, moved, changed or too many; without Spark."""

import dataclasses
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs import audit_trades
from spark_jobs.audit_trades import AuditTradesConfig
from spark_jobs.errors import JobError
from spark_jobs.events import Trade
from spark_jobs.generator import Market
from spark_jobs.topics import create_topic
from tests.support.audited import PLACES, Record, World

pytestmark = [
    pytest.mark.compat,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning"),
]
MARKET = Market(events=200, trades_per_second=20, late=0.03, duplicates=0.03, malformed=0.05, seed=3)
FAULTS = ["missing", "repeated", "differing", "moved", "unexpected"]
DIGIT = Decimal("0.00000001")


@pytest.fixture
def world(bootstrap: str, topic: str, tmp_path: Path) -> World:
    return World(bootstrap, topic, tmp_path, MARKET)


def config_of(world: World, place: str, **more: Any) -> AuditTradesConfig:
    return AuditTradesConfig(**{**world.settings(place), "dead_letter_topic": f"{world.topic}-dead", **more})


def write(world: World, place: str, trades: list[tuple[Trade, str, date]]) -> None:
    """Write trades under a record key and a day."""
    if place == "topic":
        world.write_topic([(key.encode(), trade.to_json(), []) for trade, key, _ in trades])
        return
    kinds = {"price": pa.decimal128(18, 8), "quantity": pa.decimal128(18, 8)}
    rows = [
        {**dataclasses.asdict(trade), "price": Decimal(trade.price), "quantity": Decimal(trade.quantity)}
        for trade, _, _ in trades
    ]
    columns = {name: pa.array([row[name] for row in rows], kinds.get(name)) for name in rows[0]}
    world.write_table(place, "trades", pa.table({**columns, "date": pa.array([day for _, _, day in trades])}))


def trades_of(world: World) -> list[tuple[Trade, str, date]]:
    return [(trade, f"{trade.symbol}|{trade.trade_id}", day_of(trade)) for trade in world.counted]


def day_of(trade: Trade) -> date:
    return datetime.fromtimestamp(trade.time_ms / 1000, UTC).date()


def planted(trades: list[tuple[Trade, str, date]], fault: str) -> list[tuple[Trade, str, date]]:
    worse = trades[len(trades) // 2]
    trade, key, day = worse
    if fault == "missing":
        return [one for one in trades if one is not worse]
    if fault == "repeated":
        return [*trades, worse]
    if fault == "unexpected":
        return [*trades, (dataclasses.replace(trade, trade_id=10**6), f"{trade.symbol}|{10**6}", day)]
    price = f"{Decimal(trade.price) + DIGIT:f}"
    wrong = (
        (trade, key + "0", date(2001, 1, 1))
        if fault == "moved"
        else (dataclasses.replace(trade, price=price), key, day)
    )
    return [wrong if one is worse else one for one in trades]


def letters_of(world: World) -> list[Record]:
    """Return the dead letters: of each bad or late record, by the rule and by hand."""
    late = {(trade.symbol, trade.trade_id, trade.time_ms) for trade in world.late}
    found = []
    for offset, (event, parsed) in enumerate(zip(world.events, chain(*world.batches), strict=True)):
        if isinstance(parsed, Trade) and (parsed.symbol, parsed.trade_id, parsed.time_ms) not in late:
            continue
        headers = {
            "dlq.reason": parsed if isinstance(parsed, str) else "late",
            "dlq.topic": world.topic,
            "dlq.partition": "0",
            "dlq.offset": str(offset),
            "dlq.timestamp_ms": str(event.arrival_ms),
            "dlq.key": event.key,
        }
        own: list[tuple[str, bytes | None]] = [(name, value.encode()) for name, value in headers.items()]
        found.append((f"{world.topic}-0-{offset}".encode(), event.value, own))
    return found


def write_letters(world: World, letters: list[Record]) -> None:
    create_topic(world.bootstrap, f"{world.topic}-dead", 2)
    world.produce(f"{world.topic}-dead", letters)


def planted_letter(letters: list[Record], fault: str) -> list[Record]:
    (key, value, headers), *others = letters
    if fault == "missing":
        return others
    if fault == "repeated":
        return [*letters, letters[0]]
    if fault == "unexpected":
        return [*letters, ((key or b"") + b"7", value, headers)]
    wrong = {
        "value": (key, (value or b"") + b" ", headers),
        "reason": (key, value, [("dlq.reason", b"another"), *headers[1:]]),
        "key": (key, value, [*headers[:5], ("dlq.key", None)]),
        "header": (key, value, [*headers, ("more", b"")]),
    }
    return [wrong[fault], *others]


@pytest.mark.parametrize("place", PLACES)
def test_trades_and_letters_as_they_must_be_pass(world: World, place: str, capsys) -> None:
    trades, letters = trades_of(world), letters_of(world)
    write(world, place, trades)
    write_letters(world, letters)
    audit_trades.run(config_of(world, place))
    _, of_trades, of_letters = (text.split() for text in capsys.readouterr().out.splitlines())
    assert len(trades) > 150
    assert len(letters) > 5
    assert {"late", "not JSON"} <= {(dict(headers)["dlq.reason"] or b"").decode() for _, _, headers in letters}
    assert of_trades[-5:] == [str(len(trades)), "0", "0", "0", "0"]
    assert of_letters[-5:] == [str(len(letters)), "0", "0", "0", "0"]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("place", PLACES)
def test_a_planted_fault_among_trades_is_found(world: World, place: str, fault: str) -> None:
    write(world, place, planted(trades_of(world), fault))
    write_letters(world, letters_of(world))
    found = {"moved": "differing"}.get(fault, fault)
    with pytest.raises(JobError, match=f"^not what the trades of [^;]*: 1 {found}$") as error:
        audit_trades.run(config_of(world, place))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("fault", ["missing", "repeated", "unexpected", "value", "reason", "key", "header"])
def test_a_planted_fault_among_dead_letters_is_found(world: World, fault: str) -> None:
    write(world, "topic", trades_of(world))
    write_letters(world, planted_letter(letters_of(world), fault))
    found = fault if fault in FAULTS else "differing"
    with pytest.raises(JobError, match=f"topic [^ ]*-dead: 1 {found}$"):
        audit_trades.run(config_of(world, "topic"))


def test_letters_of_other_topics_are_left_out(world: World) -> None:
    write(world, "topic", trades_of(world))
    write_letters(world, [*letters_of(world), (b"another-0-1", b"{", [])])
    audit_trades.run(config_of(world, "topic"))
