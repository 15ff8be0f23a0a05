"""The transactional sink: killed or failed at each of its steps, a batch is on the topic once, in order per key."""

import json
import re
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from spark_jobs.failpoints import Failpoints
from spark_jobs.topics import create_topic
from spark_jobs.transactional_sink import Note, SinkError, TransactionalSink, Transactions
from tests.support import market
from tests.support.eventually import eventually

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
KEYS = 7
PER_BATCH = 60
IN_TASK = ("task_started", "initialized", "noted", "produced", "committed")
"""The steps of a task, in their order."""
ON_DRIVER = ("claimed", "delivered")


class Stream:
    """A query of one input topic to one output topic, batches of PER_BATCH records."""

    def __init__(self, spark, bootstrap: str, topic: str, path: Path) -> None:
        self.spark, self.bootstrap, self.path = spark, bootstrap, path
        self.input, self.output = f"{topic}-in", f"{topic}-out"
        self.failpoints = path / "failpoints"
        self.failpoints.mkdir()
        self.sent = 0
        create_topic(bootstrap, self.input, 1)
        create_topic(bootstrap, self.output, 3)

    def put(self, count: int) -> None:
        """Put records n on the input: key n % KEYS, value n."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for n in range(self.sent, self.sent + count):
            producer.produce(self.input, b"%d" % n, b"k%d" % (n % KEYS))
        assert producer.flush(30) == 0
        self.sent += count

    def arm(self, place: str, what: str) -> None:
        (self.failpoints / place).write_text(what)

    def sink(self, **changes: Any) -> TransactionalSink:
        settings = {
            "name": self.output,
            "topic": self.output,
            "client": {"bootstrap.servers": self.bootstrap},
            "partitions": 2,
            "order_by": ("offset",),
            "timeout_s": 30.0,
            "at_step": Failpoints(str(self.failpoints)),
        }
        return TransactionalSink(**{**settings, **changes})

    def rows(self) -> DataFrame:
        source = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        source = source.option("subscribe", self.input).option("startingOffsets", "earliest")
        rows = source.option("maxOffsetsPerTrigger", str(PER_BATCH)).load()
        attempt = F.array(F.struct(F.lit("made").alias("key"), F.expr("uuid()").cast("binary").alias("value")))
        return rows.select("key", "value", "offset", attempt.alias("headers"))

    def start(self, write: Callable[[DataFrame, int], None], checkpoint: str = "checkpoint") -> StreamingQuery:
        query = self.rows().writeStream.foreachBatch(write).option("checkpointLocation", str(self.path / checkpoint))
        return query.trigger(availableNow=True).start()

    def run(self, sink: TransactionalSink | None = None, checkpoint: str = "checkpoint") -> Exception | None:
        """Run the query over what is there; return what it ended with."""
        with (sink or self.sink()).open() as writer:
            query = self.start(writer.write, checkpoint)
            try:
                query.awaitTermination()
            except Exception as error:  # Spark's, whatever was raised
                return error
        return None

    def check(self) -> None:
        """Assert that each record is on the output once, and in its key's order."""
        faults = found_faults(market.consume(self.bootstrap, self.output), self.sent)
        assert faults == {}


def found_faults(records: list[market.Record], sent: int) -> dict[str, list[Any]]:
    """Return what is lost, twice, or out of its key's order."""
    counts = Counter(int(record.value) for record in records)
    by_key: dict[bytes, list[int]] = {}
    for record in sorted(records, key=lambda record: (record.partition, record.offset)):
        by_key.setdefault(record.key, []).append(int(record.value))
    faults = {
        "lost": sorted(set(range(sent)) - set(counts)),
        "twice": sorted(n for n, count in counts.items() if count > 1),
        "disordered": sorted(key for key, values in by_key.items() if values != sorted(values)),
    }
    return {name: found for name, found in faults.items() if found}


@pytest.fixture
def stream(spark, bootstrap, topic, tmp_path) -> Stream:
    return Stream(spark, bootstrap, topic, tmp_path)


def test_the_check_finds_what_is_lost_twice_or_out_of_order() -> None:
    def record(offset: int, n: int) -> market.Record:
        return market.Record("t", 0, offset, 0, b"k", b"%d" % n, ())

    whole = [record(offset, offset) for offset in range(4)]
    assert found_faults(whole, 4) == {}
    assert found_faults(whole[:3], 4) == {"lost": [3]}
    assert found_faults([*whole, record(4, 3)], 4) == {"twice": [3]}
    assert found_faults([record(0, 1), record(1, 0)], 2) == {"disordered": [b"k"]}


def test_a_task_killed_at_each_step_and_a_driver_that_fails_lose_and_repeat_nothing(stream: Stream) -> None:
    """Batch n is disturbed at the nth step; of "noted" and "produced" the other sink partition may have committed."""
    for batch_id, step in enumerate(IN_TASK):
        stream.arm(f"{step}-{batch_id}", "kill")
    for batch_id, step in enumerate(ON_DRIVER, len(IN_TASK)):
        stream.arm(f"{step}-{batch_id}", "raise")
    stream.put(PER_BATCH * (len(IN_TASK) + len(ON_DRIVER) + 1))
    failures = 0
    while stream.run() is not None:
        failures += 1
        assert failures <= len(IN_TASK) + len(ON_DRIVER)
    assert failures == len(IN_TASK) + len(ON_DRIVER)
    assert sorted(path.suffix for path in stream.failpoints.iterdir()) == [".passed"] * failures
    stream.check()


def test_readers_see_a_batch_as_a_whole_partition_by_partition_and_an_open_one_not_at_all(stream: Stream) -> None:
    """While a sink partition is produced and not committed, a reader of read_committed sees none of it."""
    stream.arm("produced-0", "wait")
    stream.put(PER_BATCH)
    results: list[Exception | None] = []
    thread = threading.Thread(target=lambda: results.append(stream.run()))
    thread.start()
    try:
        eventually((stream.failpoints / "produced-0.reached").exists)
        seen = market.consume(stream.bootstrap, stream.output)
        assert len({record.key for record in seen}) < KEYS, "one sink partition at most is committed"
    finally:
        (stream.failpoints / "produced-0.go").touch()
        thread.join(120)
    assert results == [None]
    stream.check()


def test_another_count_of_sink_partitions_does_not_cut_a_half_written_batch_anew(stream: Stream) -> None:
    stream.arm("committed-0", "kill")
    stream.put(PER_BATCH * 2)
    assert stream.run() is not None
    assert stream.run(stream.sink(partitions=5)) is None
    stream.check()


def test_the_older_of_two_drivers_is_fenced_and_says_so(stream: Stream) -> None:
    stream.put(PER_BATCH)
    assert stream.run() is None
    errors: list[Exception] = []
    with stream.sink().open() as writer:
        with stream.sink().open():
            pass
        stream.put(PER_BATCH)
        query = stream.start(told_by(writer.write, errors))
        with pytest.raises(StreamingQueryException):
            query.awaitTermination()
    assert ["a newer driver uses the transactional id" in str(error) for error in errors] == [True]
    assert stream.run() is None
    stream.check()


def test_tasks_of_an_older_driver_are_turned_away_after_a_newer_claim(stream: Stream) -> None:
    """The older is past its claim; the newer has claimed the same batch and waits: the older's tasks must not write."""
    stream.put(PER_BATCH)
    stream.arm("claimed-0", "wait")
    errors: list[Exception] = []
    with stream.sink().open() as writer:
        query = stream.start(told_by(writer.write, errors))
        eventually((stream.failpoints / "claimed-0.reached").exists)
        with closing(Transactions(stream.sink(), stream.output)) as newer:
            claim = newer.note()
            assert claim is not None
            newer.commit(replace(claim, run="newer"))
        (stream.failpoints / "claimed-0.go").touch()
        with pytest.raises(StreamingQueryException):
            query.awaitTermination()
    assert ["a newer driver uses the transactional id" in str(error) for error in errors] == [True]
    assert market.consume(stream.bootstrap, stream.output) == []


@pytest.mark.parametrize(
    ("claimed", "told"),
    [
        (None, "no batch before it is noted in Kafka"),
        (Note("other", 0, 2), "belongs to query other"),
        (Note("own", 4, 2), "has written batch 4, and the checkpoint goes on with batch 1"),
    ],
)
def test_a_batch_that_does_not_follow_the_claim_is_refused(stream: Stream, claimed: Note | None, told: str) -> None:
    stream.put(PER_BATCH)
    assert stream.run() is None
    stream.put(PER_BATCH)
    own = json.loads((stream.path / "checkpoint" / "metadata").read_text())["id"]
    name = f"{stream.output}-again"
    sink = stream.sink(name=name)
    if claimed is not None:
        with closing(Transactions(sink, name)) as transactions:
            transactions.commit(replace(claimed, query=own) if claimed.query == "own" else claimed)
    errors: list[Exception] = []
    with sink.open() as writer:
        query = stream.start(told_by(writer.write, errors))
        with pytest.raises(StreamingQueryException):
            query.awaitTermination()
    assert [re.search(told, str(error)) is not None for error in errors] == [True], errors
    assert stream.run(stream.sink(first_batch=1)) is None, "and goes on under its own name"
    stream.check()


def told_by(write: Callable[[DataFrame, int], None], errors: list[Exception]) -> Callable[[DataFrame, int], None]:
    """Return the function with a list of the SinkErrors that it raises: Spark passes their text on, with a trace."""

    def written(rows: DataFrame, batch_id: int) -> None:
        try:
            write(rows, batch_id)
        except SinkError as error:
            errors.append(error)
            raise

    return written
