"""bronze: topics as they came, to Parquet partitioned by date and topic.

Each row is a record: key, value, headers, topic, partition, offset, timestamp and its type; `date` is the day of the
timestamp in UTC. Spark's file sink commits each batch's files in one step (`_spark_metadata`): read with Spark, every
offset is there once, however often the job or the broker was killed. The audit job proves it.
"""

from pydantic import Field
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

from spark_jobs.config import StreamConfig
from spark_jobs.metrics import QueryMetrics, listening
from spark_jobs.outputs import prepare
from spark_jobs.session import run_query, spark_session, stream_writer
from spark_jobs.source import read_topics


class BronzeConfig(StreamConfig):
    output: str = Field(description="directory (any Hadoop URL) of the archive")


def run(config: BronzeConfig, *, reset_output: bool = False) -> None:
    with spark_session(config, "bronze") as spark:
        prepare(spark, config, reset_output=reset_output)
        with listening(spark, QueryMetrics(config, "bronze")):
            run_query(archive_writer(spark, config).start, config)


def archive_writer(spark: SparkSession, config: BronzeConfig) -> DataStreamWriter:
    """Return the query from the topics to the archive, not yet started."""
    rows = read_topics(spark, config).withColumn("date", F.to_date("timestamp"))
    writer = stream_writer(rows, config, "bronze").partitionBy("date", "topic").format("parquet")
    return writer.option("path", config.output)
