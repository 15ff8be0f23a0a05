"""live: the bars of gold, written to a compacted topic again whenever they change (update mode).

The last value of a key is the bar so far; after the watermark has passed its end it equals the bar of gold. The JSON
is gold's (schemas.BAR): give it a topic of its own.
"""

from dataclasses import dataclass

from pydantic import Field
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.admin import create_missing_topics
from spark_jobs.batches import run_batches
from spark_jobs.config import Trigger
from spark_jobs.gold import COMPACTED, BarsConfig, bar_stream, late_trades, on_topic
from spark_jobs.metrics import QueryMetrics
from spark_jobs.outputs import prepare
from spark_jobs.session import spark_session
from spark_jobs.sink import TopicSink, topic_sink
from spark_jobs.source import read_topics


class LiveConfig(BarsConfig):
    output: None = Field(default=None, exclude=True, description="none: bars that change have no place in Parquet")
    output_topic: str = Field(default="live_bars", description="compacted topic of the bars")
    trigger: Trigger = Field(default="1 second", description="a batch per duration, or available_now")


def run(config: LiveConfig, *, reset_output: bool = False) -> None:
    with spark_session(config, "live") as spark:
        prepare(spark, config, "live", reset_output=reset_output)
        create_missing_topics(spark, config, [config.output_topic], config.output_partitions, COMPACTED)
        metrics = QueryMetrics(config, "live")
        rows = bar_stream(read_topics(spark, config), config)
        with topic_sink(config, "live", {config.output_topic: None}, reset_output=reset_output) as sink:
            output = Output(config, metrics, sink)
            run_batches(rows, config, metrics, lambda bars, batch_id: write(spark, output, bars, batch_id), "update")


@dataclass(frozen=True, slots=True)
class Output:
    """The outputs of the job's batches, and their configuration."""

    config: LiveConfig
    metrics: QueryMetrics
    sink: TopicSink


def write(spark: SparkSession, output: Output, bars: DataFrame, batch_id: int) -> None:
    with late_trades(spark, output.config, output.metrics, batch_id):
        output.sink.write(on_topic(bars), output.config.output_topic, batch_id)
