"""Where rows go: topics by Spark's Kafka sink, and Parquet.

A topic may get a batch's rows twice when the batch is done again after a crash: every row is keyed by what it is, so
that compaction, or a reader that keeps the last of a key, sees it once. Parquet of foreachBatch lies in a directory
per batch that doing the batch again replaces: nothing twice, nothing lost. A batch's directory is complete once it
holds _SUCCESS.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.config import JobConfig
from spark_jobs.schemas import Schema
from spark_jobs.source import client_options


def write_topic(rows: DataFrame, config: JobConfig, topic: str) -> None:
    """Write rows of (key, value[, headers]) to a topic: a batch, inside foreachBatch or on its own."""
    options = {"kafka.compression.type": "zstd", **client_options(config), "topic": topic}
    writer = rows.write.format("kafka").options(**options)
    writer.option("includeHeaders", str("headers" in rows.columns).lower()).save()


def write_batch(rows: DataFrame, output: str, batch_id: int, *partition_by: str) -> None:
    """Write a batch's rows to output/batch_id=N/[partitions], in place of what an attempt before left there."""
    rows.write.mode("overwrite").partitionBy(*partition_by).parquet(f"{output}/batch_id={batch_id}")


def event_json(schema: Schema) -> Column:
    """Return the JSON of an event of the schema: its version first, decimals as strings."""
    columns = [
        F.col(c.name).cast("string").alias(c.name) if c.type.startswith("DECIMAL") else F.col(c.name)
        for c in schema.columns
    ]
    return F.to_json(F.struct(F.lit(schema.version).alias("v"), *columns)).cast("binary")


def header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))
