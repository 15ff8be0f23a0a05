"""What quotes, latency and the topics' sink can be told, and which Spark they need."""

import os
from pathlib import Path

import pyspark
import pytest
from pydantic import ValidationError

from spark_jobs import connector, latency, picture
from spark_jobs.audit_rows import on_topic, read_topics
from spark_jobs.connector import jars, require_spark
from spark_jobs.errors import JobError
from spark_jobs.gold import GoldConfig
from spark_jobs.latency import Measured
from spark_jobs.quotes import QuotesConfig, with_slots
from spark_jobs.sink import fence_earlier, topic_sink

QUOTES = {"bootstrap_servers": "b:1", "topics": ["trades", "depth"], "checkpoint": "c"}
GOLD = {"bootstrap_servers": "b:1", "topics": ["t"], "checkpoint": "c"}


def test_real_time_is_the_default_and_ends_with_null_or_available_now() -> None:
    assert QuotesConfig(**QUOTES).is_real_time
    assert not QuotesConfig(**QUOTES, real_time=None).is_real_time
    assert not QuotesConfig(**QUOTES, trigger="available_now").is_real_time


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"real_time": "4 seconds"}, "Spark takes 5 seconds and longer"),
        ({"max_offsets_per_trigger": 5}, "have no meaning with real_time"),
        ({"min_partitions": 5}, "have no meaning with real_time"),
    ],
)
def test_what_real_time_mode_cannot_do_is_refused(more: dict[str, object], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        QuotesConfig(**QUOTES, **more)
    QuotesConfig(**QUOTES, **{"real_time": None, **more} if "real_time" not in more else {"real_time": "5 seconds"})


def test_a_local_session_has_a_thread_for_each_partition() -> None:
    assert with_slots(QuotesConfig(**QUOTES)).master == "local[64]"
    assert with_slots(QuotesConfig(**QUOTES, master="spark://h:7077")).master == "spark://h:7077"


@pytest.mark.parametrize(("here", "is_enough"), [("4.2.0", True), ("4.10.1", True), ("5.0.0", True), ("4.1.2", False)])
def test_an_older_spark_is_refused_with_what_to_do(monkeypatch, here: str, is_enough: bool) -> None:
    monkeypatch.setattr(pyspark, "__version__", here)
    if is_enough:
        require_spark("quotes", "4.2")
        return
    with pytest.raises(JobError, match=r"quotes needs PySpark 4.2 or newer, 4.1.2 is installed: pip install .*or wait"):
        require_spark("quotes", "4.2", "wait")


def test_exactly_once_wants_the_security_options_of_its_own_client() -> None:
    secure = {"kafka": {"security.protocol": "SASL_SSL"}, "delivery": "exactly_once"}
    with pytest.raises(ValidationError, match="give its security options under producer, too"):
        GoldConfig(**GOLD, **secure)
    GoldConfig(**GOLD, **secure, producer={"security.protocol": "SASL_SSL"})


@pytest.mark.parametrize(
    ("version", "found"),
    [
        ("3.5.7", {"2.12:3.5.7", "3.4.1", "2.12:3.5.7 token", "2.11.1"}),
        ("4.0.0", {"2.13:4.0.0", "3.9.0", "2.13:4.0.0 token", "2.12.0"}),
        ("4.2.0", {"2.13:4.2.0", "3.9.2", "2.13:4.2.0 token", "2.13.1"}),
    ],
)
def test_the_connector_is_of_the_installed_spark(version: str, found: set[str]) -> None:
    names = set()
    for _, artifact, number in connector.coordinates(version):
        scala = artifact.rpartition("_")[2] + ":" if "_" in artifact else ""
        names.add(f"{scala}{number}" + (" token" if "token" in artifact else ""))
    assert names == found


def test_quantiles_and_table_of_latencies() -> None:
    measured = Measured("c", "real_time", [float(n) for n in range(1, 201)])
    assert (measured.quantile(0.5), measured.quantile(0.99), measured.quantile(1)) == (101.0, 199.0, 200.0)
    assert latency.table([measured])[1].split() == ["c", "real_time", "200", "101.0", "199.0", "200.0"]


def test_the_histogram_makes_its_folder_and_a_page_that_cannot_be_written_is_a_line(tmp_path) -> None:
    page = tmp_path / "pages" / "latency.html"
    picture.draw_histogram({"c, real_time": [2.0, 3.0]}, "t", page)
    assert '"series":{"c, real_time":[0.0,50.0,0.0,0.0,50.0,0.0]}' in page.read_text()
    with pytest.raises(JobError, match="cannot be written"):
        picture.draw_histogram({"c, real_time": [2.0]}, "t", page / "under a file.html")


def test_a_connector_that_cannot_be_fetched_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, line in (("mvn", "exit 7"), ("java", "echo 'openjdk version \"17.0.1\"' >&2")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(connector, "__file__", str(tmp_path / "spark_jobs" / "connector.py"))  # .tools is beside it
    with pytest.raises(JobError, match=r"connector of Spark 9\.9\.9 cannot be fetched \(mvn exit 7\): can Maven"):
        jars("9.9.9")


def test_options_of_the_other_client_are_one_line_that_says_where_they_belong() -> None:
    config = GoldConfig(**GOLD, delivery="exactly_once", producer={"sasl.jaas.config": "x"})
    told = r"^b:1.*: Java JAAS configuration is not supported, .* \(producer takes librdkafka's options, not those of"
    with pytest.raises(JobError, match=told), topic_sink(config, "gold", {"bars": None}, reset_output=False):
        pass
    with pytest.raises(JobError, match=told):
        fence_earlier(config, "gold", "bars")
    with pytest.raises(JobError, match=told):
        list(read_topics(config, {("t", 0): 1}))
    with pytest.raises(JobError, match=told):
        list(on_topic(config, "t"))
