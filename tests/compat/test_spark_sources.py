"""What may happen to a topic under a job: bronze goes on, or says what was lost; its archive is audited each time."""

import gzip
import json
import tarfile
import time
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from harness.servers import Kafkapy
from spark_jobs import audit, bronze
from spark_jobs.audit import AuditConfig, PartitionAudit
from spark_jobs.bronze import BronzeConfig
from spark_jobs.errors import JobError
from spark_jobs.source import read_archive
from spark_jobs.topics import create_topic

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.fixture
def config(bootstrap: str, topic: str, tmp_path: Path) -> dict[str, Any]:
    """Bronze's configuration for the test's topic: what is there, then end."""
    return {
        "bootstrap_servers": bootstrap,
        "topics": [topic],
        "checkpoint": str(tmp_path / "checkpoint"),
        "output": str(tmp_path / "archive"),
        "trigger": "available_now",
        "shuffle_partitions": 2,
    }


def run_bronze(config: dict[str, Any], **changes: Any) -> None:
    bronze.run(BronzeConfig(**{**config, **changes}))


def run_audit(spark, config: dict[str, Any], **changes: Any) -> list[PartitionAudit]:
    return audit.audit(spark, AuditConfig(**{**config, **changes}))


def produce(bootstrap: str, topic: str, numbers: range, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for n in numbers:
        headers = [("n", b"%d" % n), ("none", None)]
        producer.produce(topic, b"%d" % n, b"k%d" % n, partition=partition, timestamp=1000 + n, headers=headers)
    assert producer.flush(60) == 0


def archived(spark, config: dict[str, Any]) -> list[tuple[int, int, int]]:
    """Return (partition, offset, value) of all rows."""
    rows = read_archive(spark, config["output"]).select("partition", "offset", "value").collect()
    return sorted((row.partition, row.offset, int(row.value)) for row in rows)


# -- retention, deletion, growth ------------------------------------------------------------------------------------


def test_retention_that_overtakes_a_backfill_fails_or_is_passed_over_as_configured(
    spark, config, bootstrap, topic
) -> None:
    """DeleteRecords stands for retention: offsets 100 to 149 go before they are read."""
    create_topic(bootstrap, topic, 1, retention_ms="-1")
    produce(bootstrap, topic, range(100))
    run_bronze(config)
    produce(bootstrap, topic, range(100, 200))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    partition = TopicPartition(topic, 0, 150)
    admin.delete_records([partition])[partition].result(60)
    with pytest.raises(JobError, match=r"records were deleted before they were read.*fail_on_data_loss: false"):
        run_bronze(config)
    run_bronze(config, fail_on_data_loss=False)
    assert archived(spark, config) == [(0, n, n) for n in [*range(100), *range(150, 200)]]
    (found,) = run_audit(spark, config)
    assert (found.start_offset, found.end_offset, found.expired, found.unproven) == (0, 200, 100, 50)
    assert found.faults(is_loss_allowed=True) == {}
    with pytest.raises(JobError, match=f"{topic}-0: 50 unproven"):
        audit.run(AuditConfig(**config))


def test_topic_deleted_and_made_anew_is_an_error_that_says_so(spark, config, bootstrap, topic) -> None:
    create_topic(bootstrap, topic, 1, retention_ms="-1")
    produce(bootstrap, topic, range(100))
    run_bronze(config)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(60)
    create_anew(bootstrap, topic)
    produce(bootstrap, topic, range(1000, 1010))
    with pytest.raises(JobError, match="records were deleted before they were read"):
        run_bronze(config)
    assert archived(spark, config) == [(0, n, n) for n in range(100)]
    run_bronze({**config, "checkpoint": config["checkpoint"] + "-2", "output": config["output"] + "-2"})
    assert archived(spark, {"output": config["output"] + "-2"}) == [(0, n, 1000 + n) for n in range(10)]


def create_anew(bootstrap: str, topic: str) -> None:
    """Create a topic that was just deleted: the deletion may still be under way."""
    until = time.monotonic() + 180
    while True:
        try:
            create_topic(bootstrap, topic, 1, retention_ms="-1")
            return
        except JobError:
            assert time.monotonic() < until
            time.sleep(0.05)


def test_partitions_added_under_a_stream_are_read_from_their_beginning(spark, config, bootstrap, topic) -> None:
    create_topic(bootstrap, topic, 1, retention_ms="-1")
    produce(bootstrap, topic, range(50))
    live = BronzeConfig(**{**config, "trigger": "0 seconds"})
    query = bronze.archive_writer(spark, live).start()
    try:
        query.processAllAvailable()
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(60)
        for partition in range(3):
            produce(bootstrap, topic, range(1000 * partition, 1000 * partition + 20), partition)
        until = time.monotonic() + 180
        while len(archived(spark, config)) < 110:
            assert time.monotonic() < until
            query.processAllAvailable()
    finally:
        query.stop()
    first = [(0, n, n if n < 50 else n - 50) for n in range(70)]
    assert archived(spark, config) == first + [(p, n, 1000 * p + n) for p in (1, 2) for n in range(20)]
    assert [one.faults(is_loss_allowed=False) for one in run_audit(spark, config)] == [{}, {}, {}]


# -- what the audit finds -------------------------------------------------------------------------------------------


def test_audit_finds_what_is_missing_repeated_changed_and_strange(spark, config, bootstrap, topic) -> None:
    create_topic(bootstrap, topic, 2, retention_ms="-1")
    for partition in range(2):
        produce(bootstrap, topic, range(50), partition)
    run_bronze(config)
    (first, second) = run_audit(spark, config)
    assert (first.archived, first.end_offset, second.archived, second.end_offset) == (50, 50, 50, 50)
    rows = read_archive(spark, config["output"])
    damaged = {**config, "output": config["output"] + "-damaged"}
    spoiled(rows).write.partitionBy("date", "topic").parquet(damaged["output"])
    (first, second) = run_audit(spark, damaged)
    assert first.faults(is_loss_allowed=False) == {"repeated": 1}
    faults = {"missing": 3, "repeated": 2, "differing": 8, "unexpected": 1}
    assert second.faults(is_loss_allowed=False) == faults
    with pytest.raises(JobError, match=f"{topic}-1: 3 missing, 2 repeated, 8 differing, 1 unexpected"):
        audit.run(AuditConfig(**damaged))


def spoiled(rows: DataFrame) -> DataFrame:
    """Return an archive with every fault in partition 1: rows lost, twice, too many, changed, and in wrong places."""
    untouched, own = rows.where("partition = 0"), rows.where("partition = 1 AND offset NOT IN (7, 8)")
    changes = {
        20: ("key", "value"),
        21: ("value", "key"),
        22: ("timestamp", "timestamp + INTERVAL 1 MILLISECOND"),
        23: ("timestampType", "1"),
        24: ("headers", "slice(headers, 1, 1)"),
        25: ("headers", "transform(headers, h -> struct(h.key AS key, coalesce(h.value, X'') AS value))"),
        30: ("offset", "31"),
        31: ("offset", "30"),
    }
    kept = own.where(~F.col("offset").isin([*changes, 40]))
    changed = [own.where(f"offset = {at}").withColumn(name, F.expr(to)) for at, (name, to) in changes.items()]
    moved = own.where("offset = 40").withColumn("partition", F.lit(0))
    twice = own.where("offset = 9")
    strange = twice.withColumn("offset", F.lit(50))
    parts = [untouched, kept, *changed, moved, twice, twice, strange]
    return reduce(DataFrame.union, (part.select(*rows.columns) for part in parts))


# -- compacted and transactional topics -----------------------------------------------------------------------------


@pytest.mark.ours
def test_compacted_and_transactional_topics_of_apache_kafka_are_archived_as_it_served_them(spark, config, tmp_path):
    """Apache Kafka's own data directory, served by kafkapy: gaps, markers and aborted records are no loss."""
    with tarfile.open(GOLDEN / "kafka_data_dir_clean.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    with gzip.open(GOLDEN / "kafka_data_dir_expected.jsonl.gz", "rt") as lines:
        rows = [row for row in map(json.loads, lines) if "value" in row]
    with Kafkapy(tmp_path / "data", {"log.cleaner.enable": "false", "log.retention.ms": "-1"}) as broker:
        for isolation in ("read_committed", "read_uncommitted"):
            own = {name: f"{config[name]}-{isolation}" for name in ("checkpoint", "output")}
            here = {**config, **own, "bootstrap_servers": broker.bootstrap, "isolation_level": isolation}
            here["topics"] = ["compacted", "txn"]
            run_bronze(here)
            wanted = [row for row in rows if (row["topic"], row["isolation"]) == ("txn", isolation)]
            wanted += [row for row in rows if row["topic"] == "compacted"]
            assert records(spark, here) == sorted(map(as_record, wanted))
            found = {one.topic: one for one in run_audit(spark, here)}
            assert [one.faults(is_loss_allowed=False) for one in found.values()] == [{}, {}]
            assert found["compacted"].empty > 0
            assert found["txn"].empty == 66 - found["txn"].archived


def records(spark, config: dict[str, Any]) -> list[tuple[Any, ...]]:
    rows = read_archive(spark, config["output"]).selectExpr("*", "unix_millis(timestamp) as timestamp_ms").collect()
    return sorted(
        (r.topic, r.partition, r.offset, r.timestamp_ms, in_hex(r.key), in_hex(r.value), headers_of(r)) for r in rows
    )


def as_record(row: dict[str, Any]) -> tuple[Any, ...]:
    headers = str([(name, value) for name, value in row["headers"]])
    return row["topic"], row["partition"], row["offset"], row["timestamp"], row["key"], row["value"], headers


def headers_of(row: Any) -> str:
    return str([(header.key, in_hex(header.value)) for header in row.headers or ()])


def in_hex(value: bytes | None) -> str | None:
    return None if value is None else bytes(value).hex()
