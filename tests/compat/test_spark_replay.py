"""An archived range put back on a topic: keys, values, headers, timestamps and partitions as they were."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from spark_jobs import bronze, replay
from spark_jobs.bronze import BronzeConfig
from spark_jobs.config import JobConfig
from spark_jobs.errors import JobError
from spark_jobs.replay import ReplayConfig
from spark_jobs.source import read_topics_once
from spark_jobs.topics import create_topic

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
START_MS = 1_570_752_000_000


def fill(bootstrap: str, topic: str, count: int) -> None:
    """Records of two partitions whose timestamps are not in order; keys, values and headers may be null or empty."""
    create_topic(bootstrap, topic, 2, retention_ms="-1")
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for n in range(count):
        key = (None, b"", b"k%d" % n)[n % 3]
        value = None if n % 7 == 0 else b"%d" % n
        headers = [("n", b"%d" % n), ("n", None), ("", b"")][: n % 4]
        where = {"partition": n % 2, "timestamp": START_MS + 1000 * (n - 5 * (n % 10 == 0))}
        producer.produce(topic, value, key, headers=headers, **where)
    assert producer.flush(60) == 0


def contents(spark, bootstrap: str, topic: str) -> list[tuple[Any, ...]]:
    """Return all of a topic's records but their offsets, in order of partition and offset."""
    rows = read_topics_once(spark, JobConfig(bootstrap_servers=bootstrap), [topic])
    rows = rows.selectExpr("*", "unix_millis(timestamp) as timestamp_ms").orderBy("partition", "offset").collect()
    return [
        (row.partition, row.timestamp_ms, row.key, row.value, [(h.key, h.value) for h in row.headers or ()])
        for row in rows
    ]


@pytest.fixture
def archived(spark, bootstrap: str, topic: str, tmp_path: Path) -> dict[str, Any]:
    """A topic of 200 records, and replay's configuration for its archive."""
    fill(bootstrap, topic, 200)
    common = {"bootstrap_servers": bootstrap, "shuffle_partitions": 2}
    paths = {"checkpoint": str(tmp_path / "checkpoint"), "output": str(tmp_path / "archive")}
    bronze.run(BronzeConfig(**common, **paths, topics=[topic], trigger="available_now"))
    return {**common, "archive": paths["output"]}


def test_replay_puts_back_all_that_a_record_is_and_goes_on_where_it_was_cut_off(spark, archived, bootstrap, topic):
    original = contents(spark, bootstrap, topic)
    assert replay.replay(spark, ReplayConfig(**archived)) == 200
    assert contents(spark, bootstrap, f"{topic}-replay") == original
    with pytest.raises(JobError, match=f"{topic}-replay holds records: .*resume: true"):
        replay.run(ReplayConfig(**archived))
    part = {**archived, "target": "{topic}-part"}
    assert replay.replay(spark, ReplayConfig(**part, end_offset=30)) == 60
    assert replay.replay(spark, ReplayConfig(**part, resume=True)) == 140
    assert contents(spark, bootstrap, f"{topic}-part") == original


def test_replay_of_a_range_by_time_takes_what_lies_in_it(spark, archived, bootstrap, topic) -> None:
    span = {"start": "2019-10-11T00:00:50", "end": "2019-10-11T00:01:40+00:00"}
    assert replay.replay(spark, ReplayConfig(**archived, **span, target="{topic}-span")) == 50
    bounds = START_MS + 50_000, START_MS + 100_000
    wanted = [row for row in contents(spark, bootstrap, topic) if bounds[0] <= row[1] < bounds[1]]
    assert contents(spark, bootstrap, f"{topic}-span") == wanted


def test_replay_goes_by_the_time_at_which_records_were_on_the_topic(spark) -> None:
    rows = [("t", 0, 0, 50), ("t", 0, 1, 10), ("t", 1, 0, 20), ("t", 1, 1, 60), ("t", 0, 2, 55)]
    records = spark.createDataFrame(rows, "topic STRING, partition INT, offset LONG, timestamp_ms LONG")
    records = records.selectExpr("*", "null as key", "null as value", "null as headers")
    order = [(row["partition"], row["offset"]) for row in replay.in_order(records).collect()]
    assert order == [(1, 0), (0, 0), (0, 1), (0, 2), (1, 1)]


def test_replay_refuses_a_target_that_would_not_keep_the_records(spark, archived, bootstrap, topic) -> None:
    create_topic(bootstrap, f"{topic}-1", 1)
    create_topic(bootstrap, f"{topic}-2", 2, retention_ms="604800000")
    create_topic(bootstrap, f"{topic}-3", 2, message_timestamp_type="LogAppendTime", retention_ms="-1")
    for number, reason in (
        (1, "1 partitions, the archived topic has 2"),
        (2, "would delete the replayed"),
        (3, "sets timestamps itself"),
    ):
        with pytest.raises(JobError, match=f"{topic}-{number} .*{reason}"):
            replay.run(ReplayConfig(**archived, target=f"{topic}-{number}"))
    with pytest.raises(JobError, match="has no record of the selected range"):
        replay.run(ReplayConfig(**archived, start="2030-01-01"))
