"""Every job on the same input against both brokers: what they write is the same, row for row.

Runs with KAFKAPY_COMPAT_SERVER=both alone: it says nothing that the other tests do not hold against the oracle, on
either broker, but costs as much as all of them.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from harness.servers import ApacheKafka, Kafkapy, Server
from spark_jobs import audit, backfill, book, bronze, feed, gold, live, replay, silver
from spark_jobs.generator import Market
from spark_jobs.source import read_archive
from tests.support import market

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
    pytest.mark.skipif(
        os.environ.get("KAFKAPY_COMPAT_SERVER") != "both", reason="KAFKAPY_COMPAT_SERVER=both runs it, for minutes"
    ),
]
ODD = {"late": 0.04, "duplicates": 0.03, "malformed": 0.02, "gaps": 0.02}
ROUGH = Market(events=2_000, trades_per_second=40, depth_per_trade=0.3, seed=6, **ODD)
CLEAN = Market(events=2_000, trades_per_second=40, seed=7, **{**ODD, "malformed": 0})
SMALL = {"max_offsets_per_trigger": 500}
Rows = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def written(spark, tmp_path_factory) -> tuple[dict[str, Rows], dict[str, Rows]]:
    """What all jobs wrote, by output, on kafkapy and on Apache Kafka."""
    found = []
    for kind in (Kafkapy, ApacheKafka):
        directory = tmp_path_factory.mktemp(kind.__name__)
        with kind(directory / "data") as server:
            found.append(run_all(spark, server, directory))
    return found[0], found[1]


def run_all(spark, server: Server, directory: Path) -> dict[str, Rows]:
    """Feed a market and run every job on it, in small batches; `clean` is fed in the form that silver writes."""
    for topic, made_up in (("trades", ROUGH), ("clean", CLEAN)):
        feed.run(feed.FeedConfig(bootstrap_servers=server.bootstrap, trades_topic=topic, market=made_up, quiet=True))

    def options(job: str, topic: str, **more: object) -> dict[str, Any]:
        common = {"bootstrap_servers": server.bootstrap, "shuffle_partitions": 2, "trigger": "available_now"}
        places = {"checkpoint": str(directory / job / "checkpoint"), "output": str(directory / job / "output")}
        return {**common, **places, "topics": [topic], **more}

    late = {"watermark": "1 second", "late_output": str(directory / "gold" / "late")}
    live_options = options("live", "clean", **SMALL, watermark="1 second")
    del live_options["output"]
    bronze_options = options("bronze", "clean")
    silver.run(silver.SilverConfig(**options("silver", "trades", **SMALL, watermark="8 seconds")))
    gold.run(gold.GoldConfig(**options("gold", "clean", **SMALL, **late)))
    live.run(live.LiveConfig(**live_options))
    book.run(book.BookConfig(**options("book", "depth", **SMALL, book_topic="books")))
    bronze.run(bronze.BronzeConfig(**bronze_options))
    stream = str(directory / "gold" / "checkpoint")
    archive = {"archive": bronze_options["output"], "stream_checkpoint": stream, "watermark": "1 second"}
    backfill.run_gold(backfill.GoldBackfill(**options("backfill", "clean", **archive, output_topic="backfilled")))
    shared = {"bootstrap_servers": server.bootstrap, "shuffle_partitions": 2}
    replay.run(replay.ReplayConfig(**shared, archive=bronze_options["output"]))

    rows = {
        f"{job} rows": in_parquet(spark, directory / job / "output") for job in ("silver", "gold", "book", "backfill")
    }
    rows["gold late"] = in_parquet(spark, directory / "gold" / "late")
    rows["bronze rows"] = plain(read_archive(spark, bronze_options["output"]).collect())
    rows["audit"] = [repr(one) for one in audit.audit(spark, audit.AuditConfig(**bronze_options))]
    for topic in ("silver_trades", "dead_letters", "bars", "live_bars", "books", "backfilled", "clean-replay"):
        rows[f"topic {topic}"] = on_topic(server, topic)
    return rows


def in_parquet(spark, path: Path) -> Rows:
    """Return the rows with the batch that wrote them, without the time at which a sink wrote a record."""
    frame = spark.read.parquet(str(path))
    return plain(frame.select(sorted(frame.columns)).collect())


def plain(rows: list[Any]) -> Rows:
    return sorted((tuple(row) for row in rows), key=repr)


def on_topic(server: Server, topic: str) -> Rows:
    """Return (partition, key, value, headers); offsets and timestamps too where replay set them."""
    rows = []
    for record in market.consume(server.bootstrap, topic):
        place = (record.offset, record.timestamp_ms) if topic.endswith("-replay") else ()
        rows.append((record.partition, *place, record.key, record.value, record.headers))
    return sorted(rows, key=repr)


OUTPUTS = [
    *("silver rows", "gold rows", "gold late", "book rows", "bronze rows", "backfill rows", "audit"),
    *("topic silver_trades", "topic dead_letters", "topic bars", "topic live_bars", "topic books"),
    *("topic backfilled", "topic clean-replay"),
]


@pytest.mark.parametrize("output", OUTPUTS)
def test_both_brokers_give_the_same_rows(written, output: str) -> None:
    ours, theirs = written
    assert len(ours[output]) > (10 if output != "audit" else 2)
    assert ours[output] == theirs[output]


def test_every_output_is_compared(written) -> None:
    assert sorted(written[0]) == sorted(OUTPUTS)
