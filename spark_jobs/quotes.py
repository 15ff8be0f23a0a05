"""quotes: makes a tick of each trade and order-book update within a few milliseconds (Spark's real-time mode).

Real-time mode of Spark 4.2 keeps a task running on each partition: it reads a record, computes its row and sends it,
instead of waiting for a batch. `real_time` says how long such a batch lasts; only its end is written to the checkpoint.
Its limits are also this job's:

    no state      a trade that comes twice makes two ticks (silver keeps one); a quote is that of its own update only
    update mode   the only output mode
    at least once after a kill, ticks since the start of the batch are sent again, with the same header `source`
    a task each   the session needs as many cores as the topics have partitions; a local session gets them
    no limits     max_offsets_per_trigger and min_partitions have no effect

`real_time: null`, or `trigger: available_now`, runs the same query in micro-batches, which older Sparks do, too.
"""

from decimal import Decimal
from typing import Any, Self

from pydantic import Field, model_validator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

from spark_jobs.admin import create_missing_topics, open_admin
from spark_jobs.config import Duration, StreamConfig, duration_ms
from spark_jobs.connector import require_spark
from spark_jobs.errors import JobError
from spark_jobs.metrics import QueryMetrics, listening
from spark_jobs.outputs import prepare
from spark_jobs.session import run_query, spark_session, stream_writer
from spark_jobs.sink import dead_letter
from spark_jobs.source import client_options, read_topics
from spark_jobs.ticks import parse_ticks, tick_record, ticks_of

REAL_TIME_SINCE = "4.2"
SHORTEST_MS = 5_000
"""The shortest batch in Spark's real-time mode (spark.sql.streaming.realTimeMode.minBatchDuration)."""
LOCAL_TASKS = 64


class QuotesConfig(StreamConfig):
    output: None = Field(default=None, exclude=True, description="none: ticks go to topics")
    real_time: Duration | None = Field(
        default="1 minute",
        description="real-time mode, with a checkpoint so often (5 seconds at least; the topic waits for about 0.3 s "
        "then); null: micro-batches by trigger",
    )
    depth_topics: list[str] = Field(default=["depth"], description="those of the topics that hold order-book updates")
    output_topic: str = Field(default="ticks", description="topic of the ticks")
    dead_letter_topic: str = Field(default="dead_letters", description="topic of records that are none")
    output_partitions: int = Field(default=3, ge=1, description="partitions of these topics where they are created")
    max_ahead: Duration = Field(default="1 hour", description="how far an event time may lie beyond the record's own")
    medium_from: Decimal = Field(default=Decimal(1_000), gt=0, description="price x quantity of a medium trade")
    large_from: Decimal = Field(default=Decimal(100_000), gt=0, description="price x quantity of a large trade")

    def output_topics(self) -> list[str]:
        return [self.output_topic]

    def topics_of_batches(self) -> list[str]:
        return [self.output_topic, self.dead_letter_topic]

    @property
    def is_real_time(self) -> bool:
        return self.real_time is not None and not self.available_now

    @model_validator(mode="after")
    def _real_time_fits(self) -> Self:
        if not self.is_real_time:
            return self
        if duration_ms(self.real_time or "") < SHORTEST_MS:
            raise ValueError("real_time: Spark takes 5 seconds and longer")
        if self.max_offsets_per_trigger is not None or self.min_partitions is not None:
            raise ValueError(
                "max_offsets_per_trigger and min_partitions have no meaning with real_time: leave them out"
            )
        return self


def run(config: QuotesConfig, *, reset_output: bool = False) -> None:
    if config.is_real_time:
        require_spark("quotes in real-time mode", REAL_TIME_SINCE, "set real_time: null for micro-batches")
    with spark_session(with_slots(config), "quotes") as spark:
        prepare(spark, config, reset_output=reset_output)
        topics = [config.output_topic, config.dead_letter_topic]
        create_missing_topics(spark, config, topics, config.output_partitions, {})
        rows = read_topics(spark, config)
        if config.is_real_time:
            require_slots(spark, config)
        with listening(spark, QueryMetrics(config, "quotes")):
            run_query(writer(rows, config).start, config)


def with_slots(config: QuotesConfig) -> QuotesConfig:
    """Give a local session a task slot for each partition; the tasks mostly wait, so that few cores suffice."""
    return config if config.master else config.model_copy(update={"master": f"local[{LOCAL_TASKS}]"})


def require_slots(spark: SparkSession, config: QuotesConfig) -> None:
    """Raise JobError if there are fewer task slots than partitions: some would be read only after a batch."""
    master, slots = str(spark.sparkContext.master), spark.sparkContext.defaultParallelism
    if not master.startswith("local") or not config.topics:
        return
    with open_admin(spark, config.bootstrap_servers, config.kafka) as admin:
        partitions = sum(admin.partition_counts(config.topics).values())
    if partitions > slots:
        raise JobError(
            f"{', '.join(config.topics)} have {partitions} partitions, {master} runs {slots} tasks "
            f"at once, and real-time mode needs one each: set master: local[{partitions}], or real_time: null"
        )


def writer(rows: DataFrame, config: QuotesConfig) -> DataStreamWriter:
    """Return the query from rows of the Kafka source to the topics, not yet started."""
    options = {**client_options(config), "includeHeaders": "true"}
    query = stream_writer(records(rows, config), config, "quotes").format("kafka").options(**options)
    if not config.is_real_time:
        return query.outputMode("append")
    real_time: dict[str, Any] = {"realTime": config.real_time}
    return query.outputMode("update").trigger(**real_time)


def records(rows: DataFrame, config: QuotesConfig) -> DataFrame:
    """Return the rows to send: topic, key, value and headers of each tick, and of a dead letter for any other record.

    They are one projection, because real-time mode allows no union of two reads of a source.
    """
    parsed = parse_ticks(rows, config.depth_topics, config.max_ahead)
    ticks = ticks_of(parsed, medium_from=config.medium_from, large_from=config.large_from)
    is_good = F.col("reason").isNull()
    letter = dead_letter()
    columns = {name: F.when(is_good, tick).otherwise(letter[name]) for name, tick in tick_record().items()}
    topic = F.when(is_good, config.output_topic).otherwise(config.dead_letter_topic)
    return ticks.select(topic.alias("topic"), *(column.alias(name) for name, column in columns.items()))
