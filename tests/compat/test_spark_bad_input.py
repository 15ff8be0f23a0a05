"""Bad input while a job writes tables and transactions: one line that names it, exit 1, and nothing lost or twice.

Unknown schema versions and checkpoints are in test_spark_operation.py, the tables alone in tests/unit/spark_jobs.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from spark_jobs.__main__ import main
from spark_jobs.failpoints import DIRECTORY
from spark_jobs.tables import CATALOG_FILE, NAMESPACE, open_catalog
from spark_jobs.topics import create_topic
from spark_jobs.transactional_sink import TransactionalSink, new_consumer, read_note
from tests.compat.conftest import new_server
from tests.support import market
from tests.support.eventually import eventually
from tests.support.spark_job import ROOT, needs_spark4

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    needs_spark4,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]
TRADE = b'{"v":1,"symbol":"A","trade_id":%d,"price":"1.5","quantity":"2","time_ms":1000,"is_buyer_maker":true}'


class Job:
    """`python -m spark_jobs silver` to an Iceberg table and to a topic in transactions, in the tests' own session."""

    def __init__(self, bootstrap: str, topic: str, path: Path, monkeypatch, capsys) -> None:
        self.bootstrap, self.topic, self.path = bootstrap, topic, path
        self.tables, self.failpoints, self.output_topic = path / "tables", path / "failpoints", f"{topic}-silver"
        self._monkeypatch, self._capsys = monkeypatch, capsys
        self.failpoints.mkdir()
        monkeypatch.setenv(DIRECTORY, str(self.failpoints))
        create_topic(bootstrap, topic, 1, retention_ms="-1")

    def put(self, *trade_ids: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for trade_id in trade_ids:
            producer.produce(self.topic, TRADE % trade_id, b"A", timestamp=1_000)
        assert producer.flush(60) == 0

    def write(self, **changes: object) -> Path:
        """Write the job's configuration."""
        config = {
            "bootstrap_servers": self.bootstrap,
            "topics": [self.topic],
            "checkpoint": str(self.path / "checkpoint"),
            "output_topic": self.output_topic,
            "dead_letter_topic": f"{self.topic}-dead",
            "transactional_id": self.topic,
            "delivery": "exactly_once",
            "iceberg": str(self.tables),
            "transactions": 1,
            "trigger": "available_now",
            "shuffle_partitions": 1,
        }
        file = self.path / "silver.yaml"
        file.write_text(yaml.safe_dump({**config, **changes}))
        return file

    def run(self, **changes: object) -> tuple[int, str]:
        """Return the exit status and the line on standard error."""
        file = self.write(**changes)
        self._monkeypatch.setattr(sys, "argv", ["spark_jobs", "silver", "--config", str(file)])
        self._capsys.readouterr()
        try:
            status = main()
        except SystemExit as ended:  # how typer ends a command that went well
            status = int(ended.code or 0)
        return status, self._capsys.readouterr().err.strip()

    def is_refused(self, told: str, **changes: object) -> bool:
        status, line = self.run(**changes)
        assert "\n" not in line
        assert line.startswith("spark_jobs: ")
        assert told in line
        return status == 1

    @contextmanager
    def meanwhile(self, place: str, act: Callable[[], None]) -> Iterator[None]:
        """When the job stands at the place, act, then let it go on."""
        (self.failpoints / place).write_text("wait")
        is_over = threading.Event()

        def act_there() -> None:
            eventually(lambda: (self.failpoints / f"{place}.reached").exists() or is_over.is_set(), 600)
            try:
                act()
            finally:
                (self.failpoints / f"{place}.go").touch()

        thread = threading.Thread(target=act_there)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def check(self, *trade_ids: int) -> None:
        """Assert that table and topic hold each trade once."""
        assert sorted(row["trade_id"] for row in market.table_rows(self.tables, "trades")) == list(trade_ids)
        keys = sorted(record.key for record in market.consume(self.bootstrap, self.output_topic))
        assert keys == [b"A|%d" % trade_id for trade_id in trade_ids]


@pytest.fixture
def job(spark, bootstrap: str, topic: str, tmp_path: Path, monkeypatch, capsys) -> Job:
    return Job(bootstrap, topic, tmp_path, monkeypatch, capsys)


def test_a_catalogue_that_another_program_locks_amid_a_batch(job: Job) -> None:
    job.put(1, 2)
    others: list[sqlite3.Connection] = []

    def lock() -> None:
        others.append(sqlite3.connect(job.tables / CATALOG_FILE, isolation_level=None, check_same_thread=False))
        others[0].execute("BEGIN EXCLUSIVE")

    with job.meanwhile("iceberg_written-0", lock):
        assert job.is_refused("is locked by another program: end that, or wait, and start again")
    others[0].close()
    assert job.run() == (0, "")
    job.check(1, 2)


def test_a_table_of_another_schema_and_one_of_another_query(job: Job) -> None:
    job.put(1)
    catalog = open_catalog(str(job.tables), {})
    catalog.create_namespace(NAMESPACE)
    catalog.create_table(f"{NAMESPACE}.trades", pa.schema([("symbol", pa.string()), ("price", pa.float64())]))
    assert job.is_refused("market.trades has another schema (price is double there, decimal128(18, 8) here): give this")
    catalog.drop_table(f"{NAMESPACE}.trades")
    assert job.run() == (0, "")
    of_another = {"checkpoint": str(job.path / "another"), "output_topic": None, "transactional_id": "another"}
    assert job.is_refused("market.trades holds rows of another query than ", **of_another)
    job.put(2)
    assert job.run() == (0, "")
    job.check(1, 2)


def test_a_pattern_that_matches_what_the_job_writes(job: Job) -> None:
    job.put(1)
    pattern = f"{job.topic}.*"
    told = (
        f"topic_pattern {pattern} matches {job.output_topic}, which this job writes: it would read it again and again"
    )
    assert job.is_refused(told, topics=[], topic_pattern=pattern)
    assert job.run(topics=[], topic_pattern=job.topic) == (0, "")
    job.check(1)


def test_a_second_driver_with_the_transactional_id_ends_the_first_which_says_so(job: Job) -> None:
    job.put(1, 2)
    client = {"bootstrap.servers": job.bootstrap}
    second = TransactionalSink(name=f"{job.topic}-{job.output_topic}", topic=job.output_topic, client=client)

    def begin() -> None:
        with second.open():
            pass

    with job.meanwhile("claim_noted-0", begin):
        assert job.is_refused(f"a newer driver uses the transactional id {second.name}")
    assert market.consume(job.bootstrap, job.output_topic) == []
    assert job.run() == (0, "")
    job.check(1, 2)


def test_a_topic_that_is_deleted_under_a_running_job_and_one_that_is_gone_at_its_start(
    spark, topic, tmp_path, monkeypatch, capsys
) -> None:
    with new_server(tmp_path / "broker", {"auto.create.topics.enable": "false"}) as broker:
        job = Job(broker.bootstrap, topic, tmp_path, monkeypatch, capsys)
        job.put(1, 2)
        with job.meanwhile("delivered-0", lambda: delete(broker.bootstrap, topic)):
            assert job.is_refused(
                f"a topic of {topic} does not exist on {broker.bootstrap}: create it", trigger="0 seconds"
            )
        assert job.is_refused(f"topic {topic} does not exist on {broker.bootstrap}: create it, or correct topics")
        job.check(1, 2)


def test_a_jvm_that_is_killed_amid_a_batch_is_one_line(job: Job) -> None:
    job.put(1, 2)
    place = job.failpoints / "claimed-0"
    place.write_text("wait")
    command = [sys.executable, "-m", "spark_jobs", "silver", "--config", str(job.write())]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        eventually(lambda: place.with_suffix(".reached").exists() or process.poll() is not None, 600)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        (jvm,) = [child for child in children if Path(f"/proc/{child}/comm").read_text() == "java\n"]
        os.kill(int(jvm), signal.SIGKILL)
        place.with_suffix(".go").touch()
        assert process.stderr is not None
        lines = process.stderr.read().splitlines()
    assert process.returncode == 1
    assert lines[-1].startswith("spark_jobs: Spark's JVM has ended amid the job"), lines[-40:]
    assert job.run() == (0, "")
    job.check(1, 2)


def delete(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(60)
    eventually(lambda: topic not in admin.list_topics(timeout=30).topics)


def test_a_first_batch_that_was_planned_before_notes_expired_is_refused(job: Job) -> None:
    """Without a claim nobody knows whether a part of it is written."""
    job.put(1, 2)
    (job.failpoints / "claim_noted-0").write_text("raise")
    assert job.is_refused("Spark failed")
    planned = job.path / "checkpoint" / "offsets" / "0"
    version, metadata, *sources = planned.read_text().splitlines()
    for days, is_refused in ((8, True), (1, False)):
        planned_ms = int(time.time() * 1000) - days * 86_400_000
        changed = json.dumps({**json.loads(metadata), "batchTimestampMs": planned_ms})
        planned.write_text("\n".join((version, changed, *sources)))
        (planned.parent / ".0.crc").unlink(missing_ok=True)
        if is_refused:
            assert job.is_refused("was begun 192 hours ago, and Kafka may have forgotten which parts of it are written")
    assert job.run() == (0, "")
    job.check(1, 2)


def test_a_transaction_that_takes_too_long_and_rows_that_are_too_large(
    spark, topic, tmp_path, monkeypatch, capsys
) -> None:
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
    with new_server(tmp_path / "broker", settings) as broker:
        job = Job(broker.bootstrap, topic, tmp_path, monkeypatch, capsys)
        job.put(1, 2)
        create_topic(broker.bootstrap, job.output_topic, 1, max_message_bytes="60")
        assert job.is_refused("Message size too large", iceberg=None)
        alter_config(broker.bootstrap, job.output_topic, "max.message.bytes", "1000000")
        sink = TransactionalSink(
            f"{topic}-{job.output_topic}", job.output_topic, {"bootstrap.servers": broker.bootstrap}
        )

        def wait_for_the_abort() -> None:
            with closing(new_consumer(sink, f"{sink.name}-0")) as consumer:
                read_note(consumer, TopicPartition(sink.topic, 0), 60)

        with job.meanwhile("noted-0", wait_for_the_abort):
            assert job.is_refused(
                "a transaction took too long: raise producer's transaction.timeout.ms, or transactions",
                iceberg=None,
                producer={"transaction.timeout.ms": "1000"},
            )
        assert job.run() == (0, "")
        job.check(1, 2)


def alter_config(bootstrap: str, topic: str, key: str, value: str) -> None:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    resource.add_incremental_config(ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET))
    admin = AdminClient({"bootstrap.servers": bootstrap})  # kept in a variable: it must outlive its results
    (changed,) = admin.incremental_alter_configs([resource]).values()
    changed.result(60)


def test_an_output_topic_that_is_deleted_amid_a_transaction(spark, topic, tmp_path, monkeypatch, capsys) -> None:
    with new_server(tmp_path / "broker", {"auto.create.topics.enable": "false"}) as broker:
        job = Job(broker.bootstrap, topic, tmp_path, monkeypatch, capsys)
        job.put(1, 2)
        with job.meanwhile("task_started-0", lambda: delete(broker.bootstrap, job.output_topic)):
            assert job.is_refused("create the topic again; nothing of the batch is lost")
        assert job.run() == (0, "")
        job.check(1, 2)
