"""Operating the jobs: what they refuse and how they say it, a stop between batches, metrics."""

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from harness.servers import free_port
from spark_jobs import bronze, chart, outputs, replay, silver
from spark_jobs.bronze import BronzeConfig
from spark_jobs.chart import ChartConfig
from spark_jobs.checkpoints import Directory
from spark_jobs.errors import JobError
from spark_jobs.failpoints import Planted
from spark_jobs.replay import ReplayConfig
from spark_jobs.silver import SilverConfig
from spark_jobs.topics import create_topic
from tests.support import market

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
ROOT = Path(__file__).parents[2]
TRADE = b'{"v":%d,"symbol":"A","trade_id":%d,"price":"1.5","quantity":"2","time_ms":1000,"is_buyer_maker":true}'


@pytest.fixture
def config(bootstrap: str, topic: str, tmp_path: Path) -> dict[str, Any]:
    return {
        "bootstrap_servers": bootstrap,
        "topics": [topic],
        "checkpoint": str(tmp_path / "checkpoint"),
        "output": str(tmp_path / "output"),
        "trigger": "available_now",
        "shuffle_partitions": 2,
    }


def fill(bootstrap: str, topic: str, values: list[bytes]) -> None:
    create_topic(bootstrap, topic, 2, retention_ms="-1")
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value, b"A", timestamp=1_000)
    assert producer.flush(60) == 0


def remove(path: Path) -> None:
    for inner in sorted(path.rglob("*"), reverse=True):
        inner.rmdir() if inner.is_dir() else inner.unlink()
    path.rmdir()


def test_a_job_without_its_checkpoint_refuses_until_reset(spark, bootstrap, topic, tmp_path, config):
    fill(bootstrap, topic, [b"a", b"b"])
    bronze.run(BronzeConfig(**config))
    remove(tmp_path / "checkpoint")
    with pytest.raises(JobError, match=r"checkpoint .* is missing .* --reset-output"):
        bronze.run(BronzeConfig(**config))
    bronze.run(BronzeConfig(**config), reset_output=True)
    assert sorted(bytes(row.value) for row in spark.read.parquet(config["output"]).collect()) == [b"a", b"b"]


@pytest.mark.parametrize("cleanup_policy", ["delete", "compact"])
def test_a_job_whose_only_output_is_a_topic_refuses_without_its_checkpoint(
    spark, bootstrap, topic, tmp_path, config, cleanup_policy
):
    fill(bootstrap, topic, [TRADE % (1, 1), TRADE % (1, 2), TRADE % (1, 2)])
    out = topic + "-out"
    create_topic(bootstrap, out, 2, cleanup_policy=cleanup_policy)
    settings = {**config, "output": None, "output_topic": out, "dead_letter_topic": topic + "-dead"}
    silver.run(SilverConfig(**settings))
    remove(tmp_path / "checkpoint")
    reported = f"checkpoint .* is missing but its output is not, topic {out} on .* holds records: .* --reset-output"
    with pytest.raises(JobError, match=reported):
        silver.run(SilverConfig(**settings))
    stranger = Producer({"bootstrap.servers": bootstrap})
    stranger.produce(out, b"{}", b"no longer made")
    assert stranger.flush(60) == 0
    silver.run(SilverConfig(**settings), reset_output=True)
    found = market.last_values(market.consume(bootstrap, out))
    assert sorted(key for key, value in found.items() if value is not None) == [b"A|1", b"A|2"]
    assert (b"no longer made" in found) == (cleanup_policy == "compact")
    silver.run(SilverConfig(**settings))


@pytest.mark.parametrize("step", ["empty", "remove"])
def test_a_reset_that_was_killed_must_be_repeated(spark, bootstrap, topic, tmp_path, config, step, monkeypatch):
    """With its checkpoint the job would go on after the rows that the reset has removed."""
    fill(bootstrap, topic, [TRADE % (1, 1), TRADE % (1, 2)])
    settings = {**config, "output_topic": topic + "-out", "dead_letter_topic": topic + "-dead"}
    silver.run(SilverConfig(**settings))
    with monkeypatch.context() as killed:
        if step == "empty":
            killed.setattr(outputs, "empty", die)
        else:
            removed = Directory.remove
            killed.setattr(Directory, "remove", lambda it: die() if it.path == config["output"] else removed(it))
        with pytest.raises(Planted):
            silver.run(SilverConfig(**settings), reset_output=True)
    with pytest.raises(JobError, match=r"checkpoint .* is missing but its output"):
        silver.run(SilverConfig(**settings))
    silver.run(SilverConfig(**settings), reset_output=True)
    assert spark.read.parquet(config["output"]).count() == 2
    assert len(market.consume(bootstrap, topic + "-out")) == 2


def die(*_arguments: object) -> None:
    raise Planted


@pytest.mark.parametrize(
    ("damage", "reported"),
    [
        (("metadata", "{"), "metadata is not what Spark wrote"),
        (("metadata", None), "metadata is missing"),
        (("offsets/0", "v1\n{"), "offsets/0 is not what Spark wrote"),
        (("offsets/0", None), "batch 0 was committed, its offsets are missing"),
        (("commits/0", "garbage"), "commits/0 is not what Spark wrote"),
        (("sources/0/0", "{"), "sources/0/0 is not what Spark wrote"),
    ],
)
def test_a_corrupt_checkpoint_is_refused(spark, bootstrap, topic, tmp_path, config, damage, reported):
    fill(bootstrap, topic, [b"a"])
    checkpoint = tmp_path / "checkpoint"
    for name, good in (
        ("metadata", '{"id":"x"}'),
        ("offsets/0", None),
        ("commits/0", "v1\n{}"),
        ("sources/0/0", "\0v1\n{}"),
    ):
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_text(good or 'v1\n{"batchWatermarkMs":0}\n{}')
    file, text = damage
    (checkpoint / file).unlink() if text is None else (checkpoint / file).write_text(text)
    with pytest.raises(JobError, match=f"is corrupt .{reported}.*--reset-output"):
        bronze.run(BronzeConfig(**config))


def test_a_checkpoint_of_other_topics_or_of_another_job_is_refused_and_stays_as_it_was(
    spark, bootstrap, topic, tmp_path, config
):
    other = topic + "-other"
    for name in (topic, other):
        fill(bootstrap, name, [TRADE % (1, 1)])
    bronze.run(BronzeConfig(**config))
    with pytest.raises(JobError, match=f"the checkpoint .* is of {topic}, which topics does not name"):
        bronze.run(BronzeConfig(**{**config, "topics": [other]}))
    assert sorted(p.name for p in (tmp_path / "checkpoint" / "offsets").glob("[0-9]*")) == ["0"]
    bronze.run(BronzeConfig(**{**config, "topics": [topic, other]}))
    assert spark.read.parquet(config["output"]).count() == 2


def test_directories_that_are_not_what_a_job_reads_are_reported(spark, bootstrap, topic, tmp_path, config):
    fill(bootstrap, topic, [])
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(JobError, match="empty is no archive: name the output of a bronze job"):
        replay.run(ReplayConfig(bootstrap_servers=config["bootstrap_servers"], archive=str(empty)))
    spark.range(1).write.parquet(str(tmp_path / "numbers"))
    with pytest.raises(JobError, match="numbers holds no bars: name the output of a gold job"):
        chart.run(ChartConfig(bars=str(tmp_path / "numbers")))
    with pytest.raises(JobError, match=r"a directory of the configuration is not there .*/none"):
        chart.run(ChartConfig(bars=str(tmp_path / "none")))
    (tmp_path / "file").write_text("")
    with pytest.raises(JobError, match=r"Spark failed: \w+Exception: .*file"):
        bronze.run(BronzeConfig(**{**config, "checkpoint": str(tmp_path / "file" / "c")}))


def test_a_missing_topic_and_an_unreachable_broker_are_reported(spark, config):
    with pytest.raises(JobError, match=r"topic .* does not exist on .* create it"):
        bronze.run(BronzeConfig(**config))
    with pytest.raises(JobError, match=r"no topic of .* is of the pattern nothing\.\*: create one"):
        bronze.run(BronzeConfig(**{**config, "topics": [], "topic_pattern": "nothing.*"}))
    with pytest.raises(JobError, match=r"topic_pattern is no regular expression of Java: Unclosed"):
        bronze.run(BronzeConfig(**{**config, "topics": [], "topic_pattern": "["}))
    impatient = {"default.api.timeout.ms": "3000", "request.timeout.ms": "3000"}
    with pytest.raises(JobError, match=r"no broker answers at 127.0.0.1:1 .*is it running"):
        bronze.run(BronzeConfig(**{**config, "bootstrap_servers": "127.0.0.1:1"}, kafka=impatient))


def test_security_options_reach_the_client(spark, config):
    with pytest.raises(JobError, match=r"JAAS|jaas") as error:
        bronze.run(BronzeConfig(**config, kafka={"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}))
    assert "\n" not in str(error.value)


def test_a_schema_version_that_is_not_known_ends_the_job_unless_told_otherwise(spark, bootstrap, topic, config):
    fill(bootstrap, topic, [TRADE % (1, 1), TRADE % (2, 2)])
    settings = {**config, "output_topic": None, "dead_letter_topic": topic + "-dead"}
    with pytest.raises(JobError, match="holds trades of unknown version 2, this job knows version 1"):
        silver.run(SilverConfig(**settings))
    silver.run(SilverConfig(**settings, unknown_version="dead_letter"))
    assert [row.trade_id for row in spark.read.parquet(config["output"]).collect()] == [1]
    (dead,) = market.consume(bootstrap, topic + "-dead")
    assert dict(dead.headers)["dlq.reason"] == b"unknown version 2"


def test_a_stop_waits_for_the_batch_and_metrics_show_it(spark, bootstrap, topic, tmp_path, config):
    fill(bootstrap, topic, [b"%d" % n for n in range(500)])
    port = free_port()
    reported: list[str] = []

    def stop_when_all_is_read() -> None:
        deadline_s = time.monotonic() + 300
        while time.monotonic() < deadline_s and not reported:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as response:
                    text = response.read().decode()
            except OSError:
                text = ""
            if 'spark_job_input_rows_total{job="bronze"} 500.0' in text:
                reported.append(text)
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    stopper = threading.Thread(target=stop_when_all_is_read)
    stopper.start()
    changes = {"trigger": "0 seconds", "max_offsets_per_trigger": 300, "metrics_port": port}
    bronze.run(BronzeConfig(**{**config, **changes}))
    stopper.join()
    assert 'spark_job_batches_total{job="bronze"} 2.0' in reported[0]
    assert 'spark_job_lag_records{job="bronze"} 0.0' in reported[0]
    planned = {p.name for p in (tmp_path / "checkpoint" / "offsets").glob("[0-9]*")}
    assert planned == {p.name for p in (tmp_path / "checkpoint" / "commits").glob("[0-9]*")} == {"0", "1"}


def test_no_java_is_one_line_and_exit_1(config):
    sets = [f"--set={key}={value}" for key, value in config.items() if key != "topics"]
    command = [sys.executable, "-m", "spark_jobs", "bronze", *sets, "--set=topics=[t]"]
    environment = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    result = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**environment, "PATH": "/nonexistent"}
    )
    assert result.returncode == 1
    assert result.stderr.strip().startswith("spark_jobs: Java 17 is needed")
    assert len(result.stderr.strip().splitlines()) == 1
