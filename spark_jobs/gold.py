"""gold: bars of 1 s, 1 min and 1 h in event time, to Parquet and to a compacted topic.

The input is silver's topic. A trade counts once, although the topic may have it twice. A trade is late if its event
time is not after the watermark, which trails the latest event time by a set delay. A late trade is in no bar of any
width, so that the bars of different widths have the same sums; it is counted, and kept in late_output. A bar is written
once, when the watermark has passed its end.

Sums are exact; quotients are rounded half up to 8 places (schemas.BAR). A bar opens and closes with its first and
last trade by (time, trade id).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pydantic import Field
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.admin import create_missing_topics
from spark_jobs.batches import kept, run_batches
from spark_jobs.checkpoints import batch
from spark_jobs.config import Duration, TableConfig, TopicConfig, duration_ms
from spark_jobs.errors import JobError
from spark_jobs.metrics import QueryMetrics
from spark_jobs.outputs import prepare
from spark_jobs.parquet_batches import write_batch
from spark_jobs.schemas import BAR, PRICE, SILVER_TRADE, TURNOVER, VOLUME, WIDTHS_MS
from spark_jobs.session import spark_session
from spark_jobs.sink import TableSink, TopicSink, event_json, schema_header, topic_sink
from spark_jobs.source import read_batch, read_topics
from spark_jobs.trades import distinct_trades, parse_trades

COMPACTED = {"cleanup.policy": "compact"}
LATE_COLUMNS = ["symbol", "trade_id", "price", "quantity", "time_ms", "is_buyer_maker", "topic", "partition", "offset"]


class BarsConfig(TopicConfig):
    output_topic: str | None = Field(default="bars", description="compacted topic of the bars")
    output_partitions: int = Field(default=3, ge=1, description="partitions of the topic where it is created")
    watermark: Duration = Field(default="10 seconds", description="how late a trade may be and still count")
    max_ahead: Duration = Field(default="1 hour", description="how far an event time may lie beyond the record's own")

    def output_topics(self) -> list[str]:
        return [self.output_topic] if self.output_topic else []


class GoldConfig(TableConfig, BarsConfig):
    output: str | None = Field(default=None, description="directory (any Hadoop URL) of the bars in Parquet")
    late_output: str | None = Field(default=None, description="directory of late trades in Parquet")

    def outputs(self) -> list[str]:
        return [path for path in (self.output, self.late_output) if path]


def run(config: GoldConfig, *, reset_output: bool = False) -> None:
    with spark_session(config, "gold") as spark:
        prepare(spark, config, "gold", reset_output=reset_output)
        if config.output_topic:
            create_missing_topics(spark, config, [config.output_topic], config.output_partitions, COMPACTED)
        metrics = QueryMetrics(config, "gold")
        rows = bar_stream(read_topics(spark, config), config)
        topics = dict.fromkeys(config.output_topics())
        with topic_sink(config, "gold", topics, reset_output=reset_output) as sink:
            output = Output(config, metrics, sink, TableSink(config, "bars", reset_output=reset_output))
            run_batches(rows, config, metrics, lambda bars, batch_id: write(spark, output, bars, batch_id))


@dataclass(frozen=True, slots=True)
class Output:
    """The outputs of the job's batches, and their configuration."""

    config: GoldConfig
    metrics: QueryMetrics
    sink: TopicSink
    tables: TableSink


def bar_stream(rows: DataFrame, config: BarsConfig) -> DataFrame:
    """Return the bars of a stream of silver's topic."""
    trades = distinct_trades(parse_trades(rows, SILVER_TRADE, config.max_ahead), config.watermark)
    return bars_of(trades, watermark=config.watermark)


def bars_of(trades: DataFrame, *, watermark: str | None = None) -> DataFrame:
    """Aggregate trades to bars of all widths at once. A stream has a watermark, a batch none."""
    starts = [
        F.struct(
            F.lit(width).alias("width"),
            (F.col("time_ms") - F.col("time_ms") % F.lit(width_ms)).alias("start_ms"),
            F.lit(width_ms).alias("width_ms"),
        )
        for width, width_ms in WIDTHS_MS.items()
    ]
    spread = trades.withColumn("slot", F.explode(F.array(*starts))).select("*", "slot.*")
    end_ms = F.col("start_ms") + F.col("width_ms")
    window = F.struct(F.timestamp_millis("start_ms").alias("start"), F.timestamp_millis(end_ms).alias("end"))
    window = window.alias("window", metadata=_event_time(watermark)) if watermark else window.alias("window")
    order = F.struct("time_ms", "trade_id")
    signed = {side: F.when(F.col("is_buyer_maker") == (side == "sell"), F.col("quantity")) for side in ("buy", "sell")}
    zero = F.lit(0).cast(PRICE)
    grouped = (
        spread.select("symbol", "width", window, "time_ms", "trade_id", "price", "quantity", "is_buyer_maker")
        .groupBy("symbol", "width", "window")
        .agg(
            F.min_by("price", order).alias("open"),
            F.max("price").alias("high"),
            F.min("price").alias("low"),
            F.max_by("price", order).alias("close"),
            F.sum("quantity").alias("volume"),
            F.sum(F.col("price") * F.col("quantity")).alias("turnover"),
            F.count("*").alias("trades"),
            F.sum(F.coalesce(signed["buy"], zero)).alias("buy_volume"),
            F.sum(F.coalesce(signed["sell"], zero)).alias("sell_volume"),
            F.min_by("trade_id", order).alias("open_trade_id"),
            F.max_by("trade_id", order).alias("close_trade_id"),
        )
    )
    return _checked(
        grouped.withColumn("start_ms", F.unix_millis("window.start"))
        .withColumn("end_ms", F.unix_millis("window.end"))
        .withColumn("vwap", quotient(F.col("turnover"), F.col("volume")))
        .withColumn("imbalance", quotient(F.col("buy_volume") - F.col("sell_volume"), F.col("volume")))
        .select(*BAR.names())
    )


def quotient(numerator: Column, denominator: Column) -> Column:
    """Divide, rounded half up to 8 places.

    Spark divides DECIMAL(38,16) by DECIMAL(28,8) to 39 places, and then rounds to DECIMAL(38,8). Rounding twice gives
    the same as rounding once: a quotient that is not a tie is at least 1e-8 / (2 x denominator in units of 1e-8) away
    from a tie, which is far more than 1e-39.
    """
    return (numerator.cast(TURNOVER) / denominator.cast(VOLUME)).cast(PRICE)


def _event_time(watermark: str) -> dict[str, int]:
    """Return the metadata that tells Spark that a column has the event time of the watermark.

    With it the state of a bar ends when the watermark passes window.end. F.window would set it, but for one width only;
    a query for each width would read and parse all records three times.
    """
    return {"spark.watermarkDelayMs": duration_ms(watermark)}


def _checked(bars: DataFrame) -> DataFrame:
    """Raise AssertionError if Spark gives another type than the schema's: digits would be lost unnoticed."""
    found = {field.name: field.dataType.simpleString().upper() for field in bars.schema}
    expected = {c.name: {"LONG": "BIGINT"}.get(c.type, c.type) for c in BAR.columns}
    assert found == expected, f"bars have the types {found}"
    return bars


def write(spark: SparkSession, output: Output, bars: DataFrame, batch_id: int) -> None:
    with late_trades(spark, output.config, output.metrics, batch_id) as late:
        write_outputs(output, bars, late, batch_id)


def write_outputs(output: Output, bars: DataFrame, late: DataFrame, batch_id: int) -> None:
    config = output.config
    dated = bars.withColumn("date", F.to_date(F.timestamp_millis("start_ms")))
    output.tables.write(dated, batch_id)
    if config.output:
        write_batch(dated.repartition("width", "date"), config, config.output, batch_id, "width", "date")
    if config.late_output:
        write_batch(late, config, config.late_output, batch_id)
    if config.output_topic:
        output.sink.write(on_topic(bars), config.output_topic, batch_id)


@contextmanager
def late_trades(spark: SparkSession, config: BarsConfig, metrics: QueryMetrics, batch_id: int) -> Iterator[DataFrame]:
    """Yield a batch's late trades, which are in no bar; count them once the batch is written."""
    this = batch(spark, config.checkpoint, batch_id)
    trades = parse_trades(read_batch(spark, config, this), SILVER_TRADE, config.max_ahead)
    with left_out(trades, F.col("time_ms") <= this.late_watermark_ms) as late:
        yield late
        metrics.late.labels(metrics.job).inc(late.count())


@contextmanager
def left_out(trades: DataFrame, is_late: Column) -> Iterator[DataFrame]:
    """Yield the late ones of parsed trades. Raises JobError if a record is not a trade of silver."""
    with kept(trades.where(F.col("reason").isNotNull() | is_late).select("reason", *LATE_COLUMNS)) as odd:
        bad = odd.where("reason IS NOT NULL").first()
        if bad is not None:
            raise JobError(
                f"{bad['topic']}-{bad['partition']} at offset {bad['offset']} is no {SILVER_TRADE.name} of version "
                f"{SILVER_TRADE.version} ({bad['reason']}): the bars are made from what the silver job writes"
            )
        yield odd.select(LATE_COLUMNS)


def on_topic(bars: DataFrame) -> DataFrame:
    return bars.select(
        F.concat_ws("|", "symbol", "width", "start_ms").cast("binary").alias("key"),
        event_json(BAR).alias("value"),
        F.array(schema_header(BAR)).alias("headers"),
    )
