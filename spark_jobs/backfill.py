"""backfill: gold's bars made again, from the beginning of silver's topic or from the archive that bronze made of it.

It is one batch of an AvailableNow stream over all there is: nothing is late in it, so it gives the bars of all trades.
With stream_checkpoint, the checkpoint of a gold job, it gives row for row what that job gave: of the offsets that the
job read, without the trades that it left out as late. Which those are follows from the batches that it happened to
make; its checkpoint holds them, and the watermark of each.
"""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import pandas as pd
from pydantic import Field, model_validator
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.admin import create_missing_topics
from spark_jobs.batches import run_batches
from spark_jobs.checkpoints import Directory, batch
from spark_jobs.config import AVAILABLE_NOW, Trigger
from spark_jobs.errors import JobError
from spark_jobs.gold import COMPACTED, GoldConfig, bars_of, left_out, write_outputs
from spark_jobs.metrics import QueryMetrics
from spark_jobs.outputs import prepare
from spark_jobs.schemas import SILVER_TRADE
from spark_jobs.session import spark_session
from spark_jobs.source import read_archive, read_batch, read_topics, stream_archive
from spark_jobs.trades import distinct_trades, parse_trades

Lateness = dict[tuple[str, int], tuple[int, list[int], list[int]]]
"""By (topic, partition): where a job began to read; per batch where it ended, and the watermark that was too late."""


class BackfillConfig(GoldConfig):
    output_topic: str | None = Field(default=None, description="compacted topic of the bars; none when not given")
    archive: str | None = Field(
        default=None,
        description="directory (any Hadoop URL) that bronze wrote: topics are read from it, not from Kafka",
    )
    stream_checkpoint: str | None = Field(
        default=None, description="checkpoint of a gold job: leave out what it left out as late, read what it read"
    )
    trigger: Trigger = Field(default=AVAILABLE_NOW, description="available_now, and nothing else")

    @model_validator(mode="after")
    def _one_batch(self) -> Self:
        if not self.available_now or self.max_offsets_per_trigger is not None:
            raise ValueError("a backfill is one batch: trigger is available_now, max_offsets_per_trigger is not set")
        if self.archive is not None and self.topic_pattern is not None:
            raise ValueError("with an archive, topics names those that are taken from it")
        return self


def run(config: BackfillConfig, *, reset_output: bool = False) -> None:
    with spark_session(config, "backfill") as spark:
        prepare(spark, config, reset_output=reset_output)
        if config.output_topic:
            create_missing_topics(spark, config, [config.output_topic], config.output_partitions, COMPACTED)
        lateness = lateness_of(spark, config.stream_checkpoint) if config.stream_checkpoint else None
        trades = parse_trades(_stream(spark, config), SILVER_TRADE, config.max_ahead)
        in_time = distinct_trades(trades.where(~is_late(lateness)), config.watermark)
        metrics = QueryMetrics(config, "backfill")

        def write(bars: DataFrame, batch_id: int) -> None:
            with _left_out(spark, config, lateness, batch_id) as late:
                write_outputs(config, bars, late, batch_id)
                metrics.late.labels(metrics.job).inc(late.count())

        run_batches(bars_of(in_time, watermark=config.watermark), config, metrics, write)


def _stream(spark: SparkSession, config: BackfillConfig) -> DataFrame:
    if config.archive is None:
        return read_topics(spark, config)
    return stream_archive(spark, config.archive).where(F.col("topic").isin(config.topics))


@contextmanager
def _left_out(
    spark: SparkSession, config: BackfillConfig, lateness: Lateness | None, batch_id: int
) -> Iterator[DataFrame]:
    """Hold the trades that the batch leaves out as late."""
    trades = parse_trades(_rows_of_batch(spark, config, batch_id), SILVER_TRADE, config.max_ahead)
    read = trades.where(_late_watermark(lateness).isNotNull()) if lateness else trades
    with left_out(read, is_late(lateness)) as late:
        yield late


def _rows_of_batch(spark: SparkSession, config: BackfillConfig, batch_id: int) -> DataFrame:
    """Return what a batch read. Raises JobError where batches behind the first, that end its bars, read anything."""
    if config.archive is None:
        this = batch(spark, config.checkpoint, batch_id)
        has_rows, rows = this.starts != this.ends, read_batch(spark, config, this)
    else:
        has_rows = Directory.at(spark, config.checkpoint).text(f"sources/0/{batch_id}") is not None
        rows = read_archive(spark, config.archive).where(F.col("topic").isin(config.topics) & F.lit(batch_id == 0))
    if batch_id > 0 and has_rows:
        raise JobError("there are new records, and a backfill is one batch: start with --reset-output")
    return rows


# -- what a job left out --------------------------------------------------------------------------------------------


def lateness_of(spark: SparkSession, checkpoint: str) -> Lateness:
    """Read from a job's checkpoint what each of its batches read, and what was late in it. Raises JobError."""
    committed = Directory.at(spark, checkpoint).batches("commits")
    if not committed:
        raise JobError(f"{checkpoint} holds no committed batch: is this the checkpoint of gold?")
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


def is_late(lateness: Lateness | None) -> Column:
    """Whether a trade is one that the job left out, or never read."""
    if lateness is None:
        return F.lit(False)
    watermark = _late_watermark(lateness)
    return F.coalesce(F.col("time_ms") <= watermark, F.col("reason").isNull() | watermark.isNull())


def late_watermark_ms(lateness: Lateness, topic: str, partition: int, offset: int) -> int | None:
    """Return the watermark that a record was held against; None where the job did not read it."""
    if (topic, partition) not in lateness:
        return None
    start_offset, ends, watermarks = lateness[topic, partition]
    number = bisect_right(ends, offset)
    return watermarks[number] if offset >= start_offset and number < len(ends) else None


def _late_watermark(lateness: Lateness) -> Column:
    @F.pandas_udf("long")
    def watermark(topic: pd.Series, partition: pd.Series, offset: pd.Series) -> pd.Series:
        places = zip(topic, partition, offset, strict=True)
        return pd.Series([late_watermark_ms(lateness, *place) for place in places], dtype="Int64")

    column: Column = watermark("topic", "partition", "offset")
    return column
