"""Two drivers of one query, or what executors still run of a killed one: Parquet has each batch once, whoever wins."""

import shutil
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from spark_jobs import live, silver
from spark_jobs.config import TopicConfig
from spark_jobs.errors import JobError
from spark_jobs.failpoints import DIRECTORY, Failpoints
from spark_jobs.outputs import prepare
from spark_jobs.parquet_batches import NOTE, Attempt
from spark_jobs.sink import ExactlyOnceSink, sink_of, topic_sink
from spark_jobs.topics import create_topic
from spark_jobs.transactional_sink import Note, TransactionalSink, Transactions, deliver_once
from tests.compat.conftest import new_server
from tests.support import market
from tests.support.eventually import eventually
from tests.support.spark_job import standing_at

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
TRADE = b'{"v":1,"symbol":"A","trade_id":%d,"price":"1.5","quantity":"2","time_ms":1000,"is_buyer_maker":true}'


def rows(spark, first: int = 0) -> DataFrame:
    return spark.range(first, first + 4, numPartitions=1)


def write(rows: DataFrame, output: Path, batch_id: int = 0, plan: str = "plan") -> None:
    Attempt.at(rows, str(output), batch_id, plan).write(rows)


def found(spark, output: Path) -> list[int]:
    return sorted(row.id for row in spark.read.parquet(str(output)).collect())


@contextmanager
def an_older_driver_amid_its_write(spark, output: Path, places: Path) -> Iterator[None]:
    """Let a task of another attempt at batch 0 wait until the context ends; then let that attempt end."""
    places.mkdir()
    (places / "task").write_text("wait")
    failpoints = Failpoints(str(places))

    def wait(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            failpoints.pass_by("task")
            yield batch

    errors: list[Exception] = []

    def run() -> None:
        try:
            write(rows(spark).mapInPandas(wait, "id LONG"), output)
        except Exception as error:  # raised in the test's own thread
            errors.append(error)

    older = threading.Thread(target=run)
    older.start()
    try:
        eventually((places / "task.reached").exists, 120)
        yield
    finally:
        (places / "task.go").touch()
        older.join()
    assert errors == []


@pytest.mark.parametrize("newest", [0, 1], ids=["the same batch", "the next batch, too"])
def test_a_batch_is_there_once_though_an_older_driver_goes_on_with_it(spark, tmp_path, newest) -> None:
    output = tmp_path / "output"
    with an_older_driver_amid_its_write(spark, output, tmp_path / "places"):
        for batch_id in range(newest + 1):
            write(rows(spark, 4 * batch_id), output, batch_id)
        assert found(spark, output) == list(range(4 * (newest + 1)))
    assert found(spark, output) == list(range(4 * (newest + 1)))
    assert list((output / "_attempts").iterdir()) == []


def test_the_first_of_two_whole_attempts_wins(spark, tmp_path, monkeypatch) -> None:
    """Both are written as a whole; the second finds the batch published, and is removed."""
    places = tmp_path / "places"
    places.mkdir()
    monkeypatch.setenv(DIRECTORY, str(places))
    (places / "parquet_written-0").write_text("wait")
    thread = threading.Thread(target=lambda: write(rows(spark), tmp_path / "output"))
    thread.start()
    eventually((places / "parquet_written-0.reached").exists, 120)
    write(rows(spark), tmp_path / "output")
    (places / "parquet_written-0.go").touch()
    thread.join()
    assert found(spark, tmp_path / "output") == [0, 1, 2, 3]


def test_a_rename_that_comes_second_adds_nothing(spark, tmp_path) -> None:
    """Between its look and its rename another attempt is published: Hadoop then moves it into that one's directory."""
    output = tmp_path / "output"
    late = Attempt.at(rows(spark), str(output), 0, "plan")
    rows(spark).write.parquet(late.own.path)
    late.own.write_text(NOTE, "{}")
    write(rows(spark), output)
    late.own.rename_to(late.published)
    assert found(spark, output) == [0, 1, 2, 3]
    assert late.own.names() == []


def test_what_is_not_whole_is_replaced_and_another_plan_is_refused(spark, tmp_path) -> None:
    output = tmp_path / "output"
    rows(spark, 9).write.parquet(str(output / "batch_id=0"))  # as versions before 0.2.0 left it
    write(rows(spark), output)
    write(rows(spark, 9), output)
    assert found(spark, output) == [0, 1, 2, 3]
    with pytest.raises(JobError, match=r"batch_id=0 holds another batch than the checkpoint gives: .* --reset-output$"):
        write(rows(spark), output, plan="another")
    next((output / "batch_id=0").glob("part-*")).unlink()  # a copy that was killed, where a rename is one
    write(rows(spark), output, plan="another")
    assert found(spark, output) == [0, 1, 2, 3]


def test_a_repeated_batch_that_fails_is_not_done_though_it_is_there(spark, tmp_path) -> None:
    """Else Spark would commit it without the state of all its rows, and could never compute the next one."""

    def fail(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            raise OSError("the disk is full")
            yield batch

    write(rows(spark), tmp_path / "output")
    with pytest.raises(PySparkException, match="the disk is full"):
        write(rows(spark).mapInPandas(fail, "id LONG"), tmp_path / "output")
    assert found(spark, tmp_path / "output") == [0, 1, 2, 3]


def put(bootstrap: str, topic: str, trade_ids: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for trade_id in trade_ids:
        producer.produce(topic, TRADE % trade_id, b"A", timestamp=1_000)
    assert producer.flush(60) == 0


def silver_config(bootstrap: str, topic: str, path: Path, **changes: object) -> dict[str, object]:
    """Put five trades on the topic; return the configuration of silver for them."""
    create_topic(bootstrap, topic, 1, retention_ms="-1")
    put(bootstrap, topic, range(5))
    config = {
        "bootstrap_servers": bootstrap,
        "topics": [topic],
        "checkpoint": str(path / "checkpoint"),
        "output": str(path / "output"),
        "output_topic": f"{topic}-silver",
        "dead_letter_topic": f"{topic}-dead",
        "trigger": "available_now",
        "shuffle_partitions": 1,
    }
    return {**config, **changes}


def trade_ids(spark, path: Path) -> list[int]:
    return sorted(row.trade_id for row in spark.read.parquet(str(path / "output")).collect())


def test_the_older_of_two_drivers_on_one_checkpoint_is_fenced_and_says_so(spark, bootstrap, topic, tmp_path) -> None:
    config = silver_config(bootstrap, topic, tmp_path, delivery="exactly_once")
    with standing_at("parquet_written-0", "silver", config, tmp_path) as older:
        silver.run(silver.SilverConfig(**config))
        status, line = older.go_on()
    assert status == 1
    assert line.startswith("spark_jobs: a newer driver uses the transactional id "), line
    assert trade_ids(spark, tmp_path) == list(range(5))
    keys = sorted(record.key for record in market.consume(bootstrap, f"{topic}-silver"))
    assert keys == [b"A|%d" % trade_id for trade_id in range(5)]


def test_of_two_drivers_without_transactions_the_older_says_it_too(spark, bootstrap, topic, tmp_path) -> None:
    config = silver_config(bootstrap, topic, tmp_path, output_topic=None)
    with standing_at("parquet_written-0", "silver", config, tmp_path) as older:
        silver.run(silver.SilverConfig(**config))
        status, line = older.go_on()
    assert status == 1
    told = f"spark_jobs: another driver goes on with the checkpoint {config['checkpoint']}, so this one has ended: "
    assert line == f"{told}run one at a time, and start it again once the other has ended; nothing is lost"
    assert trade_ids(spark, tmp_path) == list(range(5))


def test_a_job_that_ended_between_its_output_and_its_checkpoint_goes_on(
    spark, bootstrap, topic, tmp_path, monkeypatch
) -> None:
    """The repeated batch is there, and yet computed: the next one needs the state that Spark keeps of it."""
    config = silver.SilverConfig(**silver_config(bootstrap, topic, tmp_path, output_topic=None))
    (tmp_path / "failpoints").mkdir()
    (tmp_path / "failpoints" / "parquet_published-0").write_text("raise")
    monkeypatch.setenv(DIRECTORY, str(tmp_path / "failpoints"))
    with pytest.raises(JobError, match="Spark failed"):
        silver.run(config)
    silver.run(config)
    put(bootstrap, topic, range(3, 7))  # two of them again
    silver.run(config)
    assert trade_ids(spark, tmp_path) == list(range(7))


def test_a_checkpoint_that_is_older_than_the_output_is_refused(spark, bootstrap, topic, tmp_path) -> None:
    """Its next batch has the number of one that is there, and other offsets."""
    config = silver.SilverConfig(**silver_config(bootstrap, topic, tmp_path, output_topic=None))
    silver.run(config)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "older")
    put(bootstrap, topic, range(5, 7))
    silver.run(config)
    shutil.rmtree(tmp_path / "checkpoint")
    (tmp_path / "older").rename(tmp_path / "checkpoint")
    put(bootstrap, topic, range(7, 9))
    with pytest.raises(JobError, match=r"holds another batch than the checkpoint gives: the checkpoint is older than"):
        silver.run(config)
    assert trade_ids(spark, tmp_path) == list(range(7))


@pytest.mark.parametrize("begins", ["driver of the numbered topic", "sink partition of the other"])
def test_jobs_whose_topics_differ_by_a_number_do_not_share_a_transactional_id(bootstrap, topic, begins) -> None:
    """The driver of topic a-0, and the first sink partition of topic a, would both use PREFIX-a-0."""
    client = {"bootstrap.servers": bootstrap}
    plain, numbered = (TransactionalSink(f"x-{topic}{end}", f"{topic}{end}", client) for end in ("", "-0"))
    for sink in (plain, numbered):
        create_topic(bootstrap, sink.topic, 1)
    is_first = begins == "driver of the numbered topic"
    first, second = (numbered, plain) if is_first else (plain, numbered)
    config = TopicConfig(
        bootstrap_servers=bootstrap, topics=["t"], checkpoint="c", delivery="exactly_once", transactional_id="x"
    )
    with topic_sink(config, "gold", {second.topic: None}, reset_output=False):
        """Nobody uses it yet."""
    with closing(Transactions(first, numbered.name)) as transactions:
        transactions.commit(Note("q", 0, 4))
    refused = (
        f"^the transactional id {numbered.name} of topic {second.topic} is used for topic {first.topic}, too: give"
    )
    with pytest.raises(JobError, match=refused), topic_sink(config, "gold", {second.topic: None}, reset_output=False):
        raise AssertionError("it was opened")
    with topic_sink(config, "gold", {first.topic: None}, reset_output=False):
        """Its own notes are no obstacle."""


@pytest.mark.parametrize("step", ["initialized", "produced"])
def test_what_still_runs_of_a_killed_query_adds_nothing_after_a_reset(spark, bootstrap, topic, tmp_path, step) -> None:
    """A task of the earlier query stands at a step, as in an executor whose driver was killed, while a job is reset."""
    create_topic(bootstrap, topic, 1)
    where = {"checkpoint": str(tmp_path / "checkpoint"), "output_topic": topic}
    config = live.LiveConfig(bootstrap_servers=bootstrap, topics=["in"], delivery="exactly_once", **where)
    sink = sink_of(config, "live", topic)
    claim = Note("q", 0, 2, "run")
    with closing(Transactions(sink, sink.name)) as driver:
        driver.commit(claim)

    def reset(name: str, _batch_id: int) -> None:
        if name == step:
            prepare(spark, config, "live", reset_output=True)

    record = {"key": b"k", "value": b"v", "sink_partition": 1}
    task = replace(sink, at_step=reset)
    if step == "initialized":
        assert not deliver_once(task, claim, 1, iter([record]))
    else:
        with pytest.raises(KafkaException):
            deliver_once(task, claim, 1, iter([record]))
    assert market.consume(bootstrap, topic) == []


@pytest.mark.ours
def test_notes_live_no_longer_than_the_brokers_keep_offsets(tmp_path) -> None:
    """A batch that comes again after its notes expired would be written twice."""
    with new_server(tmp_path / "broker", {"offsets.retention.minutes": "70"}) as broker:
        create_topic(broker.bootstrap, "out", 1)
        config = TopicConfig(bootstrap_servers=broker.bootstrap, topics=["t"], checkpoint="c", delivery="exactly_once")
        with topic_sink(config, "gold", {"out": None}, reset_output=False) as sink:
            assert isinstance(sink, ExactlyOnceSink)
            assert sink.writers["out"].sink.notes_live_s == 3_600
