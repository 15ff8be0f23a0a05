"""The Spark session of a job, and the life of a job around it.

The connector is the one that fits the installed PySpark (connector.py). Under spark-submit master and jars are
spark-submit's; else the job runs on local[*], bound to loopback.
"""

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from spark_jobs.checkpoints import Directory
from spark_jobs.config import SparkConfig, StreamConfig
from spark_jobs.connector import jars
from spark_jobs.errors import JobError
from spark_jobs.failures import message_of
from spark_jobs.signals import stop_on_signals
from tools.maven import ToolsMissing, require_java

log = logging.getLogger("spark_jobs")
POLL_S = 0.1

FIXED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.streaming.stopTimeout": "60s",
}
"""Settings on which the jobs' results depend: an overflow is an error, never a null, and the types of sums and
quotients are those that gold.py assumes. They override the cluster's defaults."""

CHECKPOINT_FILES = "spark.sql.streaming.checkpointFileManagerClass"
WITHOUT_LINKS = "FileSystemBasedCheckpointFileManager"
"""The class that writes a checkpoint on this machine's disk; it does not support symbolic links.

By default Spark takes another class, which starts processes for each file, because PySpark does not bring Hadoop's
native library: chmod to set its permissions, readlink when it is renamed. Four batches of a stateful query over two
partitions started 241 processes with the default, and 57 with this class.
"""


def start_session(config: SparkConfig, name: str) -> SparkSession:
    """Return the running session, or a new one with the connector on its classpath."""
    builder = SparkSession.builder.appName(name)
    if not _is_running():
        _require_java()
        for key, value in _options(config).items():
            builder = builder.config(key, value)
    session = builder.getOrCreate()
    for key, value in FIXED.items():
        session.conf.set(key, value)
    session.conf.set("spark.sql.shuffle.partitions", str(config.shuffle_partitions))
    return session


@contextmanager
def spark_session(config: SparkConfig, name: str) -> Iterator[SparkSession]:
    """Yield a session for a job; stop it at the end if it was started here. Errors of Spark become JobErrors."""
    was_running = _is_running()
    try:
        session = start_session(config, name)
        yield session
    except (Py4JNetworkError, ConnectionError) as error:
        raise JobError(
            "Spark's JVM has ended amid the job: was it killed, or out of memory? Start the job again; one with a "
            "checkpoint goes on there"
        ) from error
    except (PySparkException, Py4JError) as error:
        raise JobError(message_of(error, config)) from error
    finally:
        if not was_running and _is_running():
            with suppress(Py4JError, ConnectionError):  # of a JVM that has ended
                SparkSession.builder.getOrCreate().stop()


def _is_running() -> bool:
    """Return whether this process has a session. (getActiveSession knows only that of the calling thread.)"""
    return SparkContext._active_spark_context is not None


def stream_writer(rows: DataFrame, config: StreamConfig, name: str) -> DataStreamWriter:
    """Return the writer of a query with its checkpoint and trigger."""
    _choose_checkpoint_files(rows.sparkSession, config)
    writer = rows.writeStream.queryName(name).option("checkpointLocation", config.checkpoint)
    if config.available_now:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=config.trigger)


def _choose_checkpoint_files(spark: SparkSession, config: StreamConfig) -> None:
    """Choose the class that writes the next query's checkpoint, unless the configuration names one."""
    chosen = spark.conf.get(CHECKPOINT_FILES, None)
    if chosen is not None and not chosen.endswith(WITHOUT_LINKS):
        return
    if not Directory.at(spark, config.checkpoint).is_local:
        spark.conf.unset(CHECKPOINT_FILES)
        return
    jvm: Any = spark._jvm
    streaming = jvm.org.apache.spark.sql.execution.streaming
    newer, older = (getattr(package, WITHOUT_LINKS) for package in (streaming.checkpointing, streaming))
    found = newer if isinstance(newer, JavaClass) else older  # Spark 4.1 moved the class to another package
    spark.conf.set(CHECKPOINT_FILES, found._fqn)


def run_query(start: Callable[[], StreamingQuery], config: StreamConfig) -> StreamingQuery:
    """Start a query and wait for its end. SIGINT and SIGTERM stop it after the running batch."""
    with stop_on_signals() as stop:
        query = start()
        try:
            while not query.awaitTermination(POLL_S):  # type: ignore[arg-type]  # takes fractions, too
                if stop.is_set():
                    stop_after_batch(query, config.stop_timeout_s)
        finally:
            if query.isActive:
                query.stop()
    return query


def stop_after_batch(query: StreamingQuery, timeout_s: float) -> None:
    """Stop a query between two batches; after the timeout at once, and the batch is repeated by the next run."""
    log.info("stopping after the running batch")
    batch, end_s = _last_batch(query), time.monotonic() + timeout_s
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < end_s:
        if _last_batch(query) != batch:
            break
        time.sleep(POLL_S / 2)
    query.stop()


def stop_amid_batch(query: StreamingQuery) -> None:
    """Stop a query at once, without logging the stack traces of interrupted tasks."""
    context = query._jsq.sparkSession().sparkContext()
    context.setLogLevel("OFF")
    query.stop()
    context.setLogLevel("ERROR")


def _last_batch(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def _options(config: SparkConfig) -> dict[str, str]:
    """Return our options under the configured ones; jars and options of the JVM are added to ours."""
    ours = _launch_options(config)
    options = {**ours, **config.spark}
    for key, glue in (("spark.jars", ","), ("spark.driver.extraJavaOptions", " ")):
        if key in ours and key in config.spark:
            options[key] = glue.join((ours[key], config.spark[key]))
    return options


def _launch_options(config: SparkConfig) -> dict[str, str]:
    """Return the options that are needed before the JVM starts; under spark-submit only its own."""
    options = {"spark.sql.shuffle.partitions": str(config.shuffle_partitions)}
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return options
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    options["spark.jars"] = ",".join(str(jar) for jar in _connector_jars())
    options["spark.master"] = config.master or "local[*]"
    if options["spark.master"].startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        options |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    log_settings = Path(__file__).with_name("log4j2.properties").as_uri()
    return options | {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log_settings}",
    }


def _require_java() -> None:
    try:
        require_java()
    except ToolsMissing as missing:
        raise JobError(str(missing)) from None


def _connector_jars() -> list[Path]:
    try:
        return jars()
    except (ToolsMissing, OSError) as missing:
        raise JobError(f"Spark's Kafka connector is not here: {missing}") from None
