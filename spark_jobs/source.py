"""Reads rows: of topics by Spark's standard Kafka source, or of the archive that bronze wrote.

Both give the columns of the Kafka source: key, value, topic, partition, offset, timestamp, timestampType, headers.
"""

import json

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.admin import require_topics
from spark_jobs.checkpoints import Batch, Directory
from spark_jobs.config import JobConfig, StreamConfig
from spark_jobs.errors import JobError

POLL_RECORDS = "20000"
"""max.poll.records: Spark requests two offsets for each poll; with the default of 500 that would be its main work."""

ARCHIVE = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, date DATE"
)


def client_options(config: JobConfig) -> dict[str, str]:
    """Return the Kafka options of readers and writers: the brokers, and those that the configuration passes on."""
    passed = {f"kafka.{key}": value for key, value in config.kafka.items()}
    return {"kafka.bootstrap.servers": config.bootstrap_servers, **passed}


def subscription(config: StreamConfig) -> dict[str, str]:
    if config.topic_pattern:
        return {"subscribePattern": config.topic_pattern}
    return {"subscribe": ",".join(config.topics)}


def read_topics(spark: SparkSession, config: StreamConfig) -> DataFrame:
    """Return the stream of the configured topics. Raises JobError if one is missing or no broker answers."""
    require_topics(spark, config)
    options = {
        "kafka.max.poll.records": POLL_RECORDS,
        "kafka.isolation.level": config.isolation_level,
        **client_options(config),
        **subscription(config),
        "startingOffsets": config.starting_offsets,
        "includeHeaders": "true",
        "failOnDataLoss": str(config.fail_on_data_loss).lower(),
    }
    if config.max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(config.max_offsets_per_trigger)
    if config.min_partitions is not None:
        options["minPartitions"] = str(config.min_partitions)
    return spark.readStream.format("kafka").options(**options).load()


def read_topics_once(
    spark: SparkSession,
    config: JobConfig,
    topics: list[str],
    *,
    starting_offsets: str = "earliest",
    ending_offsets: str = "latest",
    isolation_level: str = "read_committed",
    **options: str,
) -> DataFrame:
    """Return the rows of topics between given offsets, as a batch."""
    given = {
        "kafka.max.poll.records": POLL_RECORDS,
        "kafka.isolation.level": isolation_level,
        **client_options(config),
        "subscribe": ",".join(topics),
        "startingOffsets": starting_offsets,
        "endingOffsets": ending_offsets,
        "includeHeaders": "true",
        **options,
    }
    return spark.read.format("kafka").options(**given).load()


def read_batch(spark: SparkSession, config: StreamConfig, batch: Batch) -> DataFrame:
    """Return the records of a query's batch again, to find those that its operators dropped."""
    earliest = -2
    starts = {
        topic: {partition: batch.starts.get(topic, {}).get(partition, earliest) for partition in ends}
        for topic, ends in batch.ends.items()
    }
    options = {
        "kafka.max.poll.records": POLL_RECORDS,
        "kafka.isolation.level": config.isolation_level,
        **client_options(config),
        "assign": json.dumps({topic: [int(partition) for partition in ends] for topic, ends in batch.ends.items()}),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(batch.ends),
        "includeHeaders": "true",
        "failOnDataLoss": str(config.fail_on_data_loss).lower(),
    }
    return spark.read.format("kafka").options(**options).load()


def read_archive(spark: SparkSession, path: str) -> DataFrame:
    """Return the rows that bronze archived, as a batch. Raises JobError if the directory is no archive."""
    require_archive(spark, path)
    return spark.read.schema(ARCHIVE).parquet(path)


def stream_archive(spark: SparkSession, path: str) -> DataFrame:
    """Return the rows that bronze archived, as a stream. Raises JobError if the directory is no archive."""
    require_archive(spark, path)
    return spark.readStream.schema(ARCHIVE).parquet(path)


def require_archive(spark: SparkSession, path: str) -> None:
    """Raise JobError if a directory was not written by bronze: missing columns would be read as nulls."""
    if not any(name == "_spark_metadata" or name.startswith("date=") for name in Directory.at(spark, path).names()):
        raise JobError(f"{path} is no archive: name the output of a bronze job")
