"""Order books on Spark: one state per symbol over the topic of snapshots and deltas, a row for what each record did.

The topic is keyed by symbol, so that a symbol's records lie in one partition in their order. The state is the machine
of order_book.py as JSON, read and written once a micro-batch; it runs in transformWithStateInPandas on Spark 4, in
applyInPandasWithState on Spark 3.5, and in applyInPandas if the input is a plain batch. All give the same rows.

Spark 4 keeps such state in RocksDB only. Rows go to Parquet, a directory for each batch, which a repeated batch
replaces, and to a topic.

With `seconds_output` or `seconds_topic` there is also a row with the whole book at the start of each second of event
time (timed_book.py). A second starts with a record, or for a symbol without records with a timer of the watermark. A
symbol without records for long is forgotten by its timer: Spark's own TTL of states uses the machine's clock, so that a
repeated batch would give other rows. No record is dropped as late, because the books would have gaps: the watermark is
that of a column which the stateful operator does not see.
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
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.admin import create_missing_topics
from spark_jobs.batches import run_batches
from spark_jobs.config import Duration, TopicConfig, duration_ms
from spark_jobs.connector import require_spark
from spark_jobs.depth import UNKNOWN_VERSION, BadDepth, DepthMessage, parse, texts
from spark_jobs.errors import JobError
from spark_jobs.metrics import QueryMetrics
from spark_jobs.order_book import BookRow, OrderBook, Quote, Status
from spark_jobs.outputs import prepare
from spark_jobs.parquet_batches import write_batch
from spark_jobs.schemas import BOOK, BOOK_SECOND, LEVELS
from spark_jobs.session import spark_session
from spark_jobs.sink import TopicSink, event_json, topic_sink
from spark_jobs.source import read_topics
from spark_jobs.timed_book import BookSecond, TimedBook

ROWS, SECONDS = BOOK.ddl(), f"{BOOK.ddl()}, bids {LEVELS}, asks {LEVELS}"
QUOTE_NAMES = [field.name for field in fields(Quote)]
Row = tuple[Any, ...]
STATE_SCHEMA = "book STRING"
ORDER = "row_order"
COMPACTED = {"cleanup.policy": "compact"}
STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

assert BOOK.names()[-len(QUOTE_NAMES) :] == QUOTE_NAMES


class BookConfig(TopicConfig):
    """topics: the topics with snapshots and deltas."""

    book_topic: str | None = Field(
        default=None, description="compacted topic that gets each row as JSON, keyed by symbol"
    )
    output_partitions: int = Field(default=3, ge=1, description="partitions of these topics where they are created")
    seconds_output: str | None = Field(
        default=None, description="directory of the books as each second of event time began, in Parquet (Spark 4)"
    )
    seconds_topic: str | None = Field(default=None, description="topic that gets them as JSON, keyed by symbol")
    watermark: Duration = Field(
        default="10 seconds", description="with seconds: how late an update may be before a second is told without it"
    )
    forget_after: Duration = Field(
        default="10 minutes", description="with seconds: how long a silent symbol's book is kept"
    )
    max_ahead: Duration = Field(
        default="1 hour", description="with seconds: an event time that is further beyond the record's own is none"
    )
    unknown_version: Literal["fail", "malformed"] = Field(
        default="fail", description="what to do with updates of a schema version that this job does not know"
    )

    @property
    def has_seconds(self) -> bool:
        return bool(self.seconds_output or self.seconds_topic)

    def outputs(self) -> list[str]:
        return [path for path in (self.output, self.seconds_output) if path]

    def output_topics(self) -> list[str]:
        return [topic for topic in (self.book_topic, self.seconds_topic) if topic]


def run(config: BookConfig, *, reset_output: bool = False) -> None:
    if not config.outputs() and not config.output_topics():
        raise JobError("one of output, book_topic, seconds_output and seconds_topic is needed: where the rows go")
    with spark_session(config, "book") as spark, state_in_rocksdb(spark):
        prepare(spark, config, "book", reset_output=reset_output)
        for topic, settings in ((config.book_topic, COMPACTED), (config.seconds_topic, {})):
            if topic is not None:
                create_missing_topics(spark, config, [topic], config.output_partitions, settings)
        rows = rows_of(read_topics(spark, config), config)
        topics = dict.fromkeys(config.output_topics(), ORDER)
        with topic_sink(config, "book", topics, reset_output=reset_output) as sink:
            metrics = QueryMetrics(config, "book")
            run_batches(rows, config, metrics, lambda batch, batch_id: write(batch, batch_id, config, sink))


@contextmanager
def state_in_rocksdb(spark: SparkSession) -> Iterator[None]:
    """Configure the session so that queries that start from now on keep their state in RocksDB."""
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
    is_second = F.col("status") == Status.SECOND.value
    changes, seconds = rows.where(~is_second).select(*BOOK.names(), "time"), rows.where(is_second)
    for part, schema, output, topic in (
        (changes, BOOK, config.output, config.book_topic),
        (seconds, BOOK_SECOND, config.seconds_output, config.seconds_topic),
    ):
        if output is not None:
            write_batch(part.select(*schema.names(), "time"), config, output, batch_id)
        if topic is not None:
            order = F.monotonically_increasing_id().alias(ORDER)  # all rows of a symbol are in one partition, in order
            keyed = part.select(F.col("symbol").cast("binary").alias("key"), event_json(schema).alias("value"), order)
            sink.write(keyed, topic, batch_id)


def refuse_unknown_version(rows: DataFrame) -> None:
    unknown = rows.where((F.col("status") == Status.MALFORMED.value) & F.col("reason").startswith(UNKNOWN_VERSION))
    row = unknown.first()
    if row is not None:
        raise JobError(
            f"partition {row['partition']} at offset {row['offset']} holds {row['reason']}: use a job that knows it, "
            f"or set unknown_version: malformed"
        )


def rows_of(source: DataFrame, config: BookConfig) -> DataFrame:
    """Return a stream's rows, as the configuration wants them."""
    if not config.has_seconds:
        return book_rows(source)
    require_spark("seconds_output and seconds_topic", "4.0", "leave them out")
    return book_and_seconds(source, config)


def book_rows(source: DataFrame) -> DataFrame:
    """Return the rows of schemas.BOOK, with the event time as `time`, for rows of the Kafka source."""
    records = depth_records(source).groupBy("symbol")
    result: DataFrame
    if not source.isStreaming:
        result = records.applyInPandas(_rows_of_group, ROWS)
    elif pyspark.__version__.startswith("3."):
        result = records.applyInPandasWithState(_rows_with_state, ROWS, STATE_SCHEMA, "append", "NoTimeout")
    else:
        result = records.transformWithStateInPandas(
            statefulProcessor=_processor(), outputStructType=ROWS, outputMode="Append", timeMode="None"
        )
    return _with_time(result)


def book_and_seconds(source: DataFrame, config: BookConfig) -> DataFrame:
    """Return the rows of book_rows for a stream, and those of schemas.BOOK_SECOND among them with status second."""
    records = depth_records(source).withColumn("clock_ms", clock_ms(duration_ms(config.max_ahead)))
    clocked = records.withColumn("clock", F.timestamp_millis("clock_ms")).withWatermark("clock", config.watermark)
    result = (
        clocked.drop("clock")
        .groupBy("symbol")
        .transformWithStateInPandas(
            statefulProcessor=_timed_processor(duration_ms(config.forget_after)),
            outputStructType=SECONDS,
            outputMode="Append",
            timeMode="EventTime",
        )
    )
    return _with_time(result)


def depth_records(source: DataFrame) -> DataFrame:
    """Return the columns of the Kafka source that the order book needs."""
    return source.select(
        F.coalesce(F.col("key").cast("string"), F.lit("")).alias("symbol"),
        "value",
        "partition",
        "offset",
        F.unix_millis("timestamp").alias("timestamp_ms"),
    )


def clock_ms(max_ahead_ms: int) -> Column:
    """Return the event time in a record's JSON; null without one, or if it is too far ahead of the timestamp."""
    value = F.col("value").cast("string")
    found = F.coalesce(F.get_json_object(value, "$.time_ms"), F.get_json_object(value, "$.E"))
    time_ms = found.try_cast("long")
    return F.when(time_ms.between(F.lit(0), F.col("timestamp_ms") + max_ahead_ms), time_ms)


def _with_time(rows: DataFrame) -> DataFrame:
    return rows.withColumn("time", F.timestamp_millis("time_ms"))


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


def _timed_processor(forget_after_ms: int) -> Any:
    from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

    class TimedBookProcessor(StatefulProcessor):
        """The machine of each symbol with its clock; a timer stands at the next second while the clock runs."""

        def init(self, handle: StatefulProcessorHandle) -> None:
            self.handle = handle
            self.state = handle.getValueState("book", STATE_SCHEMA)

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
            stored = self.state.get()
            book = TimedBook.from_json(stored[0], forget_after_ms) if stored is not None else TimedBook(forget_after_ms)
            has_timer = book.last_ms is not None
            yield timed_rows_after(book, key[0], rows)
            if not has_timer and book.last_ms is not None:
                self.handle.registerTimer(book.next_ms)
            self.state.update((book.to_json(),))

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
            stored = self.state.get()
            assert stored is not None, "a timer stands where a book is"
            book = TimedBook.from_json(stored[0], forget_after_ms)
            yield frame_of([second_row(key[0], one) for one in book.advance(timerValues.getCurrentWatermarkInMs())])
            if book.last_ms is not None:
                self.handle.registerTimer(book.next_ms)
            if book.is_forgotten():
                self.state.clear()
            else:
                self.state.update((book.to_json(),))

        def close(self) -> None:
            """Nothing is held open."""

    return TimedBookProcessor()


def rows_after(book: OrderBook, symbol: str, records: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Step the book over a micro-batch's records of its symbol and return their rows."""
    rows = []
    for record in in_order(pd.concat(list(records))):
        message = read(record, symbol)
        own = [message] if isinstance(message, BookRow) else book.step(message)
        rows += [book_row(symbol, record, row) for row in own]
    return pd.DataFrame(rows, columns=BOOK.names())


def timed_rows_after(book: TimedBook, symbol: str, records: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Step the timed book likewise; return also the rows of seconds that begin."""
    rows = []
    for record in in_order(pd.concat(list(records))):
        message = read(record, symbol)
        seconds, own = ([], [message]) if isinstance(message, BookRow) else book.step(message, event_ms(record))
        rows += [second_row(symbol, second) for second in seconds]
        rows += [(*book_row(symbol, record, row), None, None) for row in own]
    return frame_of(rows)


def event_ms(record: Any) -> int | None:
    return None if pd.isna(record.clock_ms) else int(record.clock_ms)


def frame_of(rows: list[Row]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=[*BOOK.names(), "bids", "asks"])


def book_row(symbol: str, record: Any, row: BookRow) -> Row:
    time_ms = record.timestamp_ms if row.time_ms is None else row.time_ms
    quote = asdict(row.quote) if row.quote is not None else dict.fromkeys(QUOTE_NAMES)
    where = symbol, record.partition, record.offset, time_ms
    return (*where, row.update_id, row.status.value, row.reason, *quote.values())


def second_row(symbol: str, second: BookSecond) -> Row:
    where = symbol, -1, -1, second.time_ms, second.update_id, Status.SECOND.value, None
    return (*where, *asdict(second.quote).values(), texts(second.bids), texts(second.asks))


def in_order(records: pd.DataFrame) -> Iterable[Any]:
    """Return the records by offset; those of several partitions (some were added) merged by their timestamps."""
    ordered = records.sort_values(["partition", "offset"]).itertuples(index=False)
    partitions = [list(group) for _, group in groupby(ordered, key=attrgetter("partition"))]
    return merge(*partitions, key=attrgetter("timestamp_ms"))


def read(record: Any, symbol: str) -> DepthMessage | BookRow:
    """Return the message of a record, or the row of one that cannot be used."""
    try:
        return parse(record.value, symbol)
    except BadDepth as bad:
        return BookRow(Status.MALFORMED, None, -1, str(bad))
