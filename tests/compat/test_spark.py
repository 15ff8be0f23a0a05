"""Spark's standard Kafka source and sink against a broker process."""

import gzip
import json
import tarfile
from pathlib import Path

import pytest
from confluent_kafka import Producer

from harness.servers import Kafkapy
from spark_jobs.topics import create_topic

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
GOLDEN = Path(__file__).parent.parent / "golden"


def fill(bootstrap: str, topic: str, count: int, partitions: int = 2) -> None:
    """Put `count` records on a new topic: record n in partition n % partitions, at 1,000,000 + 1000 n ms."""
    create_topic(bootstrap, topic, partitions, retention_ms="-1")  # else the broker deletes what is so old
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "compression.type": "zstd"})
    for n in range(count):
        where = {"partition": n % partitions, "timestamp": 1_000_000 + 1000 * n}
        producer.produce(topic, b"%d" % n, b"k%d" % n, headers=[("n", b"%d" % n)], **where)
    assert producer.flush(60) == 0


def read(spark, bootstrap: str, **options: str):
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    return reader.options(**options).load()


def values(frame) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


def test_batch_reads_every_record_with_its_headers(spark, bootstrap, topic):
    fill(bootstrap, topic, 100)
    rows = read(spark, bootstrap, subscribe=topic, includeHeaders="true").collect()
    found = sorted((int(r.value), bytes(r.key), r.partition, r.offset, r.headers[0].key) for r in rows)
    assert found == [(n, b"k%d" % n, n % 2, n // 2, "n") for n in range(100)]


def test_batch_between_given_offsets(spark, bootstrap, topic):
    fill(bootstrap, topic, 100)
    start, end = {topic: {"0": 10, "1": -2}}, {topic: {"0": 20, "1": -1}}
    frame = read(spark, bootstrap, subscribe=topic, startingOffsets=json.dumps(start), endingOffsets=json.dumps(end))
    assert values(frame) == sorted([*range(20, 40, 2), *range(1, 100, 2)])


def test_batch_from_a_timestamp(spark, bootstrap, topic):
    fill(bootstrap, topic, 100)
    assert values(read(spark, bootstrap, subscribe=topic, startingTimestamp="1060500")) == list(range(61, 100))


def test_subscribe_pattern_and_min_partitions(spark, bootstrap, topic):
    for suffix in ("-a", "-b"):
        fill(bootstrap, topic + suffix, 40)
    frame = read(spark, bootstrap, subscribePattern=f"{topic}-[ab]", minPartitions="12")
    assert frame.rdd.getNumPartitions() >= 12
    assert values(frame) == sorted([*range(40), *range(40)])


def test_stream_to_the_kafka_sink_resumes_at_its_checkpoint(spark, bootstrap, topic, tmp_path):
    target = topic + "-copy"
    create_topic(bootstrap, topic, 1)
    create_topic(bootstrap, target, 1)
    producer = Producer({"bootstrap.servers": bootstrap})

    def copy_what_is_there() -> None:
        source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        frame = source.option("subscribe", topic).option("startingOffsets", "earliest").load()
        sink = frame.select("key", "value").writeStream.format("kafka").option("topic", target)
        sink = sink.option("kafka.bootstrap.servers", bootstrap).option("checkpointLocation", str(tmp_path))
        query = sink.trigger(availableNow=True).start()
        assert query.awaitTermination(300)
        assert query.exception() is None

    for first in (0, 50):
        for n in range(first, first + 50):
            producer.produce(topic, b"%d" % n, b"k")
        assert producer.flush(60) == 0
        copy_what_is_there()
    assert values(read(spark, bootstrap, subscribe=target)) == list(range(100))


def test_read_committed_on_the_directory_of_apache_kafka(spark, tmp_path):
    with tarfile.open(GOLDEN / "kafka_data_dir_clean.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    with gzip.open(GOLDEN / "kafka_data_dir_expected.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    with Kafkapy(tmp_path / "data") as broker:
        for isolation in ("read_committed", "read_uncommitted"):
            frame = read(spark, broker.bootstrap, subscribe="txn", **{"kafka.isolation.level": isolation})
            found = sorted((r.offset, bytes(r.value).hex()) for r in frame.collect())
            expected = [r for r in rows if r["topic"] == "txn" and r["isolation"] == isolation and "value" in r]
            assert found == sorted((r["offset"], r["value"]) for r in expected)
