"""silver: trades checked, typed and seen once, to a topic and to Parquet; what is wrong to a dead-letter topic.

A record that is no trade goes to the dead-letter topic as it was, with its headers and, in headers of their own, the
reason and where it came from. Of trades with the same (symbol, trade id) one stays, as long as they come within the
watermark; a trade older than the watermark can no longer be told from a duplicate and goes to the dead-letter topic
too, as "late". So every record that was read is in one of three places: silver, dead letters, or a duplicate in
silver.

A batch is written to all outputs before it is committed, and done again after a crash: in Parquet it then replaces
itself; on the topics its rows have the same keys (symbol|trade id; topic-partition-offset of a dead letter), or are
there once (delivery: exactly_once).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pydantic import Field
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.admin import create_missing_topics
from spark_jobs.batches import kept, run_batches
from spark_jobs.checkpoints import batch
from spark_jobs.config import Duration, TableConfig
from spark_jobs.errors import JobError
from spark_jobs.metrics import QueryMetrics
from spark_jobs.outputs import prepare
from spark_jobs.schemas import SILVER_TRADE, TRADE
from spark_jobs.session import spark_session
from spark_jobs.sink import TableSink, TopicSink, dead_letter, event_json, schema_header, topic_sink, write_batch
from spark_jobs.source import read_batch, read_topics
from spark_jobs.trades import UNKNOWN_VERSION, distinct_trades, parse_trades

LATE = "late"
ZSTD = {"compression.type": "zstd"}
SILVER_COLUMNS = [*SILVER_TRADE.names(), "event_time", "topic", "partition", "offset", "timestamp"]


class SilverConfig(TableConfig):
    output: str | None = Field(default=None, description="directory (any Hadoop URL) of the trades in Parquet")
    output_topic: str | None = Field(default="silver_trades", description="topic of the trades")
    dead_letter_topic: str = Field(default="dead_letters", description="topic of records that are no good trades")
    output_partitions: int = Field(default=3, ge=1, description="partitions of these topics where they are created")
    watermark: Duration = Field(default="10 minutes", description="how late a trade may be and still be told apart")
    max_ahead: Duration = Field(default="1 hour", description="how far an event time may lie beyond the record's own")
    unknown_version: Literal["fail", "dead_letter"] = Field(
        default="fail", description="what to do with trades of a schema version that this job does not know"
    )

    def output_topics(self) -> list[str]:
        return [self.output_topic] if self.output_topic else []


def run(config: SilverConfig, *, reset_output: bool = False) -> None:
    with spark_session(config, "silver") as spark:
        prepare(spark, config, reset_output=reset_output)
        topics = [topic for topic in (config.output_topic, config.dead_letter_topic) if topic]
        create_missing_topics(spark, config, topics, config.output_partitions, ZSTD)
        metrics = QueryMetrics(config, "silver")
        rows = distinct_trades(parse_trades(read_topics(spark, config), TRADE, config.max_ahead), config.watermark)
        with topic_sink(config, "silver", dict.fromkeys(topics), reset_output=reset_output) as sink:
            output = Output(config, metrics, sink, TableSink(config, "trades", reset_output=reset_output))
            run_batches(rows, config, metrics, lambda good, batch_id: write(spark, output, good, batch_id))


@dataclass(frozen=True, slots=True)
class Output:
    """What a batch is written with."""

    config: SilverConfig
    metrics: QueryMetrics
    sink: TopicSink
    tables: TableSink


def write(spark: SparkSession, output: Output, good: DataFrame, batch_id: int) -> None:
    this = batch(spark, output.config.checkpoint, batch_id)
    is_late = F.col("time_ms") <= this.late_watermark_ms
    write_sorted(output, good, read_batch(spark, output.config, this), is_late, batch_id)


def write_sorted(output: Output, good: DataFrame, records: DataFrame, is_late: Column, batch_id: int) -> None:
    """Write a batch's good trades, and of all its records those that are bad or late."""
    config, metrics, sink = output.config, output.metrics, output.sink
    with kept(bad_records(records, config, is_late)) as bad:
        reasons = {row["reason"]: row["count"] for row in bad.groupBy("reason").count().collect()}
        refuse_unknown_version(config, reasons)
        write_good(output, good, batch_id)
        if config.dead_letter_topic and (reasons or sink.takes_every_batch):
            letters = bad.select(*(column.alias(name) for name, column in dead_letter().items()))
            sink.write(letters, config.dead_letter_topic, batch_id)
    for reason, count in reasons.items():
        metrics.dead.labels(metrics.job, reason).inc(count)
    metrics.late.labels(metrics.job).inc(reasons.get(LATE, 0))


def bad_records(rows: DataFrame, config: SilverConfig, is_late: Column) -> DataFrame:
    """Return the records that are no good trades, with their reason."""
    parsed = parse_trades(rows, TRADE, config.max_ahead)
    late = F.when(is_late, F.lit(LATE))
    return parsed.withColumn("reason", F.coalesce("reason", late)).where("reason IS NOT NULL")


def refuse_unknown_version(config: SilverConfig, reasons: Iterable[str]) -> None:
    unknown = sorted(reason for reason in reasons if reason.startswith(UNKNOWN_VERSION))
    if unknown and config.unknown_version == "fail":
        raise JobError(
            f"{config.topic_pattern or ', '.join(config.topics)} holds trades of {unknown[0]}, this job knows version "
            f"{TRADE.version}: use a job that knows it, or set unknown_version: dead_letter"
        )


def write_good(output: Output, good: DataFrame, batch_id: int) -> None:
    config, sink = output.config, output.sink
    trades = good.select(*SILVER_COLUMNS).withColumn("date", F.to_date("event_time"))
    output.tables.write(trades.select(*SILVER_TRADE.names(), "date"), batch_id)
    if config.output:
        write_batch(trades, config.output, batch_id, "date")
    if config.output_topic:
        sink.write(on_topic(good), config.output_topic, batch_id)


def on_topic(good: DataFrame) -> DataFrame:
    return good.select(
        F.concat_ws("|", "symbol", "trade_id").cast("binary").alias("key"),
        event_json(SILVER_TRADE).alias("value"),
        F.array(schema_header(SILVER_TRADE)).alias("headers"),
    )
