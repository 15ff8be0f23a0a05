"""Parquet that has each batch of a query once: a directory for each batch, which one attempt publishes as a whole.

    OUTPUT/_attempts/_N-TOKEN/   what an attempt at batch N writes: no other attempt touches it, no reader sees it
    OUTPUT/batch_id=N/           the published batch; _batch.json in it says of which query and plan, _SUCCESS that
                                 it is whole

An attempt is published by a rename, which succeeds for the first one only. So neither a second driver on the same
checkpoint, nor tasks of a killed driver that executors still run, can add to a batch, or take from it: what they write
is in directories of their own, and is removed. A published batch is not replaced: when it comes again, Spark reads the
same offsets (the plan), so its rows are there. If the plan is another one, the checkpoint is not the output's, and the
job refuses to go on.

A rename is atomic on HDFS and on local disks. On S3 it copies file by file: there an attempt whose job was killed amid
the copy is recognised by the count of its files and replaced, but two drivers at the same moment may mix their files.
"""

import json
import secrets
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from spark_jobs.checkpoints import Directory, plan_of
from spark_jobs.config import StreamConfig
from spark_jobs.errors import JobError
from spark_jobs.failpoints import Failpoints
from spark_jobs.transactional_sink import QUERY_ID

ATTEMPTS = "_attempts"
NOTE = "_batch.json"


def write_batch(rows: DataFrame, config: StreamConfig, output: str, batch_id: int, *partition_by: str) -> None:
    """Write a batch's rows to output/batch_id=N/[partitions], unless they are there. Raises JobError."""
    spark = rows.sparkSession
    query = spark.sparkContext.getLocalProperty(QUERY_ID) or ""
    plan = json.dumps([query, plan_of(spark, config.checkpoint, batch_id)])
    Attempt.at(rows, output, batch_id, plan).write(rows, *partition_by)


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt at a batch."""

    output: Directory
    own: Directory
    published: Directory
    batch_id: int
    plan: str
    at_step: Failpoints

    @classmethod
    def at(cls, rows: DataFrame, output: str, batch_id: int, plan: str) -> "Attempt":
        own = f"{output}/{ATTEMPTS}/_{batch_id}-{secrets.token_hex(8)}"
        whole = Directory.at(rows.sparkSession, output)
        published = whole.beside(f"{output}/batch_id={batch_id}")
        return cls(whole, whole.beside(own), published, batch_id, plan, Failpoints.of_environment())

    def write(self, rows: DataFrame, *partition_by: str) -> None:
        """Write and publish the rows, also if the batch is there: Spark keeps the state only of rows that are taken."""
        is_written = False
        try:
            rows.write.partitionBy(*partition_by).parquet(self.own.path)
            is_written = True
            self.at_step("parquet_written", self.batch_id)
            self._publish()
        except (PySparkException, Py4JError):
            # A newer driver that has published the next batch has removed what this one wrote of this batch. Without
            # one, a batch that is there is not done before its rows are taken: the next would lack their state.
            if not self._is_published() or not (is_written or self._is_next_published()):
                raise
        self.at_step("parquet_published", self.batch_id)
        self._remove_attempts()

    def _publish(self) -> None:
        """Rename the attempt to the batch. A directory without a note is what an older version left: replace it."""
        self.own.write_text(NOTE, json.dumps({"plan": self.plan, "files": self.own.count_files()}))
        if self.published.names():
            if self._is_published():
                return
            self.published.remove()
        self.own.rename_to(self.published)
        # If another attempt was faster, Hadoop has moved this one into the other's directory, where readers ignore it.
        self.published.beside(f"{self.published.path}/{self.own.name}").remove()
        assert self._is_published(), f"{self.published.path} is not what was renamed to it"

    def _is_published(self) -> bool:
        """Return whether the batch is there as a whole. Raises JobError if it is a batch of another plan."""
        text = self.published.text(NOTE)
        if text is None:
            return False
        note = json.loads(text)
        if self.published.count_files() <= note["files"]:  # the note itself is one more
            return False
        if note["plan"] != self.plan:
            raise JobError(
                f"{self.published.path} holds another batch than the checkpoint gives: the checkpoint is older than "
                f"the output, or of another query; bring back the one that belongs to it, or start with --reset-output"
            )
        return True

    def _is_next_published(self) -> bool:
        """Return whether a newer driver has gone on: Spark has committed a batch before it begins the next."""
        return not self.output.beside(f"{self.output.path}/batch_id={self.batch_id + 1}").is_empty()

    def _remove_attempts(self) -> None:
        """Remove this attempt if it is still there, and those of earlier batches, whose drivers were killed."""
        self.own.remove()
        attempts = self.output.beside(f"{self.output.path}/{ATTEMPTS}")
        for name in attempts.names():
            number, _, _ = name.removeprefix("_").partition("-")
            if number.isdigit() and int(number) < self.batch_id:
                attempts.beside(f"{attempts.path}/{name}").remove()
