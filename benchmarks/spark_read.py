"""Spark reads a topic in a batch: its own Kafka source, one session for both servers."""

import time
from functools import cache
from typing import Any

from benchmarks.servers import Server
from benchmarks.topics import create_topic
from benchmarks.wire import fill
from benchmarks.workload import Cost, Figures, Workload

SIZE_BYTES = 1_000_000_000
VALUE_BYTES = 1024
PARTITIONS = 4

_records: dict[tuple[str, str], int] = {}


@cache
def _session() -> Any:
    from pyspark.sql import SparkSession

    from spark_jobs.connector import jars

    options = {
        "spark.jars": ",".join(str(jar) for jar in jars()),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    session = SparkSession.builder.master("local[*]").appName("kafkapy benchmarks").config(map=options).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def prepare(server: Server, topic: str, scale: float) -> None:
    create_topic(server, topic, PARTITIONS)
    size_bytes = int(SIZE_BYTES * scale)
    _records[server.name, topic] = fill(server, topic, size_bytes, partitions=PARTITIONS, value_bytes=VALUE_BYTES)


def read(server: Server, topic: str, scale: float) -> Figures:
    """Sum up the lengths of all values."""
    source = _session().read.format("kafka").option("kafka.bootstrap.servers", server.bootstrap)
    with Cost(server) as cost:
        started = time.monotonic()
        frame = source.option("subscribe", topic).load()
        (row,) = frame.selectExpr("count(*) as records", "sum(length(value)) as size").collect()
        seconds = time.monotonic() - started
    records = _records[server.name, topic]
    assert (row.records, row.size) == (records, records * VALUE_BYTES), f"Spark read {row}, not {records} records"
    return cost.figures(records=records, size_bytes=row.size, seconds=seconds)


WORKLOADS = [Workload("Spark batch read", read, prepare=prepare, family="spark")]
