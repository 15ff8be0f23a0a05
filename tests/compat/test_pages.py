"""The pages that need Spark, run from an empty directory: the tutorial, the walk through all jobs, a Spark cluster."""

import os
import shutil
from pathlib import Path

import pytest

from tests.support.pages import ROOT, read

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.ours]


@pytest.fixture(scope="module")
def connector() -> str:
    """Return Spark's option that names the jars of the connector, which the pages have Spark download."""
    if shutil.which("java") is None:
        pytest.skip("Java 17 is missing")
    from spark_jobs.connector import are_fetched, jars

    if not are_fetched():
        pytest.skip("Spark's Kafka connector is missing: run `make spark-jars`")
    return f'"spark.jars", "{",".join(map(str, jars()))}"'


def test_the_tutorial_leads_to_a_query_of_spark(connector: str, tmp_path: Path) -> None:
    packages = '"spark.jars.packages", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"'
    page = ROOT / "docs" / "tutorial.md"
    assert packages in page.read_text()
    printed = read(page, tmp_path, {packages: connector})
    rows = [line.split("|")[1:3] for line in printed[-1].splitlines() if "USDT" in line]
    counts = {symbol.strip(): int(count) for symbol, count in rows}
    assert counts.keys() == {"BTCUSDT", "ETHUSDT"}
    assert sum(counts.values()) == 1_001


@pytest.mark.usefixtures("connector")
@pytest.mark.skipif("KAFKAPY_SOAK_SEEDS" not in os.environ, reason="`make soak`: six JVMs, 90 s of CPU")
def test_silver_and_gold_run_on_a_master_with_two_workers(tmp_path: Path) -> None:
    from spark_jobs.connector import jars

    packages = "--packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
    page = ROOT / "docs" / "howto" / "spark_cluster.md"
    assert packages in page.read_text()
    printed = read(page, tmp_path, {packages: f"--jars {','.join(map(str, jars()))}"})
    *_, found, submitted = filter(None, printed)
    assert found.endswith(".parquet\n")
    assert "bars_submitted" in submitted


@pytest.mark.usefixtures("connector")
@pytest.mark.skipif(
    "KAFKAPY_SOAK_SEEDS" not in os.environ, reason="`make soak`: eleven jobs, each with a JVM of its own"
)
def test_the_walk_through_all_jobs_of_spark(tmp_path: Path) -> None:
    here = {"../.venv/bin/kafkapy": "kafkapy", "PYTHONPATH=.. ../.venv/bin/python": "python"}
    page = ROOT / "spark_jobs" / "README.md"
    assert [sentence for sentence in here if sentence not in page.read_text()] == []
    read(page, tmp_path, here, timeout_s=1_800)
    walked = tmp_path / "directory"
    assert (walked / "bars.html").stat().st_size > 0
    assert rows(walked / "o" / "bars") == rows(walked / "o" / "bars-again") != []


def rows(directory: Path) -> list[str]:
    """Return the rows of Parquet files below a directory, in an order of their own."""
    from pyarrow.parquet import read_table

    found = [row for path in directory.rglob("*.parquet") for row in read_table(path, partitioning=None).to_pylist()]
    return sorted(map(repr, found))
