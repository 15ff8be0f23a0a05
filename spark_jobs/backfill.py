"""backfill: repeats silver, gold or book, from the beginning of their topics or from bronze's archive.

It is one batch of an AvailableNow stream over all records: none of them is late. With stream_checkpoint, the checkpoint
of the job to repeat, it gives the same rows as that job: it reads the offsets that the job read, and leaves out the
trades that were late there. Which these are depends on the job's batches; the checkpoint has the offsets and the
watermark of each. (One case differs: two different trades with the same id, further apart than the watermark. A stream
has forgotten the first when the second comes.)

A backfill does not write to the outputs of that job: it has directories of its own, and topics only if they are named.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import pandas as pd
from pydantic import Field, model_validator
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs import gold, silver
from spark_jobs.admin import create_missing_topics
from spark_jobs.batches import run_batches
from spark_jobs.book import ORDER, BookConfig, rows_of, state_in_rocksdb
from spark_jobs.book import write as write_book
from spark_jobs.checkpoints import Directory, batch, require_first_batch
from spark_jobs.config import AVAILABLE_NOW, StreamConfig, Trigger
from spark_jobs.errors import JobError
from spark_jobs.gold import COMPACTED, GoldConfig, bars_of, left_out
from spark_jobs.metrics import QueryMetrics
from spark_jobs.outputs import prepare
from spark_jobs.schemas import SILVER_TRADE, TRADE
from spark_jobs.session import spark_session
from spark_jobs.silver import ZSTD, SilverConfig
from spark_jobs.sink import TableSink, topic_sink
from spark_jobs.source import read_archive, read_batch, read_topics, stream_archive
from spark_jobs.trades import distinct_trades, parse_trades

Lateness = dict[tuple[str, int], tuple[int, list[int], list[int]]]
"""By (topic, partition): the offset at which a job began; for each batch the end offset and the watermark."""

NEVER_LATE = -1
IN_TIME = "time_ms > late_watermark_ms"
"""Of a trade of Past."""


class BackfillConfig(StreamConfig):
    """The keys of a backfill, beside those of its job."""

    archive: str | None = Field(
        default=None,
        description="directory (any Hadoop URL) that bronze wrote: topics are read from it, not from Kafka",
    )
    stream_checkpoint: str | None = Field(
        default=None, description="checkpoint of the job to repeat: read what it read, leave out what was late there"
    )
    trigger: Trigger = Field(default=AVAILABLE_NOW, description="available_now, and nothing else")

    @model_validator(mode="after")
    def _one_batch(self) -> Self:
        if not self.available_now or self.max_offsets_per_trigger is not None:
            raise ValueError("a backfill is one batch: trigger is available_now, max_offsets_per_trigger is not set")
        if self.archive is not None and self.topic_pattern is not None:
            raise ValueError("with an archive, topics names those that are taken from it")
        if not self.outputs() and not self.output_topics():
            raise ValueError("output is needed, or a topic: where the rows go")
        return self

    def other_directories(self) -> list[str]:
        read = [path for path in (self.archive, self.stream_checkpoint) if path]
        return [*super().other_directories(), *read]


class SilverBackfill(BackfillConfig, SilverConfig):
    output_topic: str | None = Field(default=None, description="topic of the trades; none when not given")
    dead_letter_topic: str | None = Field(  # type: ignore[assignment]  # a backfill may leave topics alone
        default=None, description="topic of bad and late records; none when not given"
    )


class GoldBackfill(BackfillConfig, GoldConfig):
    output_topic: str | None = Field(default=None, description="compacted topic of the bars; none when not given")


class BookBackfill(BackfillConfig, BookConfig):
    """book's own keys: its topic is none by default."""


def run_silver(config: SilverBackfill, *, reset_output: bool = False) -> None:
    with spark_session(config, "backfill") as spark:
        prepare(spark, config, "backfill-silver", reset_output=reset_output)
        _create(spark, config, config.topics_of_batches(), ZSTD)
        past, metrics = Past.of(spark, config), QueryMetrics(config, "backfill")
        topics = dict.fromkeys(config.topics_of_batches())
        trades = parse_trades(past.stream(), TRADE, config.max_ahead).where(IN_TIME)
        with topic_sink(config, "backfill-silver", topics, reset_output=reset_output) as sink:
            tables = TableSink(config, "trades", reset_output=reset_output)
            output = silver.Output(config, metrics, sink, tables)

            def write(good: DataFrame, batch_id: int) -> None:
                silver.write_sorted(output, good, past.batch(batch_id), ~F.expr(IN_TIME), batch_id)

            run_batches(distinct_trades(trades, config.watermark), config, metrics, write)


def run_gold(config: GoldBackfill, *, reset_output: bool = False) -> None:
    with spark_session(config, "backfill") as spark:
        prepare(spark, config, "backfill-gold", reset_output=reset_output)
        _create(spark, config, [config.output_topic], COMPACTED)
        past, metrics = Past.of(spark, config), QueryMetrics(config, "backfill")
        trades = parse_trades(past.stream(), SILVER_TRADE, config.max_ahead).where(IN_TIME)
        bars = bars_of(distinct_trades(trades, config.watermark), watermark=config.watermark)
        topics = dict.fromkeys(config.output_topics())
        with topic_sink(config, "backfill-gold", topics, reset_output=reset_output) as sink:
            tables = TableSink(config, "bars", reset_output=reset_output)
            output = gold.Output(config, metrics, sink, tables)

            def write(bars: DataFrame, batch_id: int) -> None:
                records = parse_trades(past.batch(batch_id), SILVER_TRADE, config.max_ahead)
                with left_out(records, ~F.expr(IN_TIME)) as late:
                    gold.write_outputs(output, bars, late, batch_id)
                    metrics.late.labels(metrics.job).inc(late.count())

            run_batches(bars, config, metrics, write)


def run_book(config: BookBackfill, *, reset_output: bool = False) -> None:
    with spark_session(config, "backfill") as spark, state_in_rocksdb(spark):
        prepare(spark, config, "backfill-book", reset_output=reset_output)
        _create(spark, config, [config.book_topic], COMPACTED)
        _create(spark, config, [config.seconds_topic], {})
        past = Past.of(spark, config)
        topics = dict.fromkeys(config.output_topics(), ORDER)
        with topic_sink(config, "backfill-book", topics, reset_output=reset_output) as sink:

            def write(rows: DataFrame, batch_id: int) -> None:
                past.batch(batch_id)
                write_book(rows, batch_id, config, sink)

            run_batches(rows_of(past.stream(), config), config, QueryMetrics(config, "backfill"), write)


def _create(spark: SparkSession, config: Any, topics: Sequence[str | None], settings: dict[str, str]) -> None:
    named = [topic for topic in topics if topic]
    if named:
        create_missing_topics(spark, config, named, config.output_partitions, settings)


@dataclass(slots=True)
class Past:
    """The records to read again, with late_watermark_ms: a trade is late if its time is not after it."""

    spark: SparkSession
    config: BackfillConfig
    lateness: Lateness | None

    @classmethod
    def of(cls, spark: SparkSession, config: BackfillConfig) -> "Past":
        checkpoint = config.stream_checkpoint
        return cls(spark, config, lateness_of(spark, checkpoint) if checkpoint else None)

    def stream(self) -> DataFrame:
        if self.config.archive is None:
            return self._judged(read_topics(self.spark, self.config))
        return self._judged(self._named(stream_archive(self.spark, self.config.archive)))

    def batch(self, batch_id: int) -> DataFrame:
        """Return the records of a batch. Raises JobError if a second one, which only ends state, has records."""
        if self.config.archive is None:
            this = batch(self.spark, self.config.checkpoint, batch_id)
            has_rows, rows = this.starts != this.ends, read_batch(self.spark, self.config, this)
        else:
            has_rows = Directory.at(self.spark, self.config.checkpoint).text(f"sources/0/{batch_id}") is not None
            rows = self._named(read_archive(self.spark, self.config.archive)).where(F.lit(batch_id == 0))
        if batch_id > 0 and has_rows:
            raise JobError("there are new records, and a backfill is one batch: start with --reset-output")
        return self._judged(rows)

    def _named(self, rows: DataFrame) -> DataFrame:
        return rows.where(F.col("topic").isin(self.config.topics))

    def _judged(self, rows: DataFrame) -> DataFrame:
        if self.lateness is None:
            return rows.withColumn("late_watermark_ms", F.lit(NEVER_LATE))
        judged = rows.withColumn("late_watermark_ms", _late_watermark(self.lateness))
        return judged.where("late_watermark_ms IS NOT NULL")


# -- what a job left out --------------------------------------------------------------------------------------------


def lateness_of(spark: SparkSession, checkpoint: str) -> Lateness:
    """Read the offsets and the watermark of each batch from a job's checkpoint. Raises JobError."""
    directory = Directory.at(spark, checkpoint)
    committed = directory.batches("commits")
    if not committed:
        raise JobError(f"{checkpoint} holds no committed batch: is this the checkpoint of the job to repeat?")
    require_first_batch(checkpoint, directory.batches("offsets"))
    found: Lateness = {}
    for batch_id in range(max(committed) + 1):
        this = batch(spark, checkpoint, batch_id)
        for topic, partitions in this.ends.items():
            for partition, end_offset in partitions.items():
                start_offset = this.starts.get(topic, {}).get(partition, 0)
                _, ends, watermarks = found.setdefault((topic, int(partition)), (start_offset, [], []))
                ends.append(end_offset)
                watermarks.append(this.late_watermark_ms)
    return found


def late_watermark_ms(lateness: Lateness, topic: str, partition: int, offset: int) -> int | None:
    """Return the watermark with which the job compared a record; None if the job did not read it."""
    if (topic, partition) not in lateness:
        return None
    start_offset, ends, watermarks = lateness[topic, partition]
    number = bisect_right(ends, offset)
    return watermarks[number] if offset >= start_offset and number < len(ends) else None


def _late_watermark(lateness: Lateness) -> Column:
    @F.pandas_udf("long")  # type: ignore[call-overload, untyped-decorator]
    def watermark(topic: pd.Series, partition: pd.Series, offset: pd.Series) -> pd.Series:
        places = zip(topic, partition, offset, strict=True)
        return pd.Series([late_watermark_ms(lateness, *place) for place in places], dtype="Int64")

    column: Column = watermark("topic", "partition", "offset")
    return column
