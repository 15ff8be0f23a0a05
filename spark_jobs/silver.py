"""silver: trades checked, typed and deduplicated, to a topic and to Parquet; other records to a dead-letter topic.

- A record that is not a trade goes to the dead-letter topic as it was. Headers of ours add the reason, and its topic,
  partition and offset.
- Of trades with the same (symbol, trade id) one is kept, if they come within the watermark.
- A trade whose event time is not after the watermark goes to the dead-letter topic, too, with the reason "late": Spark
  has forgotten by then which trades it has seen.

So every record is in silver, in the dead-letter topic, or a duplicate of one in silver.

A batch is written to all outputs before Spark commits it, and repeated after a crash. Parquet and tables have it once.
On the topics its rows have the same keys (symbol|trade id; topic-partition-offset of a dead letter), or are there once,
too (delivery: exactly_once).
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
from spark_jobs.parquet_batches import write_batch
from spark_jobs.schemas import SILVER_TRADE, TRADE
from spark_jobs.session import spark_session
from spark_jobs.sink import TableSink, TopicSink, dead_letter, event_json, schema_header, topic_sink
from spark_jobs.source import read_batch, read_topics
from spark_jobs.trades import UNKNOWN_VERSION, distinct_trades, parse_trades

LATE = "late"
ZSTD = {"compression.type": "zstd"}
SILVER_COLUMNS = [*SILVER_TRADE.names(), "event_time", "topic", "partition", "offset", "timestamp"]


class SilverConfig(TableConfig):
    output: str | None = Field(default=None, description="directory (any Hadoop URL) of the trades in Parquet")
    output_topic: str | None = Field(default="silver_trades", description="topic of the trades")
    dead_letter_topic: str = Field(
        default="dead_letters", description="topic of records that are not valid trades, or late"
    )
    output_partitions: int = Field(default=3, ge=1, description="partitions of these topics if this job creates them")
    watermark: Duration = Field(
        default="10 minutes", description="how late a trade may come; later ones are dead letters"
    )
    max_ahead: Duration = Field(
        default="1 hour", description="how far an event time may be ahead of the record's timestamp"
    )
    unknown_version: Literal["fail", "dead_letter"] = Field(
        default="fail", description="what to do with trades of a schema version that this job does not know"
    )

    def output_topics(self) -> list[str]:
        return [self.output_topic] if self.output_topic else []

    def topics_of_batches(self) -> list[str]:
        return [topic for topic in (self.output_topic, self.dead_letter_topic) if topic]


def run(config: SilverConfig, *, reset_output: bool = False) -> None:
    with spark_session(config, "silver") as spark:
        prepare(spark, config, "silver", reset_output=reset_output)
        topics = config.topics_of_batches()
        create_missing_topics(spark, config, topics, config.output_partitions, ZSTD)
        metrics = QueryMetrics(config, "silver")
        rows = distinct_trades(parse_trades(read_topics(spark, config), TRADE, config.max_ahead), config.watermark)
        with topic_sink(config, "silver", dict.fromkeys(topics), reset_output=reset_output) as sink:
            output = Output(config, metrics, sink, TableSink(config, "trades", reset_output=reset_output))
            run_batches(rows, config, metrics, lambda good, batch_id: write(spark, output, good, batch_id))


@dataclass(frozen=True, slots=True)
class Output:
    """The outputs of the job's batches, and their configuration."""

    config: SilverConfig
    metrics: QueryMetrics
    sink: TopicSink
    tables: TableSink


def write(spark: SparkSession, output: Output, good: DataFrame, batch_id: int) -> None:
    """Write a batch. Its late trades are not in `good`: they are found by reading the batch's records again."""
    this = batch(spark, output.config.checkpoint, batch_id)
    is_late = F.col("time_ms") <= this.late_watermark_ms
    write_sorted(output, good, read_batch(spark, output.config, this), is_late, batch_id)


def write_sorted(output: Output, good: DataFrame, records: DataFrame, is_late: Column, batch_id: int) -> None:
    """Write a batch: its valid trades, then the records that are not valid or late as dead letters."""
    config, metrics, sink = output.config, output.metrics, output.sink
    with kept(bad_records(records, config, is_late)) as bad:
        reasons = {row["reason"]: row["count"] for row in bad.groupBy("reason").count().collect()}
        refuse_unknown_version(config, reasons)
        write_good(output, good, batch_id)
        if config.dead_letter_topic and (reasons or sink.takes_every_batch):
            letters = bad.select(*(column.alias(name) for name, column in dead_letter().items()))
            sink.write(letters, config.dead_letter_topic, batch_id)
    for reason, count in reasons.items():
        label = UNKNOWN_VERSION if reason.startswith(UNKNOWN_VERSION) else reason  # versions may be any text
        metrics.dead.labels(metrics.job, label).inc(count)
    metrics.late.labels(metrics.job).inc(reasons.get(LATE, 0))


def bad_records(rows: DataFrame, config: SilverConfig, is_late: Column) -> DataFrame:
    """Return the records that are not valid trades, or late, each with its reason."""
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
        write_batch(trades, config, config.output, batch_id, "date")
    if config.output_topic:
        sink.write(on_topic(good), config.output_topic, batch_id)


def on_topic(good: DataFrame) -> DataFrame:
    return good.select(
        F.concat_ws("|", "symbol", "trade_id").cast("binary").alias("key"),
        event_json(SILVER_TRADE).alias("value"),
        F.array(schema_header(SILVER_TRADE)).alias("headers"),
    )
