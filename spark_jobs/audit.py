"""audit: proves that bronze's archive holds the topic, each offset once, and nothing else.

The offsets that the checkpoint says were read are compared, each with a digest of key, value, headers and timestamp:

    archived     distinct offsets in the archive
    missing      on the topic, not in the archive                                  fails
    repeated     rows beyond the first of an offset                                fails
    differing    on the topic with other contents                                  fails
    unexpected   archived, yet not on the topic (or outside of what was read)      fails
    compacted    archived, since compacted away; counted if the topic's cleanup.policy has compact
    empty        offsets without a record on either side: transaction markers, aborted records, or compacted before
    expired      archived, since deleted from the topic's beginning: repeats are still found, contents are not compared
    unproven     offsets that were deleted before this audit and are not in the archive: lost, or never a record. Fails
                 unless fail_on_data_loss is false
"""

import json
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.admin import Admin, Offsets, open_admin
from spark_jobs.audit_rows import table
from spark_jobs.bronze import BronzeConfig
from spark_jobs.checkpoints import Directory
from spark_jobs.errors import JobError
from spark_jobs.session import spark_session
from spark_jobs.source import read_archive, read_topics_once

KEYS = ["topic", "partition", "offset"]


class AuditConfig(BronzeConfig):
    """Bronze's own configuration."""


@dataclass(frozen=True, slots=True)
class PartitionAudit:
    """The result for one partition, between the offsets that bronze read (end exclusive)."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    archived: int
    missing: int
    repeated: int
    differing: int
    unexpected: int
    compacted: int
    empty: int
    expired: int
    unproven: int

    def faults(self, *, is_loss_allowed: bool) -> dict[str, int]:
        found = {name: getattr(self, name) for name in ("missing", "repeated", "differing", "unexpected")}
        if not is_loss_allowed:
            found["unproven"] = self.unproven
        return {name: count for name, count in found.items() if count}


@dataclass(frozen=True, slots=True)
class Range:
    """The offsets that bronze read of a partition, and the offset at which the topic begins now."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    log_start_offset: int
    is_compacted: bool


def run(config: AuditConfig) -> None:
    """Audit, print the table, and raise JobError if something is wrong."""
    with spark_session(config, "audit") as spark:
        found = audit(spark, config)
    print("\n".join(table(found)), flush=True)
    faults = [
        f"{partition.topic}-{partition.partition}: " + ", ".join(f"{count} {name}" for name, count in wrong.items())
        for partition in found
        if (wrong := partition.faults(is_loss_allowed=not config.fail_on_data_loss))
    ]
    if faults:
        raise JobError(f"the archive {config.output} is not what was read: {'; '.join(faults)}")


def audit(spark: SparkSession, config: AuditConfig) -> list[PartitionAudit]:
    start, end = read_ranges(spark, config.checkpoint)
    with open_admin(spark, config.bootstrap_servers, config.kafka) as admin:
        ranges = _ranges(admin, start, end)
    archive = read_archive(spark, config.output)
    counted = _count(spark, config, archive, ranges)
    strange = sorted(set(counted) - {(one.topic, one.partition) for one in ranges})
    ranges += [Range(*where, 0, 0, 0, is_compacted=False) for where in strange]
    return [_judge(one, counted.get((one.topic, one.partition), {})) for one in ranges]


# -- what was read --------------------------------------------------------------------------------------------------


def read_ranges(spark: SparkSession, checkpoint: str) -> tuple[Offsets, Offsets]:
    """Return the offsets at which a query over one Kafka source began, and at which its last committed batch ended.

    The files: offsets/N holds "v1", a line of batch metadata and a line of offsets by topic and partition; commits/N
    exists once batch N is done; sources/0/0 holds a zero byte, "v1" and the initial offsets. A partition that was added
    later begins at 0. Raises JobError.
    """
    directory = Directory.at(spark, checkpoint)
    batches = directory.batches("commits")
    if not batches:
        raise JobError(f"{checkpoint} holds no committed batch: is it the audited job's, and did that run?")
    initial, last = directory.text("sources/0/0"), directory.text(f"offsets/{max(batches)}")
    try:
        return _offsets((initial or "").splitlines()[1]), _offsets((last or "").splitlines()[2])
    except (ValueError, IndexError, AttributeError, TypeError):
        raise JobError(f"{checkpoint} is not the checkpoint of a query over one Kafka source") from None


def _offsets(line: str) -> Offsets:
    partitions = json.loads(line)
    return {(topic, int(number)): offset for topic, each in partitions.items() for number, offset in each.items()}


def by_topic(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return offsets as Spark writes them: by topic, and by the partition's number as text."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def _ranges(admin: Admin, start: Offsets, end: Offsets) -> list[Range]:
    counts = admin.partition_counts({topic for topic, _ in end})
    begins = admin.earliest(counts)
    compacted = {topic: "compact" in admin.topic_config(topic)["cleanup.policy"] for topic in counts}
    for topic, partition in end:
        if (topic, partition) not in begins:
            raise JobError(f"{topic} has no partition {partition} any more: it was deleted and made anew")
    return [
        Range(*where, start.get(where, 0), end_offset, begins[where], compacted[where[0]])
        for where, end_offset in sorted(end.items())
    ]


# -- what is there --------------------------------------------------------------------------------------------------


def _count(
    spark: SparkSession, config: AuditConfig, archive: DataFrame, ranges: list[Range]
) -> dict[tuple[str, int], dict[str, int]]:
    """Join archive and topic by offset and count by partition; the names are those of PartitionAudit."""
    bounds = spark.createDataFrame(
        [(one.topic, one.partition, one.start_offset, one.end_offset, one.log_start_offset) for one in ranges],
        "topic STRING, partition INT, start_offset LONG, end_offset LONG, log_start_offset LONG",
    )
    archived = archive.groupBy(*KEYS).agg(F.count("*").alias("rows"), F.min(_digest()).alias("archived_digest"))
    present = _on_topic(spark, config, ranges).select(*KEYS, _digest().alias("topic_digest"))
    both = archived.join(present, KEYS, "full").join(F.broadcast(bounds), ["topic", "partition"], "left")
    was_read = F.col("offset").between(F.col("start_offset"), F.col("end_offset") - 1)
    is_archived, is_present = F.col("rows").isNotNull(), F.col("topic_digest").isNotNull()
    is_expired = F.col("offset") < F.col("log_start_offset")
    classes = {
        "archived": is_archived,
        "missing": ~is_archived & was_read,
        "differing": is_archived & is_present & (F.col("archived_digest") != F.col("topic_digest")),
        "outside": is_archived & ~F.coalesce(was_read, F.lit(False)),
        "expired": is_archived & ~is_present & was_read & is_expired,
        "gone": is_archived & ~is_present & was_read & ~is_expired,
        "seen": was_read & ~is_expired,
    }
    counts = [F.count_if(condition).alias(name) for name, condition in classes.items()]
    repeats = F.sum(F.coalesce(F.col("rows") - 1, F.lit(0))).alias("repeated")
    rows = both.groupBy("topic", "partition").agg(*counts, repeats).collect()
    return {(row["topic"], row["partition"]): row.asDict() for row in rows}


def _on_topic(spark: SparkSession, config: AuditConfig, ranges: list[Range]) -> DataFrame:
    """Return the topics' records in the ranges, read at the isolation level of bronze."""
    starts = {(one.topic, one.partition): max(one.start_offset, one.log_start_offset) for one in ranges}
    ends = by_topic(
        {(one.topic, one.partition): max(starts[one.topic, one.partition], one.end_offset) for one in ranges}
    )
    offsets = {"starting_offsets": json.dumps(by_topic(starts)), "ending_offsets": json.dumps(ends)}
    return read_topics_once(spark, config, list(ends), isolation_level=config.isolation_level, **offsets)


def _digest() -> Column:
    """A row's contents as 64 bits. xxhash64 skips nulls, so the positions of nulls are hashed, too."""
    is_null = [F.col(name).isNull() for name in ("key", "value", "headers")]
    are_null = F.transform("headers", lambda header: header["value"].isNull())
    return F.xxhash64("key", "value", "timestamp", "timestampType", "headers", are_null, *is_null)


def _judge(one: Range, found: dict[str, int]) -> PartitionAudit:
    def count(name: str) -> int:
        return found.get(name, 0)

    begin = min(max(one.start_offset, one.log_start_offset), one.end_offset)
    return PartitionAudit(
        topic=one.topic,
        partition=one.partition,
        start_offset=one.start_offset,
        end_offset=one.end_offset,
        archived=count("archived"),
        missing=count("missing"),
        repeated=count("repeated"),
        differing=count("differing"),
        unexpected=count("outside") + (0 if one.is_compacted else count("gone")),
        compacted=count("gone") if one.is_compacted else 0,
        empty=one.end_offset - begin - count("seen"),
        expired=count("expired"),
        unproven=begin - one.start_offset - count("expired"),
    )
