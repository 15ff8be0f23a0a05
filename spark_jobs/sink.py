"""Writes rows to topics, by Spark's Kafka sink or in transactions, and to tables; to Parquet: parquet_batches.py.

With delivery at_least_once (Spark's sink) a batch that is repeated after a crash may write its rows to a topic twice.
Each row has the key of what it describes, so that compaction, or a reader that keeps the last row of a key, sees it
once. With exactly_once (transactional_sink.py) readers with read_committed see it once.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.checkpoints import planned_ms
from spark_jobs.config import JobConfig, TableConfig, TopicConfig, duration_ms
from spark_jobs.connector import require_spark
from spark_jobs.errors import JobError
from spark_jobs.failpoints import Failpoints
from spark_jobs.schemas import Schema
from spark_jobs.source import client_options
from spark_jobs.tables import Batch, BatchTable, DeltaBatches, IcebergTable, open_catalog
from spark_jobs.topics import client_errors
from spark_jobs.transactional_sink import (
    QUERY_ID,
    Note,
    SinkError,
    TransactionalSink,
    TransactionalWriter,
    Transactions,
)

SMALL_FILES = 8
"""So many files of a partition are merged into one."""
RECORD = ("key", "value", "headers")
KEYS = {
    "set first_batch to": "set first_transactional_batch to",
    "set takes_over": "start with --reset-output",
    "the client's": "producer's",
    "or partitions": "or transactions",
}
"""What messages of the transactional sink call its settings, and a job's keys for them."""
RETENTION, KAFKAS_RETENTION_MINUTES = "offsets.retention.minutes", 10_080
ADMIN_S = 30.0
NUMBERED = re.compile(r"(.+)-(0|[1-9][0-9]*)")
"""A topic whose transactional id is that of a sink partition of another topic."""
HEADERS = "ARRAY<STRUCT<key: STRING, value: BINARY>>"


def write_topic(rows: DataFrame, config: JobConfig, topic: str) -> None:
    """Write rows of (key, value[, headers]) to a topic: a batch, inside foreachBatch or on its own."""
    options = {"kafka.compression.type": "zstd", **client_options(config), "topic": topic}
    writer = rows.write.format("kafka").options(**options)
    writer.option("includeHeaders", str("headers" in rows.columns).lower()).save()


class TopicSink:
    """Writes a query's batches to topics by Spark's sink, which may repeat a batch."""

    takes_every_batch = False
    """Whether a batch without rows must be written, too."""

    def __init__(self, config: JobConfig) -> None:
        self.config = config

    def write(self, rows: DataFrame, topic: str, _batch_id: int) -> None:
        """Write a batch's rows of (key, value[, headers]); other columns are ignored."""
        write_topic(rows.select(*(name for name in RECORD if name in rows.columns)), self.config, topic)


class ExactlyOnceSink(TopicSink):
    """Writes a query's batches to topics in transactions, by one TransactionalWriter a topic."""

    takes_every_batch = True

    def __init__(self, config: TopicConfig, writers: Mapping[str, TransactionalWriter]) -> None:
        super().__init__(config)
        self.checkpoint = config.checkpoint
        self.writers = writers

    def write(self, rows: DataFrame, topic: str, batch_id: int) -> None:
        with as_job_errors():
            self.writers[topic].write(rows, batch_id, planned_ms(rows.sparkSession, self.checkpoint, batch_id))


@contextmanager
def topic_sink(
    config: TopicConfig, job: str, topics: Mapping[str, str | None], *, reset_output: bool
) -> Iterator[TopicSink]:
    """Open the sink of a job's topics until its end; each has the column that orders a key's rows, or None.

    Raises JobError.
    """
    if config.delivery == "at_least_once":
        yield TopicSink(config)
        return
    with ExitStack() as stack:
        writers = {}
        with client_errors(config.bootstrap_servers, "producer"):
            notes_live_s = shortest_note_life_s({"bootstrap.servers": config.bootstrap_servers, **config.producer})
        for topic, order_by in topics.items():
            sink = replace(
                sink_of(config, job, topic),
                order_by=(order_by,) if order_by else (),
                takes_over=reset_output,
                notes_live_s=notes_live_s,
            )
            refuse_shared_ids(sink)
            with as_job_errors():
                writers[topic] = stack.enter_context(sink.open())
        yield ExactlyOnceSink(config, writers)


def sink_of(config: TopicConfig, job: str, topic: str) -> TransactionalSink:
    return TransactionalSink(
        name=f"{config.transactional_id or f'spark-jobs-{job}'}-{topic}",
        topic=topic,
        client={"bootstrap.servers": config.bootstrap_servers, **config.producer},
        partitions=config.transactions,
        first_batch=config.first_transactional_batch,
        at_step=Failpoints.of_environment(),
    )


def fence_earlier(config: TopicConfig, job: str, topic: str) -> None:
    """Fence an earlier query's driver and tasks, before their topic is emptied: killed, they may still run somewhere.

    By the steps of the sink's proof: after D0 and another run's claim no task passes T2, and after T1 none commits that
    has passed it. Raises JobError.
    """
    sink = sink_of(config, job, topic)
    where = f"{config.bootstrap_servers}, transactional id {sink.name}"
    with client_errors(where, "producer"), closing(Transactions(sink, sink.name)) as driver:
        claim = driver.note()
        if claim is None:
            return
        driver.commit(replace(claim, run="reset"))
        for sink_partition in range(claim.partitions):
            Transactions(sink, sink.transactional_id(sink_partition)).close()


def shortest_note_life_s(client: Mapping[str, str]) -> float:
    """Return how long notes live at least: 6 of 7 parts of the brokers' offsets.retention.minutes, and at most 6 days.

    Without the right to read the brokers' configuration, or where brokers have no such key, it is taken to be the
    default.
    """
    admin = AdminClient({**client, "log_level": "2"})
    minutes = [KAFKAS_RETENTION_MINUTES]
    with suppress(KafkaException):
        for broker in admin.list_topics(timeout=ADMIN_S).brokers:  # librdkafka asks one broker at a time
            asked = ConfigResource(ConfigResource.Type.BROKER, str(broker))
            (response,) = admin.describe_configs([asked], request_timeout=ADMIN_S).values()
            configs = response.result()
            if RETENTION in configs:
                minutes.append(int(configs[RETENTION].value))
    return min(minutes) * 60 * 6 / 7


def refuse_shared_ids(sink: TransactionalSink) -> None:
    """Raise JobError if another job uses an id of the sink: by turns they would fence each other.

    The id PREFIX-a-0 belongs to the driver of topic a-0, and to the first sink partition of topic a. Whoever uses it
    has a note in the group of the same name, under its own topic.
    """
    others = {f"{sink.name}-{number}": f"{sink.topic}-{number}" for number in range(sink.partitions)}
    if (numbered := NUMBERED.fullmatch(sink.topic)) is not None:
        others[sink.name] = numbered[1]
    admin = AdminClient({**sink.client, "log_level": "2"})
    for group, topic in others.items():
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
        (response,) = admin.list_consumer_group_offsets([asked], request_timeout=sink.timeout_s).values()
        with suppress(KafkaException):  # no right to know: who lacks other rights is told by what comes next
            if any(Note.of(place.metadata) for place in response.result().topic_partitions):
                raise JobError(
                    f"the transactional id {group} of topic {sink.topic} is used for topic {topic}, too: give this job "
                    f"a transactional_id of its own"
                )


class TableSink:
    """Writes a query's batches to the configured tables (Iceberg, Delta), if any, each batch once."""

    def __init__(self, config: TableConfig, name: str, *, reset_output: bool) -> None:
        self.config = config
        self.tables: list[BatchTable] = []
        at_step = Failpoints.of_environment()
        if config.iceberg is not None or config.iceberg_catalog:
            self.tables.append(IcebergTable(open_catalog(config.iceberg, config.iceberg_catalog), name, at_step))
        if config.delta is not None:
            self.tables.append(DeltaBatches(config.delta, config.delta_options, at_step))
        if self.tables:
            require_spark("iceberg and delta", "4.0", "leave them out")
        if reset_output:
            for table in self.tables:
                table.drop()

    def write(self, rows: DataFrame, batch_id: int) -> None:
        """Write a batch's rows, which have a date and a symbol. Raises JobError."""
        if not self.tables:
            return
        query = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        assert query is not None, "tables take the batches of a streaming query"
        found = rows.toArrow()
        plain = pa.schema([(column.name, column.type) for column in found.schema])  # all may be null, as in the table
        for table in self.tables:
            table.write(found.cast(plain), Batch(query, batch_id))
            if (batch_id + 1) % self.config.maintain_every == 0:
                table.maintain(SMALL_FILES, timedelta(milliseconds=duration_ms(self.config.keep_versions)))


@contextmanager
def as_job_errors() -> Iterator[None]:
    """Turn errors of the transactional sink into errors of the job, whose keys have other names."""
    try:
        yield
    except SinkError as error:
        line = str(error)
        for name, key in KEYS.items():
            line = line.replace(name, key)
        raise JobError(line) from error


def event_json(schema: Schema) -> Column:
    """Return the JSON of an event of the schema: its version first, decimals as strings."""
    columns = [
        F.col(c.name).cast("string").alias(c.name) if c.type.startswith("DECIMAL") else F.col(c.name)
        for c in schema.columns
    ]
    return F.to_json(F.struct(F.lit(schema.version).alias("v"), *columns)).cast("binary")


def header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))


def schema_header(schema: Schema) -> Column:
    return header("schema", F.lit(schema.versioned_name()))


def dead_letter() -> dict[str, Column]:
    """Return key, value and headers of a record as it was, its headers after those that say why and whence."""
    told = F.array(
        header("dlq.reason", F.col("reason")),
        header("dlq.topic", F.col("topic")),
        header("dlq.partition", F.col("partition")),
        header("dlq.offset", F.col("offset")),
        header("dlq.timestamp_ms", F.unix_millis("timestamp")),
        F.struct(F.lit("dlq.key").alias("key"), F.col("key").alias("value")),
    )
    return {
        "key": F.concat_ws("-", "topic", "partition", "offset").cast("binary"),
        "value": F.col("value"),
        "headers": F.concat(told, F.coalesce("headers", F.array().cast(HEADERS))),
    }
