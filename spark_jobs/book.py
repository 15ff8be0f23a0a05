"""Order books on Spark: one state per symbol over the topic of snapshots and deltas, a row for what each record did.

The topic is keyed by symbol, so that a symbol's records lie in one partition in their order. The state is the machine
of order_book.py as JSON, read and written once a micro-batch; it runs in transformWithStateInPandas on Spark 4, in
applyInPandasWithState on Spark 3.5, and in applyInPandas where the input is a plain batch. All give the same rows.

Spark 4 keeps such state in RocksDB alone. Rows go to Parquet, a directory per batch that doing the batch again
replaces, and to a topic.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from heapq import merge
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal

import pandas as pd
import pyspark
from pydantic import Field
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.admin import create_missing_topics
from spark_jobs.batches import run_batches
from spark_jobs.config import TopicConfig
from spark_jobs.depth import UNKNOWN_VERSION, BadDepth, parse
from spark_jobs.errors import JobError
from spark_jobs.metrics import QueryMetrics
from spark_jobs.order_book import BookRow, OrderBook, Quote, Status
from spark_jobs.outputs import prepare
from spark_jobs.schemas import BOOK
from spark_jobs.session import spark_session
from spark_jobs.sink import TopicSink, event_json, topic_sink, write_batch
from spark_jobs.source import read_topics

QUOTE_NAMES = [field.name for field in fields(Quote)]
STATE_SCHEMA = "book STRING"
ORDER = "row_order"
COMPACTED = {"cleanup.policy": "compact"}
STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

assert BOOK.names()[-len(QUOTE_NAMES) :] == QUOTE_NAMES


class BookConfig(TopicConfig):
    """topics: those with the snapshots and deltas."""

    book_topic: str | None = Field(
        default=None, description="compacted topic that gets each row as JSON, keyed by symbol"
    )
    output_partitions: int = Field(default=3, ge=1, description="partitions of that topic where it is created")

    unknown_version: Literal["fail", "malformed"] = Field(
        default="fail", description="what to do with updates of a schema version that this job does not know"
    )

    def output_topics(self) -> list[str]:
        return [self.book_topic] if self.book_topic else []


def run(config: BookConfig, *, reset_output: bool = False) -> None:
    if config.output is None and config.book_topic is None:
        raise JobError("one of output and book_topic is needed: where the rows go")
    with spark_session(config, "book") as spark, state_in_rocksdb(spark):
        prepare(spark, config, reset_output=reset_output)
        if config.book_topic is not None:
            create_missing_topics(spark, config, [config.book_topic], config.output_partitions, COMPACTED)
        rows = book_rows(read_topics(spark, config))
        topics = dict.fromkeys(config.output_topics(), ORDER)
        with topic_sink(config, "book", topics, reset_output=reset_output) as sink:
            metrics = QueryMetrics(config, "book")
            run_batches(rows, config, metrics, lambda batch, batch_id: write(batch, batch_id, config, sink))


@contextmanager
def state_in_rocksdb(spark: SparkSession) -> Iterator[None]:
    """Let the session's queries that start now keep their state in RocksDB."""
    before = spark.conf.get(STATE_STORE, None)
    spark.conf.set(STATE_STORE, ROCKSDB)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(STATE_STORE)
        else:
            spark.conf.set(STATE_STORE, before)


def write(rows: DataFrame, batch_id: int, config: BookConfig, sink: TopicSink) -> None:
    if config.unknown_version == "fail":
        refuse_unknown_version(rows)
    if config.output is not None:
        write_batch(rows, config.output, batch_id)
    if config.book_topic is not None:
        order = F.monotonically_increasing_id().alias(ORDER)  # a symbol's rows lie in one partition, in their order
        keyed = rows.select(F.col("symbol").cast("binary").alias("key"), event_json(BOOK).alias("value"), order)
        sink.write(keyed, config.book_topic, batch_id)


def refuse_unknown_version(rows: DataFrame) -> None:
    unknown = rows.where((F.col("status") == Status.MALFORMED.value) & F.col("reason").startswith(UNKNOWN_VERSION))
    row = unknown.first()
    if row is not None:
        raise JobError(
            f"partition {row['partition']} at offset {row['offset']} holds {row['reason']}: use a job that knows it, "
            f"or set unknown_version: malformed"
        )


def book_rows(source: DataFrame) -> DataFrame:
    """Return the rows of schemas.BOOK, with the event time as `time`, for rows of the Kafka source."""
    records = source.select(
        F.coalesce(F.col("key").cast("string"), F.lit("")).alias("symbol"),
        "value",
        "partition",
        "offset",
        F.unix_millis("timestamp").alias("timestamp_ms"),
    ).groupBy("symbol")
    return _rows_of(records, source.isStreaming).withColumn("time", F.timestamp_millis("time_ms"))


def _rows_of(records: Any, is_streaming: bool) -> DataFrame:
    result: DataFrame
    if not is_streaming:
        result = records.applyInPandas(_rows_of_group, BOOK.ddl())
    elif pyspark.__version__.startswith("3."):
        result = records.applyInPandasWithState(_rows_with_state, BOOK.ddl(), STATE_SCHEMA, "append", "NoTimeout")
    else:
        result = records.transformWithStateInPandas(
            statefulProcessor=_processor(), outputStructType=BOOK.ddl(), outputMode="Append", timeMode="None"
        )
    return result


# -- in a Python worker ---------------------------------------------------------------------------------------------


def _rows_of_group(key: tuple[str], records: pd.DataFrame) -> pd.DataFrame:
    return rows_after(OrderBook(), key[0], [records])


def _rows_with_state(key: tuple[str], records: Iterable[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    book = OrderBook.from_json(state.get[0]) if state.exists else OrderBook()
    yield rows_after(book, key[0], records)
    state.update((book.to_json(),))


def _processor() -> Any:
    from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

    class BookProcessor(StatefulProcessor):
        """The machine of each symbol, kept as one JSON string."""

        def init(self, handle: StatefulProcessorHandle) -> None:
            self.state = handle.getValueState("book", STATE_SCHEMA)

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
            stored = self.state.get()
            book = OrderBook.from_json(stored[0]) if stored is not None else OrderBook()
            yield rows_after(book, key[0], rows)
            self.state.update((book.to_json(),))

        def close(self) -> None:
            """Nothing is held open."""

    return BookProcessor()


def rows_after(book: OrderBook, symbol: str, records: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Step the book over a micro-batch's records of its symbol and return their rows."""
    rows = []
    for record in in_order(pd.concat(list(records))):
        for row in step(book, symbol, record.value):
            time_ms = record.timestamp_ms if row.time_ms is None else row.time_ms
            quote = asdict(row.quote) if row.quote is not None else dict.fromkeys(QUOTE_NAMES)
            where = symbol, record.partition, record.offset, time_ms
            rows.append((*where, row.update_id, row.status.value, row.reason, *quote.values()))
    return pd.DataFrame(rows, columns=BOOK.names())


def in_order(records: pd.DataFrame) -> Iterable[Any]:
    """Return the records by offset; those of several partitions (some were added) merged by their timestamps."""
    ordered = records.sort_values(["partition", "offset"]).itertuples(index=False)
    partitions = [list(group) for _, group in groupby(ordered, key=attrgetter("partition"))]
    return merge(*partitions, key=attrgetter("timestamp_ms"))


def step(book: OrderBook, symbol: str, value: bytes | None) -> list[BookRow]:
    try:
        return book.step(parse(value, symbol))
    except BadDepth as bad:
        return [BookRow(Status.MALFORMED, None, -1, str(bad))]
