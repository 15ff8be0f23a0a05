"""Reads a query's checkpoint: whether it is intact, and for each batch its offsets and its watermark."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from spark_jobs.errors import JobError
from spark_jobs.failures import cause


def check(checkpoint: "Directory") -> None:
    """Raise JobError if the checkpoint's files are missing or damaged."""
    problem = _problem(checkpoint)
    if problem is not None:
        raise JobError(
            f"the checkpoint {checkpoint.path} is corrupt ({problem}): restore it, or start with --reset-output, "
            f"which removes checkpoint and output and writes it anew"
        )


def _problem(checkpoint: "Directory") -> str | None:
    try:
        metadata = checkpoint.text("metadata")
        if metadata is None:
            return "metadata is missing"
        json.loads(metadata)["id"]
    except (ValueError, KeyError, TypeError):
        return "metadata is not what Spark wrote"
    offsets, commits = checkpoint.batches("offsets"), checkpoint.batches("commits")
    if commits and (not offsets or max(commits) > max(offsets)):
        return f"batch {max(commits)} was committed, its offsets are missing"
    for batch_id in offsets[-2:]:
        try:
            parse_offsets(checkpoint.text(f"offsets/{batch_id}") or "")
        except (ValueError, KeyError, TypeError, AttributeError):
            return f"offsets/{batch_id} is not what Spark wrote"
    for name in [f"commits/{batch_id}" for batch_id in commits[-1:]] + ["sources/0/0"] * bool(offsets):
        if not _is_log_entry(checkpoint, name):
            return f"{name} is not what Spark wrote"
    return None


def _is_log_entry(checkpoint: "Directory", name: str) -> bool:
    """Whether a file begins as Spark's logs do, with its version. The Kafka source writes a zero byte before it."""
    try:
        return re.match(r"\0?v[0-9]+\n", checkpoint.text(name) or "") is not None
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class BatchOffsets:
    """A line of the offset log: where a batch ends, and the watermark when it was planned."""

    ends: dict[str, dict[str, int]]
    watermark_ms: int


def parse_offsets(text: str) -> BatchOffsets:
    """Parse a file of the checkpoint's offsets/: "v1", the batch's metadata, and a line per source.

    Sources of one query read topics of their own.
    """
    version, metadata, *sources = text.splitlines()
    if version != "v1" or not sources:
        raise ValueError(version)
    ends: dict[str, dict[str, int]] = {}
    for source in sources:
        ends |= json.loads(source) if source != "-" else {}
    return BatchOffsets(ends, int(json.loads(metadata)["batchWatermarkMs"]))


def require_first_batch(checkpoint: str, kept: Sequence[int]) -> None:
    """Raise JobError if Spark has removed the first batches' offsets: their late records can no longer be found.

    kept: the batches in the checkpoint, in order.
    """
    if not kept or kept[0] > 0:
        first = kept[0] if kept else "none"
        raise JobError(
            f"{checkpoint} begins with batch {first}, Spark keeps the last 100; to audit or repeat a job, run it with "
            f"spark.sql.streaming.minBatchesToRetain (under spark) above its number of batches"
        )


def last_topics(checkpoint: "Directory") -> set[str]:
    """Return the topics of the last planned batch of an intact checkpoint; those of Kafka sources only."""
    planned = checkpoint.batches("offsets")
    ends = parse_offsets(checkpoint.text(f"offsets/{planned[-1]}") or "").ends if planned else {}
    return {topic for topic, partitions in ends.items() if isinstance(partitions, dict)}


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of a query over topics: {topic: {partition: offset}} where it starts and ends.

    Its stateful operators drop trades whose event time is not after late_watermark_ms, the watermark of the batch
    before: Spark compares with that one, so that all operators of a query agree.
    """

    starts: dict[str, dict[str, int]]
    ends: dict[str, dict[str, int]]
    late_watermark_ms: int


def batch(spark: SparkSession, checkpoint: str, batch_id: int) -> Batch:
    """Read the offsets and the watermark of a planned batch from the checkpoint. Raises JobError if they are lost."""
    directory = Directory.at(spark, checkpoint)
    try:
        this = parse_offsets(directory.text(f"offsets/{batch_id}") or "")
        if batch_id == 0:
            return Batch(_initial_offsets(directory), this.ends, 0)
        before = parse_offsets(directory.text(f"offsets/{batch_id - 1}") or "")
        return Batch(before.ends, this.ends, before.watermark_ms)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise JobError(
            f"the checkpoint {checkpoint} is corrupt (offsets of batch {batch_id}): start with --reset-output"
        ) from None


def planned_ms(spark: SparkSession, checkpoint: str, batch_id: int) -> int | None:
    """Return when a batch was planned; None if the checkpoint does not say."""
    try:
        _, metadata, *_ = (Directory.at(spark, checkpoint).text(f"offsets/{batch_id}") or "").splitlines()
        return int(json.loads(metadata)["batchTimestampMs"])
    except (ValueError, KeyError, TypeError):
        return None


def plan_of(spark: SparkSession, checkpoint: str, batch_id: int) -> list[str]:
    """Return what makes the rows of a planned batch: where it starts and ends, and its watermark. Raises JobError."""
    directory = Directory.at(spark, checkpoint)
    try:
        starts = (directory.text(f"offsets/{batch_id - 1}") or "").splitlines()[2:]  # none of the first batch
        _, metadata, *ends = (directory.text(f"offsets/{batch_id}") or "").splitlines()
        return [*starts, str(json.loads(metadata)["batchWatermarkMs"]), *ends]
    except (ValueError, KeyError, TypeError):
        raise JobError(
            f"the checkpoint {checkpoint} is corrupt (offsets of batch {batch_id}): start with --reset-output"
        ) from None


def _initial_offsets(checkpoint: "Directory") -> dict[str, dict[str, int]]:
    """Read the offsets at which the query began, of all its sources."""
    found: dict[str, dict[str, int]] = {}
    for source in checkpoint.batches("sources"):
        found |= parse_initial_offsets(checkpoint.text(f"sources/{source}/0") or "")
    return found


def parse_initial_offsets(text: str) -> dict[str, dict[str, int]]:
    """Parse a file of the checkpoint's sources/: a zero byte, "v1" and JSON. Raises ValueError."""
    found: dict[str, dict[str, int]] = json.loads(text[text.index("{") :])
    return found


class Directory:
    """A directory of any file system that Hadoop knows."""

    def __init__(self, path: str, jvm_path: Any, file_system: Any, jvm: Any) -> None:
        self.path = path
        self._path, self._fs, self._jvm = jvm_path, file_system, jvm

    @classmethod
    def at(cls, spark: SparkSession, path: str) -> "Directory":
        jvm: Any = spark._jvm
        found = jvm.org.apache.hadoop.fs.Path(path)
        return cls(path, found, found.getFileSystem(spark._jsc.hadoopConfiguration()), jvm)

    @property
    def is_local(self) -> bool:
        """Whether it lies on a disk of this machine."""
        return str(self._fs.getUri().getScheme()) == "file"

    def names(self, name: str = "") -> list[str]:
        """Return the visible names in the directory, or in one inside it; none where it is not there."""
        path = self._child(name)
        if not self._fs.exists(path):
            return []
        names = [status.getPath().getName() for status in self._fs.listStatus(path)]
        return [found for found in names if not found.startswith(".")]

    def is_empty(self) -> bool:
        return not self.names()

    def batches(self, name: str) -> list[int]:
        return sorted(int(found) for found in self.names(name) if found.isdigit())

    def text(self, name: str) -> str | None:
        """Return a file's text, None where it is not there. Raises ValueError if it cannot be read."""
        path = self._child(name)
        if not self._fs.exists(path):
            return None
        stream = self._fs.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        except Py4JJavaError as error:
            raise ValueError(f"{name} cannot be read: {cause(str(error))}") from None
        finally:
            stream.close()

    @property
    def name(self) -> str:
        return str(self._path.getName())

    def beside(self, path: str) -> "Directory":
        """Return another directory of the same file system."""
        return Directory(path, self._jvm.org.apache.hadoop.fs.Path(path), self._fs, self._jvm)

    def count_files(self) -> int:
        """Return the number of files in it and in all directories below."""
        return int(self._fs.getContentSummary(self._path).getFileCount())

    def write_text(self, name: str, text: str) -> None:
        """Write a new file."""
        stream = self._fs.create(self._child(name), False)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def rename_to(self, other: "Directory") -> None:
        """Rename the directory; into the other one if that is there."""
        self._fs.rename(self._path, other._path)

    def remove(self) -> None:
        self._fs.delete(self._path, True)

    def _child(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._path, name) if name else self._path
