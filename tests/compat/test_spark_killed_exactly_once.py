"""The silver job with kill -9 of everything at each step of a batch: each trade is in topic, Iceberg and Delta once.

What is killed where: the driver with its JVM; the executor whose worker is there, its worker left behind, which goes on
as a zombie once others have taken over; the broker; the leader of the output's partitions among three brokers.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from harness.nodes import ThreeNodes
from harness.servers import QUICK_JVM as QUICK
from spark_jobs import audit_trades, feed, oracle
from spark_jobs.config import duration_ms, load_config
from spark_jobs.failpoints import DIRECTORY
from spark_jobs.generator import Market
from tests.compat.conftest import new_server
from tests.compat.test_cluster import KIND
from tests.support import market, topics
from tests.support.eventually import eventually
from tests.support.spark_job import needs_spark4

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    needs_spark4,
    pytest.mark.ours,
    pytest.mark.skipif("KAFKAPY_SOAK_SEEDS" not in os.environ, reason="`make soak`: a JVM for each kill"),
]
ROOT = Path(__file__).parents[2]
PER_BATCH = 150
PATIENCE_S = 1_200
"""A job takes two minutes to start on a machine that runs ten times as much as it has cores."""
TABLE_STEPS = ("iceberg_written", "iceberg_committed", "delta_started", "delta_committed")
STEPS = ("claim_noted", "claim_produced", "claimed", "task_started", "initialized", "noted", "produced", "committed")
STEPS += ("delivered",)
"""In the order of a batch; batch n is disturbed at the nth. After "delivered" Spark writes its checkpoint."""
THREE = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
IN_TASK = STEPS[3:8]
MARKET = Market(events=PER_BATCH * (len(TABLE_STEPS + STEPS) + 1), late=0.0, duplicates=0.02, malformed=0.03, seed=17)


class Job:
    """`python -m spark_jobs silver` over what is there, again and again."""

    def __init__(self, bootstrap: str, directory: Path, master: str) -> None:
        self.directory, self.failpoints = directory, directory / "failpoints"
        self.failpoints.mkdir()
        self.config = directory / "silver.yaml"
        spark = {"spark.driver.extraJavaOptions": " ".join(QUICK), "spark.executor.extraJavaOptions": " ".join(QUICK)}
        spark |= {"spark.executorEnv.PYTHONPATH": str(ROOT), "spark.task.maxFailures": "8"}
        options = {
            "bootstrap_servers": bootstrap,
            "kafka": {"default.api.timeout.ms": "120000"},  # the first call waits for a busy machine's JVM
            "topics": ["trades"],
            "checkpoint": str(directory / "checkpoint"),
            "output_topic": "silver",
            "dead_letter_topic": "dead",
            "delivery": "exactly_once",
            "iceberg": str(directory / "tables"),
            "delta": str(directory / "tables" / "delta_trades"),
            "transactions": 2,
            "trigger": "available_now",
            "max_offsets_per_trigger": PER_BATCH,
            "shuffle_partitions": 2,
            "master": master,
            "spark": spark,
        }
        self.config.write_text(yaml.safe_dump(options))

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "spark_jobs", "silver", "--config", str(self.config)]
        environment = {**os.environ, DIRECTORY: str(self.failpoints), "PYTHONPATH": str(ROOT)}
        with (
            open(self.directory / "silver.log", "ab") as log,
            subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True) as job,
        ):
            try:
                yield job
            finally:
                if job.poll() is None:
                    os.killpg(job.pid, signal.SIGKILL)

    def arm(self, place: str) -> None:
        (self.failpoints / place).write_text("wait")

    def release(self, place: str) -> None:
        (self.failpoints / f"{place}.go").touch()

    def wait_for(self, place: str, process: subprocess.Popen[bytes]) -> int:
        """Return the process that stands at the place."""
        assert self.is_reached(place, process), (self.directory / "silver.log").read_text()[-2_000:]
        return int((self.failpoints / f"{place}.reached").read_text())

    def is_reached(self, place: str, process: subprocess.Popen[bytes]) -> bool:
        """Wait until a process stands at the place, or the job has ended."""
        reached = self.failpoints / f"{place}.reached"
        eventually(lambda: reached.exists() or process.poll() is not None, PATIENCE_S)
        return reached.exists()

    def finish(self) -> None:
        """Run until it ends well."""
        for _ in range(4):
            with self.running() as process:
                if process.wait(PATIENCE_S) == 0:
                    return
        raise AssertionError((self.directory / "silver.log").read_text()[-2_000:])


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def check(bootstrap: str, directory: Path) -> None:
    """Assert that each good trade and each bad record is there once, for readers of read_committed."""
    records = market.consume(bootstrap, "trades")
    cut = market.batches(directory / "checkpoint", records)
    good, late, _ = oracle.in_time([market.trades(batch) for batch in cut], duration_ms("10 minutes"))
    assert late == []
    found = [json.loads(record.value or b"") for record in market.consume(bootstrap, "silver")]
    assert market.row_fields(found) == market.trade_fields(good)
    for table in ("trades", "delta_trades"):
        assert market.row_fields(market.table_rows(directory / "tables", table)) == market.trade_fields(good)
    bad = [r for r in records if isinstance(oracle.parse(r.value, r.timestamp_ms), str)]
    places = Counter(f"{record.topic}-{record.partition}-{record.offset}".encode() for record in bad)
    assert Counter(record.key for record in market.consume(bootstrap, "dead")) == places
    audit_trades.run(load_config(audit_trades.AuditTradesConfig, directory / "silver.yaml"))


def feed_market(bootstrap: str) -> None:
    feed.run(
        feed.FeedConfig(bootstrap_servers=bootstrap, trades_topic="trades", market=MARKET, quiet=True, partitions=1)
    )


def test_the_driver_killed_between_two_transactions_of_a_batch(tmp_path: Path) -> None:
    with new_server(tmp_path / "broker") as broker:
        feed_market(broker.bootstrap)
        job = Job(broker.bootstrap, tmp_path, "local[2]")
        kill_the_driver(job, "committed-1")
        job.finish()
        check(broker.bootstrap, tmp_path)


def kill_the_driver(job: Job, place: str) -> None:
    job.arm(place)
    with job.running() as process:
        job.wait_for(place, process)
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    job.release(place)  # a worker has a process group of its own: what stands there goes on as a zombie


def test_the_driver_killed_at_each_step(tmp_path: Path) -> None:
    with new_server(tmp_path / "broker") as broker:
        feed_market(broker.bootstrap)
        job = Job(broker.bootstrap, tmp_path, "local[2]")
        for batch_id, step in enumerate(TABLE_STEPS + STEPS):
            kill_the_driver(job, f"{step}-{batch_id}")
        job.finish()
        check(broker.bootstrap, tmp_path)


def test_an_executor_killed_at_each_step_whose_worker_goes_on(tmp_path: Path) -> None:
    with new_server(tmp_path / "broker") as broker:
        feed_market(broker.bootstrap)
        job = Job(broker.bootstrap, tmp_path, "local-cluster[2,1,1024]")
        places = [f"{step}-{batch_id}" for batch_id, step in enumerate(IN_TASK)]
        for place in places:
            job.arm(place)
        with job.running() as process:
            for place in places:
                worker = job.wait_for(place, process)
                executor = parent(parent(worker))  # the worker's daemon is its child
                os.kill(executor, signal.SIGKILL)
                threading.Timer(5, job.release, [place]).start()
            assert process.wait(PATIENCE_S) == 0, (job.directory / "silver.log").read_text()[-2_000:]
        check(broker.bootstrap, tmp_path)


def test_the_broker_killed_at_each_step(tmp_path: Path) -> None:
    with new_server(tmp_path / "broker") as broker:
        feed_market(broker.bootstrap)
        job = Job(broker.bootstrap, tmp_path, "local[2]")

        def kill_and_start(place: str) -> None:
            broker.stop(signal.SIGKILL)
            job.release(place)
            broker.start()

        run_through(job, kill_and_start)
        check(broker.bootstrap, tmp_path)


def test_the_leader_of_three_killed_at_each_step(tmp_path: Path) -> None:
    with ThreeNodes(KIND, tmp_path, THREE, heap="256m") as cluster:
        for topic in ("trades", "silver", "dead"):
            topics.create(cluster.bootstrap, topic, partitions=1, replicas=3, config={"retention.ms": "-1"})
        feed_market(cluster.bootstrap)
        job = Job(cluster.bootstrap, tmp_path, "local[2]")

        def kill_the_leader(place: str) -> None:
            leader = eventually(lambda: max(leader_of(cluster, "silver"), 0))
            cluster.by_id[leader].stop(signal.SIGKILL)
            job.release(place)
            eventually(lambda: leader_of(cluster, "silver") not in (leader, -1), what="another leader")
            cluster.by_id[leader].start()

        run_through(job, kill_the_leader)
        check(cluster.bootstrap, tmp_path)


def run_through(job: Job, disturb: Callable[[str], None]) -> None:
    """Disturb a job at each step, batch n at the nth. It goes on by itself, or says so and is started again."""
    places = [f"{step}-{batch_id}" for batch_id, step in enumerate(STEPS)]
    for place in places:
        job.arm(place)
    for _ in range(len(places) + 1):
        with job.running() as process:
            while places and job.is_reached(places[0], process):
                disturb(places.pop(0))
            if process.wait(PATIENCE_S) == 0 and not places:
                return
    raise AssertionError((job.directory / "silver.log").read_text()[-2_000:])


def leader_of(cluster: ThreeNodes, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    return admin.list_topics(topic, timeout=10).topics[topic].partitions[0].leader
