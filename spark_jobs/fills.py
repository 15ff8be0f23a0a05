"""fills: compares each trade's price with the order book at the start of its second; a join of two streams.

The input is silver's trades and the seconds of `book` (schemas.BOOK_SECOND). A trade is joined with the book of its
symbol and second. There is one book at most, so each trade makes one row. If there is none (the book was void, or no
update came), the row has no book, and is written once the watermark has passed the second. A trade or a second that is
twice on its topic, as after a crash with delivery: at_least_once, counts once.

The watermark is the lower one of both streams: it trails the latest trade and the latest second by a set delay. A trade
whose second is not after it is late: it is left out, counted, and kept in late_output. Seconds may be late, too,
because `book` writes them by its own watermark. Late seconds are counted in the log, and their trades have no book. So
`watermark` must be longer than that of `book`, and both streams must continue: while one of them has no new records,
trades without a book wait.

All results are exact: sums and differences of decimals.
"""

import logging
from dataclasses import dataclass

from pydantic import Field
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.admin import create_missing_topics
from spark_jobs.batches import kept, run_batches
from spark_jobs.checkpoints import batch
from spark_jobs.config import Duration, TopicConfig
from spark_jobs.errors import JobError
from spark_jobs.gold import left_out
from spark_jobs.metrics import QueryMetrics
from spark_jobs.outputs import prepare
from spark_jobs.parquet_batches import write_batch
from spark_jobs.schemas import BOOK_SECOND, FILL, PRICE, SILVER_TRADE
from spark_jobs.session import spark_session
from spark_jobs.sink import TopicSink, event_json, schema_header, topic_sink
from spark_jobs.source import read_batch, read_topics
from spark_jobs.timed_book import SECOND_MS
from spark_jobs.trades import field_reason, parse_trades, with_fields

log = logging.getLogger("spark_jobs")


class FillsConfig(TopicConfig):
    """topics: the topics with silver's trades."""

    seconds_topics: list[str] = Field(description="topics with the seconds that book tells (its seconds_topic)")
    output: str | None = Field(default=None, description="directory (any Hadoop URL) of the fills in Parquet")
    output_topic: str | None = Field(default="fills", description="topic of the fills")
    output_partitions: int = Field(default=3, ge=1, description="partitions of the topic where it is created")
    late_output: str | None = Field(default=None, description="directory of late trades in Parquet")
    watermark: Duration = Field(
        default="30 seconds", description="how late a trade or a second may be and still count; longer than book's"
    )
    max_ahead: Duration = Field(default="1 hour", description="how far an event time may lie beyond the record's own")

    def outputs(self) -> list[str]:
        return [path for path in (self.output, self.late_output) if path]

    def input_topics(self) -> list[str]:
        return [*self.topics, *self.seconds_topics]

    def output_topics(self) -> list[str]:
        return [self.output_topic] if self.output_topic else []


@dataclass(frozen=True, slots=True)
class Output:
    """The outputs of the job's batches, and their configuration."""

    spark: SparkSession
    config: FillsConfig
    metrics: QueryMetrics
    sink: TopicSink


def run(config: FillsConfig, *, reset_output: bool = False) -> None:
    if config.topic_pattern:
        raise JobError("fills reads topics by name: set topics instead of topic_pattern")
    with spark_session(config, "fills") as spark:
        prepare(spark, config, "fills", reset_output=reset_output)
        if config.output_topic:
            create_missing_topics(spark, config, [config.output_topic], config.output_partitions, {})
        trades = read_topics(spark, config)
        seconds = read_topics(spark, config.model_copy(update={"topics": config.seconds_topics}))
        metrics = QueryMetrics(config, "fills")
        with topic_sink(config, "fills", dict.fromkeys(config.output_topics()), reset_output=reset_output) as sink:
            output = Output(spark, config, metrics, sink)
            good, books = (rows.where("reason IS NULL") for rows in (trades_of(trades, config), books_of(seconds)))
            rows = fills_of(good, books, config.watermark)
            run_batches(rows, config, metrics, lambda fills, batch_id: write(output, fills, batch_id))


def trades_of(rows: DataFrame, config: FillsConfig) -> DataFrame:
    """Return silver's trades with their second, or the reason why a record is not a trade."""
    return parse_trades(rows, SILVER_TRADE, config.max_ahead).withColumn("second_ms", second_ms(F.col("time_ms")))


def books_of(rows: DataFrame) -> DataFrame:
    """Return book's seconds as (book_symbol, begin_ms, bid, ask), or the reason why a record is not a second."""
    reason = field_reason(BOOK_SECOND, dict.fromkeys(("symbol", "time_ms", "bid", "ask"), ".+"))
    columns = {
        "reason": reason,
        "book_symbol": F.col("_f.symbol"),
        "begin_ms": F.expr("try_cast(_f.time_ms AS LONG)"),
        **{side: F.expr(f"try_cast(_f.{side} AS {PRICE})") for side in ("bid", "ask")},
    }
    return with_fields(rows, BOOK_SECOND).withColumns(columns).select(*columns, "topic", "partition", "offset")


def second_ms(time_ms: Column) -> Column:
    return time_ms - time_ms % F.lit(SECOND_MS)


def fills_of(trades: DataFrame, books: DataFrame, watermark: str | None = None) -> DataFrame:
    """Join trades and books (streams with a watermark, batches without) and return the rows of schemas.FILL."""
    trades = trades.withColumn("second", F.timestamp_millis("second_ms"))
    books = books.withColumn("begin", F.timestamp_millis("begin_ms"))
    of_trade, of_book = ["symbol", "trade_id"], ["book_symbol", "begin_ms"]
    if watermark is None:
        trades, books = trades.dropDuplicates(of_trade), books.dropDuplicates(of_book)
    else:
        trades = trades.withWatermark("second", watermark).dropDuplicatesWithinWatermark(of_trade)
        books = books.withWatermark("begin", watermark).dropDuplicatesWithinWatermark(of_book)
    is_its_book = (F.col("symbol") == F.col("book_symbol")) & (F.col("second") == F.col("begin"))
    price, bid, ask = F.col("price"), F.col("bid"), F.col("ask")
    is_sell = F.col("is_buyer_maker")
    twice_off_mid = F.lit(2) * price - (bid + ask)
    derived = {
        "side": F.when(is_sell, "sell").otherwise("buy"),
        "spread": (ask - bid).cast(PRICE),
        "effective_spread": F.when(is_sell, -twice_off_mid).otherwise(twice_off_mid).cast("DECIMAL(20,8)"),
        "slippage": F.when(is_sell, bid - price).otherwise(price - ask).cast("DECIMAL(19,8)"),
    }
    return trades.join(books, is_its_book, "left_outer").withColumns(derived).select(*FILL.names())


def write(output: Output, fills: DataFrame, batch_id: int) -> None:
    config, job = output.config, output.metrics.job
    this = batch(output.spark, config.checkpoint, batch_id)
    records = read_batch(output.spark, config, this)
    is_trade = F.col("topic").isin(config.topics)
    late_seconds = count_late_seconds(books_of(records.where(~is_trade)), this.late_watermark_ms)
    trades = trades_of(records.where(is_trade), config)
    with left_out(trades, F.col("second_ms") <= this.late_watermark_ms) as late:
        if config.output:
            write_batch(fills, config, config.output, batch_id)
        if config.late_output:
            write_batch(late, config, config.late_output, batch_id)
        if config.output_topic:
            output.sink.write(on_topic(fills), config.output_topic, batch_id)
        output.metrics.late.labels(job).inc(late.count())
    if late_seconds:
        log.info("%s: batch %d: %d seconds came late: is watermark longer than book's?", job, batch_id, late_seconds)


def count_late_seconds(books: DataFrame, watermark_ms: int) -> int:
    """Count the late seconds of a batch, which the join leaves out. Raises JobError if a record is not a second."""
    with kept(books.where(F.col("reason").isNotNull() | (F.col("begin_ms") <= watermark_ms))) as odd:
        bad = odd.where("reason IS NOT NULL").first()
        if bad is not None:
            raise JobError(
                f"{bad['topic']}-{bad['partition']} at offset {bad['offset']} is no {BOOK_SECOND.name} of version "
                f"{BOOK_SECOND.version} ({bad['reason']}): seconds_topics are those that book writes as seconds_topic"
            )
        return odd.count()


def on_topic(fills: DataFrame) -> DataFrame:
    return fills.select(
        F.concat_ws("|", "symbol", "trade_id").cast("binary").alias("key"),
        event_json(FILL).alias("value"),
        F.array(schema_header(FILL)).alias("headers"),
    )
