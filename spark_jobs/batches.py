"""Queries whose batches a function writes (foreachBatch): each is kept while it is written to several outputs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from spark_jobs.config import StreamConfig
from spark_jobs.errors import JobError
from spark_jobs.metrics import QueryMetrics, listening
from spark_jobs.session import run_query, stream_writer


@contextmanager
def kept(rows: DataFrame) -> Iterator[DataFrame]:
    """Keep rows in memory, or on disk if that is full, for as long as they are used."""
    held = rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield held
    finally:
        held.unpersist()


def run_batches(
    rows: DataFrame,
    config: StreamConfig,
    metrics: QueryMetrics,
    write: Callable[[DataFrame, int], None],
    output_mode: str = "append",
) -> None:
    """Run a query until it ends; `write` gets each batch and its number, and the same number again after a crash.

    The batch is computed once, however often `write` uses it: running its plan twice would update its state twice. A
    JobError of `write` ends the query and is raised here.
    """
    failures: list[JobError] = []

    def write_kept(batch: DataFrame, batch_id: int) -> None:
        try:
            with kept(batch) as rows:
                write(rows, batch_id)
        except JobError as error:
            failures.append(error)
            raise

    writer = stream_writer(rows, config, metrics.job).outputMode(output_mode).foreachBatch(write_kept)
    with listening(rows.sparkSession, metrics):
        try:
            run_query(writer.start, config)
        except PySparkException:
            if failures:
                raise failures[0] from None
            raise
