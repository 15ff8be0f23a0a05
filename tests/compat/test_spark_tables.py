"""silver and gold to Iceberg and Delta: each row is there once, whatever step of a batch ends a job."""

import json
from pathlib import Path
from typing import Any

import pytest

from spark_jobs import feed, gold, oracle, silver
from spark_jobs.config import duration_ms
from spark_jobs.errors import JobError
from spark_jobs.failpoints import DIRECTORY
from spark_jobs.generator import Market
from tests.support import market
from tests.support.spark_job import needs_spark4

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    needs_spark4,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]
MARKET = Market(events=450, trades_per_second=40, late=0.02, duplicates=0.03, malformed=0.02, seed=23)
SILVER_STEPS = ("iceberg_written-0", "iceberg_committed-1", "delta_committed-1", "delta_started-2")
GOLD_STEPS = ("delta_committed-0", "iceberg_committed-1", "delivered-1")


def run_through(run: Any, steps: tuple[str, ...], failpoints: Path) -> None:
    """Run a job that fails at each of the steps, until it ends well."""
    for step in steps:
        (failpoints / step).write_text("raise")
    for _ in steps:
        with pytest.raises(JobError, match="Spark failed"):
            run()
    run()
    assert all((failpoints / f"{step}.passed").exists() for step in steps)


def test_each_batch_is_in_each_table_once_whatever_ends_it(spark, bootstrap, topic, tmp_path, monkeypatch) -> None:
    feed.run(feed.FeedConfig(bootstrap_servers=bootstrap, trades_topic=topic, market=MARKET, quiet=True))
    monkeypatch.setenv(DIRECTORY, str(tmp_path / "failpoints"))
    (tmp_path / "failpoints").mkdir()
    common = {"bootstrap_servers": bootstrap, "shuffle_partitions": 2, "trigger": "available_now"}
    common |= {"max_offsets_per_trigger": 170, "iceberg": str(tmp_path / "o"), "delivery": "exactly_once"}
    of_silver = {**common, "output_topic": f"{topic}-silver", "dead_letter_topic": f"{topic}-dead", "transactions": 1}
    checkpoints = {job: tmp_path / job for job in ("silver", "gold")}
    trades = silver.SilverConfig(
        **of_silver, topics=[topic], checkpoint=str(checkpoints["silver"]), delta=str(tmp_path / "o" / "delta_trades")
    )
    run_through(lambda: silver.run(trades), SILVER_STEPS, tmp_path / "failpoints")
    cut = market.batches(checkpoints["silver"], market.consume(bootstrap, topic))
    good, _, _ = oracle.in_time([market.trades(batch) for batch in cut], duration_ms("10 minutes"))
    for table in ("trades", "delta_trades"):
        assert market.row_fields(market.table_rows(tmp_path / "o", table)) == market.trade_fields(good)

    bars = gold.GoldConfig(
        **common,
        topics=[f"{topic}-silver"],
        checkpoint=str(checkpoints["gold"]),
        delta=str(tmp_path / "o" / "delta_bars"),
        output_topic=f"{topic}-bars",
        watermark="1 second",
        maintain_every=2,
    )
    run_through(lambda: gold.run(bars), GOLD_STEPS, tmp_path / "failpoints")
    cut = market.batches(checkpoints["gold"], market.consume(bootstrap, f"{topic}-silver"))
    counted, _, watermark_ms = oracle.in_time([market.trades(batch) for batch in cut], duration_ms("1 second"))
    complete = market.by_key(bar for bar in oracle.bars(counted) if bar.end_ms <= watermark_ms)
    assert len(complete) > 20
    for table in ("bars", "delta_bars"):
        assert market.by_key(map(market.as_bar, market.table_rows(tmp_path / "o", table))) == complete
    on_topic = [json.loads(record.value or b"") for record in market.consume(bootstrap, f"{topic}-bars")]
    assert market.by_key(map(market.as_bar, on_topic)) == complete
