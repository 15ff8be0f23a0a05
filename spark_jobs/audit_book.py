"""audit-book: reads book's state store, and proves that it has each symbol's book as the topic's records make it.

It compares the last committed batch's state (Spark's `statestore` source) with the books that order_book.py makes of
the topic's records, from the query's first offsets to that batch's end. Per symbol:

    current    the same book, at the same update
    void       the same, without a book: the deltas kept for a snapshot are the same
    forgotten  with seconds: silent for longer than forget_after; no state any more, or one without a book
    missing    no state, though the topic makes a book                               fails
    differing  another update, another level, or other updates that wait             fails
    unexpected a state of a symbol that the topic does not have                       fails
"""

from collections import Counter
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.audit import by_topic, read_ranges
from spark_jobs.book import BookConfig, clock_ms, depth_records, event_ms, in_order, read, state_in_rocksdb
from spark_jobs.checkpoints import Batch
from spark_jobs.config import duration_ms
from spark_jobs.connector import require_spark
from spark_jobs.errors import JobError
from spark_jobs.order_book import BookRow, OrderBook
from spark_jobs.session import spark_session
from spark_jobs.source import read_batch
from spark_jobs.timed_book import TimedBook

FAULTS = ("missing", "differing", "unexpected")
NEVER_MS = 1 << 62
SHOWN = 3


class AuditBookConfig(BookConfig):
    """Book's own configuration."""


def run(config: AuditBookConfig) -> None:
    """Audit, print the result, and raise JobError if something is wrong."""
    require_spark("audit-book", "4.0")
    with spark_session(config, "audit-book") as spark, state_in_rocksdb(spark):
        found = audit(spark, config)
    counts = Counter(found.values())
    print("  ".join(f"{name} {counts[name]}" for name in sorted(counts)) or "no symbol", flush=True)
    wrong = {name: sorted(symbol for symbol, one in found.items() if one == name) for name in FAULTS}
    faults = [f"{name}: {', '.join(symbols[:SHOWN])}" for name, symbols in wrong.items() if symbols]
    if faults:
        raise JobError(
            f"the state in {config.checkpoint} is not what {', '.join(config.topics)} makes: {'; '.join(faults)}"
        )


def audit(spark: SparkSession, config: AuditBookConfig) -> dict[str, str]:
    """Return the result for each symbol."""
    forget_after_ms = duration_ms(config.forget_after) if config.has_seconds else NEVER_MS
    stored = {row["symbol"]: row["book"] for row in state_of(spark, config.checkpoint).collect()}
    made = {row["symbol"]: row for row in made_of(spark, config, forget_after_ms).collect()}
    found = {}
    for symbol in sorted(stored.keys() | made.keys()):
        state = _book(stored[symbol], has_seconds=config.has_seconds) if symbol in stored else None
        book = OrderBook.from_json(made[symbol]["book"]) if symbol in made else None
        found[symbol] = judge(state, book, is_forgotten=symbol in made and made[symbol]["is_forgotten"])
    return found


def state_of(spark: SparkSession, checkpoint: str) -> DataFrame:
    """Return (symbol, book) of the last committed batch's state store."""
    reader = spark.read.format("statestore").option("stateVarName", "book")
    return reader.load(checkpoint).select("key.symbol", "value.book")


def made_of(spark: SparkSession, config: BookConfig, forget_after_ms: int) -> DataFrame:
    """Return (symbol, book, is_forgotten) as order_book.py makes it of the records that the query has read."""
    start, end = read_ranges(spark, config.checkpoint)
    everything = Batch(by_topic({where: start.get(where, 0) for where in end}), by_topic(end), 0)
    records = depth_records(read_batch(spark, config, everything))
    clocked = records.withColumn("clock_ms", clock_ms(duration_ms(config.max_ahead)))
    latest = clocked.agg(F.max("clock_ms")).first()
    now_ms = (latest[0] or 0) if latest is not None else 0

    def made(key: tuple[str], frame: pd.DataFrame) -> pd.DataFrame:
        timed = TimedBook(forget_after_ms)
        for record in in_order(frame):
            message = read(record, key[0])
            if not isinstance(message, BookRow):
                timed.step(message, event_ms(record))
        book = timed.book  # advance replaces a book that it forgets
        timed.advance(now_ms)
        return pd.DataFrame(
            [(key[0], book.to_json(), timed.is_forgotten())], columns=["symbol", "book", "is_forgotten"]
        )

    return clocked.groupBy("symbol").applyInPandas(made, "symbol STRING, book STRING, is_forgotten BOOLEAN")


def judge(state: OrderBook | None, made: OrderBook | None, *, is_forgotten: bool) -> str:
    """Compare a symbol's state with the book that the topic's records make.

    A book to be forgotten may still be in the state: the watermark is behind the latest record.
    """
    if made is None:
        return "unexpected"
    if is_forgotten and contents(state or OrderBook()) == contents(OrderBook()):
        return "forgotten"
    if state is None:
        return "void" if contents(made) == contents(OrderBook()) else "missing"
    if contents(state) != contents(made):
        return "differing"
    return "void" if state.last_update_id is None else "current"


def contents(book: OrderBook) -> tuple[Any, ...]:
    at = book.last_update_id, book.is_first_after_snapshot
    return *at, book.bids.quantities, book.asks.quantities, book.kept


def _book(text: str, *, has_seconds: bool) -> OrderBook:
    return TimedBook.from_json(text, NEVER_MS).book if has_seconds else OrderBook.from_json(text)
