"""replay: produces an archived range again, with its keys, values, headers, timestamps and partitions.

Records keep their order within a partition. Across partitions they are ordered by the largest timestamp of their
partition so far, so that a reader with a watermark reads the partitions side by side.

A target topic that does not exist is created with the archive's partitions and unlimited retention, because records
with old timestamps would be deleted at once. A target with records is refused; with resume: true each partition
continues after its records. A target that would change timestamps or delete the records is refused.
"""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import KafkaException, Producer
from pydantic import Field, field_validator
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from spark_jobs.admin import Offsets, create_missing_topics, open_admin
from spark_jobs.config import Options, SparkConfig
from spark_jobs.errors import JobError
from spark_jobs.session import spark_session
from spark_jobs.source import read_archive

log = logging.getLogger("spark_jobs")

COLUMNS = ["topic", "partition", "offset", "timestamp_ms", "key", "value", "headers"]
CREATED_WITH = {"retention.ms": "-1", "retention.bytes": "-1", "message.timestamp.type": "CreateTime"}
FLUSH_S = 60


class ReplayConfig(SparkConfig):
    archive: str = Field(description="directory (any Hadoop URL) that bronze wrote")
    topics: list[str] = Field(default=[], description="archived topics to replay; all when empty")
    target: str = Field(default="{topic}-replay", description="topic to write to; {topic} is the archived one's name")
    start: datetime | None = Field(default=None, description="records from this timestamp on (ISO 8601, UTC)")
    end: datetime | None = Field(default=None, description="records before this timestamp")
    start_offset: int | None = Field(default=None, ge=0, description="records of each partition from this offset on")
    end_offset: int | None = Field(default=None, ge=0, description="records of each partition before this offset")
    resume: bool = Field(default=False, description="go on in a target that an interrupted replay began to fill")
    producer: Options = Field(
        default={}, description="options of the producer (librdkafka's names); where given, it gets none of kafka's"
    )

    @field_validator("target")
    @classmethod
    def _names_a_topic(cls, target: str) -> str:
        if set("{}") & set(target.replace("{topic}", "")):
            raise ValueError("{topic} alone can stand in braces")
        return target


def run(config: ReplayConfig) -> int:
    """Replay; return the number of records written. Raises JobError."""
    with spark_session(config, "replay") as spark:
        return replay(spark, config)


def replay(spark: SparkSession, config: ReplayConfig) -> int:
    records = select(read_archive(spark, config.archive), config)
    facts = [row.asDict() for row in records.groupBy("topic").agg(*_facts()).orderBy("topic").collect()]
    if not facts:
        raise JobError(f"{config.archive} has no record of the selected range")
    if min(fact["first_ms"] for fact in facts) <= 0:
        raise JobError(
            "records with a timestamp of 0 or below cannot be written by librdkafka: choose a start behind them"
        )
    targets = {fact["topic"]: config.target.replace("{topic}", fact["topic"]) for fact in facts}
    if len(set(targets.values())) < len(targets):
        raise JobError(f"target {config.target}: {len(targets)} topics would be mixed, name them by {{topic}}")
    held = {fact["topic"]: _prepare(spark, targets[fact["topic"]], fact, config) for fact in facts}
    log.info("replay: %d records to %s", sum(fact["records"] for fact in facts), ", ".join(targets.values()))
    skip = {(topic, partition): count for topic in held for (_, partition), count in held[topic].items()}
    return _Writer(config, targets, skip).write(in_order(records).toLocalIterator(prefetchPartitions=True))


def select(archive: DataFrame, config: ReplayConfig) -> DataFrame:
    """Return the archived records that the configuration selects."""
    conditions: dict[str, Callable[[Any], Column]] = {
        "start": lambda value: F.col("timestamp_ms") >= _ms(value),
        "end": lambda value: F.col("timestamp_ms") < _ms(value),
        "start_offset": lambda value: F.col("offset") >= value,
        "end_offset": lambda value: F.col("offset") < value,
    }
    records = archive.withColumn("timestamp_ms", F.unix_millis("timestamp")).select(*COLUMNS)
    if config.topics:
        records = records.where(F.col("topic").isin(config.topics))
    for name, condition in conditions.items():
        value = getattr(config, name)
        if value is not None:
            records = records.where(condition(value))
    return records


def in_order(records: DataFrame) -> DataFrame:
    """Order records by the largest timestamp of their partition so far; within a partition that is by offset."""
    so_far = Window.partitionBy("topic", "partition").orderBy("offset")
    timed = records.withColumn("so_far", F.max("timestamp_ms").over(so_far))
    return timed.orderBy("so_far", "topic", "partition", "offset").select(*COLUMNS)


def _ms(moment: datetime) -> int:
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _facts() -> list[Any]:
    return [
        F.count("*").alias("records"),
        F.max("partition").alias("last_partition"),
        F.min("timestamp_ms").alias("first_ms"),
    ]


# -- the target -----------------------------------------------------------------------------------------------------


def _prepare(spark: SparkSession, target: str, fact: dict[str, Any], config: ReplayConfig) -> Offsets:
    """Create the target or check it; return how many records each of its partitions has already."""
    partitions = fact["last_partition"] + 1
    create_missing_topics(spark, config, [target], partitions, CREATED_WITH)
    with open_admin(spark, config.bootstrap_servers, config.kafka) as admin:
        counts, settings = admin.partition_counts([target]), admin.topic_config(target)
        starts, ends = admin.earliest(counts), admin.latest(counts)
    if counts[target] < partitions:
        raise JobError(f"{target} has {counts[target]} partitions, the archived topic has {partitions}")
    _check_config(target, settings, fact["first_ms"])
    if any(ends.values()) and not config.resume:
        raise JobError(f"{target} holds records: name another target, or set resume: true to go on behind them")
    if any(starts.values()):
        raise JobError(f"{target} begins behind offset 0: what a replay wrote before cannot be counted any more")
    return ends


def _check_config(target: str, settings: dict[str, str], first_ms: int) -> None:
    """Raise JobError if the target would not keep the records as they are."""
    if settings["message.timestamp.type"] != "CreateTime":
        raise JobError(f"{target} sets timestamps itself (message.timestamp.type): a replay would lose those archived")
    retention_ms = int(settings["retention.ms"])
    if "delete" in settings["cleanup.policy"] and 0 <= retention_ms < time.time() * 1000 - first_ms:
        raise JobError(
            f"{target} keeps records for {retention_ms} ms and would delete the replayed: set retention.ms=-1"
        )


# -- producing ------------------------------------------------------------------------------------------------------


@dataclass
class _Writer:
    """An idempotent producer. After a record that is not acknowledged, no later one of its partition is sent
    (enable.gapless.guarantee): a partition has a prefix of its records, after which `resume` continues."""

    config: ReplayConfig
    targets: dict[str, str]
    skip: dict[tuple[str, int], int]
    failures: list[str] = field(default_factory=list)

    def write(self, records: Iterator[Any]) -> int:
        options = self.config.producer or self.config.kafka
        settings = {**options, "bootstrap.servers": self.config.bootstrap_servers}
        fixed = {
            "enable.idempotence": True,
            "enable.gapless.guarantee": True,
            "compression.type": "zstd",
            "linger.ms": 20,
            "log_level": 3,  # librdkafka warns each time that gapless.guarantee is experimental
        }
        try:
            producer = Producer({**fixed, **settings})
        except KafkaException as error:
            raise JobError(f"the producer refuses its options: {error.args[0].str()} (see producer:)") from None
        written = 0
        for record in records:
            where = record["topic"], record["partition"]
            if self.skip.get(where, 0) > 0:
                self.skip[where] -= 1
                continue
            try:
                self._produce(producer, record)
            except KafkaException as error:
                producer.flush(FLUSH_S)
                place = f"{where[0]}-{where[1]} at offset {record['offset']}"
                raise JobError(f"the record of {place} is refused: {error.args[0].str()} (see producer:)") from None
            written += 1
            if written % 100_000 == 0:
                log.info("replay: %d records written", written)
        if producer.flush(FLUSH_S) or self.failures:
            raise JobError(f"not every record was acknowledged ({self.failures[:1] or 'time-out'}): set resume: true")
        return written

    def _produce(self, producer: Producer, record: Any) -> None:
        headers = [(header["key"], header["value"]) for header in record["headers"] or ()]
        while not self.failures:
            try:
                producer.produce(
                    self.targets[record["topic"]],
                    value=_bytes(record["value"]),
                    key=_bytes(record["key"]),
                    partition=record["partition"],
                    timestamp=record["timestamp_ms"],
                    headers=[(name, _bytes(value)) for name, value in headers],
                    on_delivery=self._delivered,
                )
                producer.poll(0)
                return
            except BufferError:
                producer.poll(0.1)
        raise JobError(f"a record was refused: {self.failures[0]}")

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self.failures.append(str(error))


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
