"""Bad input while a job writes tables and transactions: one line that names it, exit 1, and nothing lost or twice.

Unknown schema versions and checkpoints are in test_spark_operation.py, the tables alone in tests/unit/spark_jobs.
"""

import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from spark_jobs.__main__ import main
from spark_jobs.failpoints import DIRECTORY
from spark_jobs.tables import CATALOG_FILE, NAMESPACE, open_catalog
from spark_jobs.topics import create_topic
from spark_jobs.transactional_sink import TransactionalSink
from tests.compat.conftest import new_server
from tests.support import market
from tests.support.eventually import eventually
from tests.support.spark_job import needs_spark4

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

    def run(self, **changes: object) -> tuple[int, str]:
        """Return the exit status and the line on standard error."""
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
        with job.meanwhile("delivered-0", lambda: delete(job)):
            assert job.is_refused(
                f"a topic of {topic} does not exist on {broker.bootstrap}: create it", trigger="0 seconds"
            )
        assert job.is_refused(f"topic {topic} does not exist on {broker.bootstrap}: create it, or correct topics")
        job.check(1, 2)


def delete(job: Job) -> None:
    admin = AdminClient({"bootstrap.servers": job.bootstrap})
    admin.delete_topics([job.topic])[job.topic].result(60)
    eventually(lambda: job.topic not in admin.list_topics(timeout=30).topics)
