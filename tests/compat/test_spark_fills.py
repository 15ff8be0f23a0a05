"""Trades beside the order book of their second: every row and every late trade, also after kill -9 of the driver."""

import json
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer

from spark_jobs import fills
from spark_jobs.errors import JobError
from spark_jobs.events import Trade
from spark_jobs.fills import FillsConfig
from spark_jobs.schemas import FILL
from spark_jobs.topics import create_topic
from tests.support import market
from tests.support.copying import only_soaked
from tests.support.spark_job import kill_at

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
START_MS = 1_700_000_000_000
WATERMARK_MS = 3_000
PER_BATCH = 120
Book = tuple[str, int, Decimal, Decimal]
"""(symbol, the second's start, bid, ask)."""


def made(seed: int, seconds: int) -> tuple[list[Trade], list[Book]]:
    """Return trades, some late by up to a minute, and books, of which some seconds have none; some come twice."""
    random = Random(seed)
    trades, books = [], []
    for second in range(seconds):
        for symbol, mid in (("BTCUSDT", 3_512_345), ("ETHUSDT", 181_234)):
            bid = Decimal(mid + random.randint(-500, 500)) / 100
            ask = bid + Decimal(random.randint(1, 300)) / 10**8
            if random.random() < 0.9:
                books += [(symbol, START_MS + second * 1000, bid, ask)] * random.choice((1, 1, 1, 2))
            for number in range(3):
                price = bid + Decimal(random.randint(-(10**7), 10**7)) / 10**8
                late_ms = random.randint(30_000, 60_000) if random.random() < 0.1 else 0
                time_ms = START_MS + second * 1000 + random.randrange(1000) - late_ms
                trade_id, quantity = second * 10 + number, f"{random.randint(1, 10**8) / 10**4:.4f}"
                trade = Trade(symbol, trade_id, f"{price:.8f}", quantity, time_ms, random.random() < 0.5)
                trades += [trade] * random.choice((1, 1, 1, 2))
    return trades, books


def put(bootstrap: str, topic: str, values: list[tuple[str, bytes]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for key, value in values:
        producer.produce(topic, value, key, timestamp=START_MS + 3_600_000)
    assert producer.flush(60) == 0


def put_all(bootstrap: str, topic: str, trades: list[Trade], books: list[Book]) -> None:
    for name in (topic, f"{topic}-seconds"):
        create_topic(bootstrap, name, 1, retention_ms="-1")
    put(bootstrap, topic, [(trade.symbol, trade.to_json()) for trade in trades])
    put(bootstrap, f"{topic}-seconds", [(book[0], book_json(book)) for book in books])


def book_json(book: Book) -> bytes:
    symbol, time_ms, bid, ask = book
    return json.dumps({"v": 1, "symbol": symbol, "time_ms": time_ms, "bid": f"{bid}", "ask": f"{ask:f}"}).encode()


def config_of(bootstrap: str, topic: str, path: Path) -> dict[str, Any]:
    return {
        "bootstrap_servers": bootstrap,
        "topics": [topic],
        "seconds_topics": [f"{topic}-seconds"],
        "checkpoint": str(path / "checkpoint"),
        "output": str(path / "fills"),
        "late_output": str(path / "late"),
        "output_topic": f"{topic}-fills",
        "delivery": "exactly_once",
        "transactions": 1,
        "watermark": f"{WATERMARK_MS} milliseconds",
        "trigger": "available_now",
        "max_offsets_per_trigger": PER_BATCH,
        "shuffle_partitions": 2,
    }


def expected(
    topic: str, trades: list[Trade], books: list[Book], path: Path
) -> tuple[list[tuple[Any, ...]], list[tuple[str, int]]]:
    """Return the fills and the (symbol, trade id) of late trades, in plain decimals, batch by batch."""
    batches = market.planned(path / "checkpoint")
    watermark_before = [0, *(watermark for _, watermark in batches[:-1])]

    def in_time(topic: str, offset: int, second_ms: int) -> bool:
        number = next(n for n, (ends, _) in enumerate(batches) if offset < ends[topic]["0"])
        return second_ms > watermark_before[number]

    counted = {book[:2]: book for n, book in enumerate(books) if in_time(f"{topic}-seconds", n, book[1])}
    rows, late, seen = [], [], set()
    for offset, trade in enumerate(trades):
        second_ms = trade.time_ms - trade.time_ms % 1000
        if not in_time(topic, offset, second_ms):
            late.append((trade.symbol, trade.trade_id))
            continue
        if (trade.symbol, trade.trade_id) in seen:
            continue
        seen.add((trade.symbol, trade.trade_id))
        book = counted.get((trade.symbol, second_ms))
        if book is not None:
            rows.append(row_of(trade, book[2], book[3]))
        elif second_ms <= batches[-1][1]:
            rows.append(row_of(trade, None, None))
    return sorted(rows, key=lambda row: row[:2]), sorted(late)


def row_of(trade: Trade, bid: Decimal | None, ask: Decimal | None) -> tuple[Any, ...]:
    price, side = Decimal(trade.price), "sell" if trade.is_buyer_maker else "buy"
    known = (trade.symbol, trade.trade_id, price, Decimal(trade.quantity), trade.time_ms, side)
    if bid is None or ask is None:
        return (*known, *[None] * 5)
    direction = -1 if side == "sell" else 1
    effective_spread = 2 * direction * (price - (bid + ask) / 2)
    return (*known, bid, ask, ask - bid, effective_spread, price - ask if side == "buy" else bid - price)


def check(spark, bootstrap: str, topic: str, trades: list[Trade], books: list[Book], path: Path) -> None:
    rows, late = expected(topic, trades, books, path)
    found = spark.read.parquet(str(path / "fills")).select(FILL.names()).collect()
    assert sorted((tuple(row) for row in found), key=lambda row: row[:2]) == rows
    assert {row[6] is None for row in rows} == {True, False}, "with a book and without"
    out = spark.read.parquet(str(path / "late")).collect()
    assert sorted((row["symbol"], row["trade_id"]) for row in out) == late
    assert late
    on_topic = [json.loads(record.value or b"") for record in market.consume(bootstrap, f"{topic}-fills")]
    exact = [tuple(as_exact(name, one.get(name)) for name in FILL.names()) for one in on_topic]
    assert sorted(exact, key=lambda row: row[:2]) == rows


def as_exact(name: str, value: Any) -> Any:
    return Decimal(value) if isinstance(value, str) and name not in ("symbol", "side") else value


def test_each_trade_is_held_against_the_book_of_its_second(spark, bootstrap, topic, tmp_path) -> None:
    trades, books = made(1, 60)
    put_all(bootstrap, topic, trades, books)
    fills.run(FillsConfig(**config_of(bootstrap, topic, tmp_path)))
    check(spark, bootstrap, topic, trades, books, tmp_path)


@only_soaked  # three minutes; test_spark_book_seconds.py kills a driver in CI
def test_a_driver_killed_amid_its_batches_makes_each_row_once(spark, bootstrap, topic, tmp_path) -> None:
    trades, books = made(2, 50)
    put_all(bootstrap, topic, trades, books)
    config = config_of(bootstrap, topic, tmp_path)
    kill_at(("claimed-0", "delivered-1"), "fills", config, tmp_path)
    fills.run(FillsConfig(**config))
    check(spark, bootstrap, topic, trades, books, tmp_path)


def test_a_record_that_is_no_second_ends_the_job_and_is_named(spark, bootstrap, topic, tmp_path) -> None:
    trades, books = made(3, 3)
    put_all(bootstrap, topic, trades, books)
    put(bootstrap, f"{topic}-seconds", [("BTCUSDT", b'{"v":2}')])
    with pytest.raises(JobError, match=f"{topic}-seconds-0 at offset {len(books)} is no book_second of version 1"):
        fills.run(FillsConfig(**config_of(bootstrap, topic, tmp_path)))
