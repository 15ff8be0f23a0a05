"""Spark killed in the middle of a batch, then the broker: nothing lost, nothing twice."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from spark_jobs import feed, gold, oracle, silver
from spark_jobs.config import duration_ms
from spark_jobs.errors import JobError
from spark_jobs.generator import Market
from spark_jobs.parquet_batches import ATTEMPTS
from tests.compat.conftest import QUICK_JVM, new_server
from tests.support import market

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
MARKET = Market(events=1_200, late=0.02, duplicates=0.02, malformed=0.01, seed=11)


def wait_for(happened: Callable[[], bool], process: subprocess.Popen[bytes] | None = None) -> None:
    end_s = time.monotonic() + 300
    while not happened():
        assert time.monotonic() < end_s, "it did not happen"
        assert process is None or process.poll() is None, "the job ended by itself"
        time.sleep(0.002)


def has_begun(output: Path) -> bool:
    """Return whether batch 1 is being written, or is there already."""
    return any((output / ATTEMPTS).glob("_1-*")) or (output / "batch_id=1").exists()


def parquet(spark, path: Path) -> list[dict[str, object]]:
    return [row.asDict() for row in spark.read.parquet(str(path)).collect()]


def test_jobs_and_broker_killed_mid_batch_lose_nothing_and_repeat_nothing(spark, tmp_path):
    with new_server(tmp_path / "broker") as broker:
        options = {"bootstrap_servers": broker.bootstrap, "trades_topic": "trades", "quiet": True}
        feed.run(feed.FeedConfig(**options, market=MARKET))
        killed_silver(spark, broker.bootstrap, tmp_path)
        gold_over_a_killed_broker(spark, broker, tmp_path)


def killed_silver(spark, bootstrap: str, directory: Path) -> None:
    """Kill the job, its JVM with it, when batch 1 has begun to write; start it again, and look at what is there."""
    options = {
        "bootstrap_servers": bootstrap,
        "topics": ["trades"],
        "checkpoint": str(directory / "silver-checkpoint"),
        "output": str(directory / "silver"),
        "output_topic": "silver",
        "dead_letter_topic": "dead",
        "trigger": "available_now",
        "max_offsets_per_trigger": 700,
        "shuffle_partitions": 2,
    }
    config = directory / "silver.yaml"
    config.write_text(
        yaml.safe_dump({**options, "master": "local[2]", "spark": {"spark.driver.extraJavaOptions": QUICK_JVM}})
    )
    command = [sys.executable, "-m", "spark_jobs", "silver", "--config", str(config)]
    root = Path(__file__).parents[2]
    with (
        open(directory / "silver.log", "wb") as log,
        subprocess.Popen(command, cwd=root, stdout=log, stderr=log, start_new_session=True) as process,
    ):
        wait_for(lambda: has_begun(directory / "silver"), process)
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "it ended before it was killed"

    silver.run(silver.SilverConfig(**options))
    records = market.consume(bootstrap, "trades")
    cut = market.batches(directory / "silver-checkpoint", records)
    good, late, _ = oracle.in_time([market.trades(batch) for batch in cut], duration_ms("10 minutes"))
    assert late == []
    expected = market.trade_fields(good)
    assert market.row_fields(parquet(spark, directory / "silver")) == expected
    assert market.row_fields(list(market.last_values(market.consume(bootstrap, "silver")).values())) == expected
    bad = {
        f"{r.topic}-{r.partition}-{r.offset}".encode()
        for r in records
        if isinstance(oracle.parse(r.value, r.timestamp_ms), str)
    }
    assert {record.key for record in market.consume(bootstrap, "dead")} == bad


def gold_over_a_killed_broker(spark, broker, directory: Path) -> None:
    """Kill the broker when batch 1 has begun to write, start it again; the job goes on, or says so and is started."""
    options = {
        "bootstrap_servers": broker.bootstrap,
        "topics": ["silver"],
        "checkpoint": str(directory / "gold-checkpoint"),
        "output": str(directory / "bars"),
        "late_output": str(directory / "late"),
        "trigger": "available_now",
        "max_offsets_per_trigger": 700,
        "shuffle_partitions": 2,
    }

    def kill_the_broker() -> None:
        wait_for(lambda: has_begun(directory / "bars"))
        broker.stop(signal.SIGKILL)
        broker.start()

    killer = threading.Thread(target=kill_the_broker)
    killer.start()
    try:
        gold.run(gold.GoldConfig(**options))
    except JobError:
        killer.join()
        gold.run(gold.GoldConfig(**options))
    killer.join()
    cut = market.batches(directory / "gold-checkpoint", market.consume(broker.bootstrap, "silver"))
    counted, late, watermark_ms = oracle.in_time([market.trades(batch) for batch in cut], duration_ms("10 seconds"))
    expected = market.by_key(bar for bar in oracle.bars(counted) if bar.end_ms <= watermark_ms)
    assert market.by_key(market.as_bar(row) for row in parquet(spark, directory / "bars")) == expected
    assert market.bars_on_topic(market.consume(broker.bootstrap, "bars")) == expected
    assert market.row_fields(parquet(spark, directory / "late")) == market.trade_fields(late)
