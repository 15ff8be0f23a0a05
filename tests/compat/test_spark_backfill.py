"""Backfills against the stream that they repeat: row for row with its late trades left out, all trades without."""

import json
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from spark_jobs import backfill, book, bronze, feed, gold, oracle, silver
from spark_jobs.backfill import BookBackfill, GoldBackfill, SilverBackfill
from spark_jobs.book import BookConfig
from spark_jobs.bronze import BronzeConfig
from spark_jobs.config import JobConfig, duration_ms
from spark_jobs.errors import JobError
from spark_jobs.generator import Market
from spark_jobs.gold import GoldConfig
from spark_jobs.schemas import BAR, BOOK, SILVER_TRADE
from spark_jobs.silver import SILVER_COLUMNS, SilverConfig
from spark_jobs.source import read_topics_once
from spark_jobs.trades import parse_trades
from tests.support import market
from tests.support.copying import only_soaked

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
FROM_TOPIC = ["topic", pytest.param("archive", marks=only_soaked)]
"""All backfills read by one class (backfill.Past), which gold's do from both."""
TOPIC = "backfilled"
ROUGH = Market(events=450, trades_per_second=40, late=0.05, duplicates=0.03, malformed=0, seed=3)
CALM = Market(events=450, trades_per_second=15, late=0, duplicates=0.03, malformed=0, seed=3)
WATERMARK = "1 second"
RAW, DEPTH = "again-trades", "again-depth"
RAW_MARKET = Market(events=300, late=0.2, duplicates=0.03, malformed=0.03, depth_per_trade=0.6, gaps=0.03, seed=4)


def options(bootstrap: str, directory: Path, **more: object) -> dict[str, Any]:
    common = {"bootstrap_servers": bootstrap, "shuffle_partitions": 2, "topics": [TOPIC], "trigger": "available_now"}
    return {**common, "checkpoint": str(directory / "checkpoint"), **more}


def outputs(directory: Path) -> dict[str, str]:
    return {"output": str(directory / "bars"), "late_output": str(directory / "late"), "watermark": WATERMARK}


@pytest.fixture(scope="module")
def streamed(server, spark, tmp_path_factory) -> tuple[str, Path]:
    """A market with late and double trades, the bars of its stream in small batches, and its archive."""
    directory = tmp_path_factory.mktemp("backfill")
    feed.run(feed.FeedConfig(bootstrap_servers=server.bootstrap, trades_topic=TOPIC, market=ROUGH, quiet=True))
    small = {"max_offsets_per_trigger": 150, "output_topic": None, **outputs(directory / "gold")}
    gold.run(GoldConfig(**options(server.bootstrap, directory / "gold", **small)))
    archive = str(directory / "archive")
    bronze.run(BronzeConfig(**options(server.bootstrap, directory / "bronze", output=archive)))
    return server.bootstrap, directory


def bars(spark, directory: Path) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, spark.read.parquet(str(directory / "bars")).select(BAR.names()).collect()))


def late(spark, directory: Path) -> list[tuple[int, int]]:
    rows = spark.read.parquet(str(directory / "late")).select("partition", "offset").collect()
    return sorted((row.partition, row.offset) for row in rows)


@pytest.mark.parametrize("source", ["topic", "archive"])
def test_backfill_gives_row_for_row_what_the_stream_gave(spark, streamed, source) -> None:
    bootstrap, directory = streamed
    own = directory / f"from-{source}"
    more: dict[str, Any] = {"stream_checkpoint": str(directory / "gold" / "checkpoint"), **outputs(own)}
    if source == "archive":
        more["archive"] = str(directory / "archive")
    backfill.run_gold(GoldBackfill(**options(bootstrap, own, **more)))
    assert len(late(spark, own)) > 5
    assert late(spark, own) == late(spark, directory / "gold")
    assert bars(spark, own) == bars(spark, directory / "gold")


def test_backfill_of_its_own_has_all_trades(spark, streamed) -> None:
    bootstrap, directory = streamed
    own = directory / "all"
    more = {"archive": str(directory / "archive"), "output_topic": "backfilled-bars", **outputs(own)}
    config = GoldBackfill(**options(bootstrap, own, **more))
    backfill.run_gold(config)
    trades = oracle.distinct(market.trades(market.consume(bootstrap, TOPIC)))
    end_ms = max(trade.time_ms for trade in trades) - duration_ms(WATERMARK)
    expected = market.by_key(bar for bar in oracle.bars(trades) if bar.end_ms <= end_ms)
    found = [market.as_bar(dict(zip(BAR.names(), row, strict=True))) for row in bars(spark, own)]
    assert market.by_key(found) == expected
    assert market.bars_on_topic(market.consume(bootstrap, "backfilled-bars")) == expected


def test_plain_batch_differs_from_the_stream_by_exactly_the_late_trades(spark, streamed) -> None:
    bootstrap, directory = streamed
    rows = read_topics_once(spark, JobConfig(bootstrap_servers=bootstrap), [TOPIC])
    trades = parse_trades(rows, SILVER_TRADE)
    columns = [*SILVER_TRADE.names(), "partition", "offset"]
    one_each = trades.dropDuplicates(["symbol", "trade_id"])
    plain = {row[:3]: row for row in map(tuple, gold.bars_of(one_each).select(BAR.names()).collect())}
    streamed_bars = {row[:3]: row for row in bars(spark, directory / "gold")}
    missing = trades.join(spark.read.parquet(str(directory / "gold" / "late")).select(columns), columns)
    missing_bars = {row[:3]: row for row in map(tuple, gold.bars_of(missing).select(BAR.names()).collect())}
    differing = {key for key, row in streamed_bars.items() if plain[key] != row}
    assert differing == missing_bars.keys() & streamed_bars.keys()
    volume, turnover, count = (BAR.names().index(name) for name in ("volume", "turnover", "trades"))
    for key in differing:
        for column in (volume, turnover, count):
            assert plain[key][column] - streamed_bars[key][column] == missing_bars[key][column]
    assert len(differing) > 5
    assert sum((row[volume] for row in missing_bars.values()), Decimal(0)) > 0


@only_soaked  # more than a minute; the tests above compare the same runs, and say what late trades change
def test_stream_available_now_archive_and_plain_batch_give_the_same_rows_where_nothing_is_late(
    spark, bootstrap, topic, tmp_path
) -> None:
    feed.run(feed.FeedConfig(bootstrap_servers=bootstrap, trades_topic=topic, market=CALM, quiet=True))

    def of(job: str, **more: object) -> dict[str, Any]:
        paths = {"output": str(tmp_path / job / "bars"), "late_output": str(tmp_path / job / "late")}
        return options(bootstrap, tmp_path / job, topics=[topic], output_topic=None, **paths, **more)

    run_until_all_is_read(spark, GoldConfig(**of("stream", max_offsets_per_trigger=150) | {"trigger": "0 seconds"}))
    gold.run(GoldConfig(**of("now")))
    archive = str(tmp_path / "archive")
    bronze.run(BronzeConfig(**options(bootstrap, tmp_path / "bronze", topics=[topic], output=archive)))
    backfill.run_gold(GoldBackfill(**of("backfill", archive=archive)))

    streamed = bars(spark, tmp_path / "stream")
    assert len(list((tmp_path / "stream" / "checkpoint" / "commits").glob("[0-9]*"))) > 3
    assert late(spark, tmp_path / "stream") == []
    assert bars(spark, tmp_path / "now") == streamed
    assert bars(spark, tmp_path / "backfill") == streamed
    trades = parse_trades(read_topics_once(spark, JobConfig(bootstrap_servers=bootstrap), [topic]), SILVER_TRADE)
    one_each = trades.dropDuplicates(["symbol", "trade_id"])
    assert trades.count() > one_each.count()
    end_ms = one_each.agg({"time_ms": "max"}).first()[0] - duration_ms("10 seconds")
    plain = gold.bars_of(one_each).where(f"end_ms <= {end_ms}").select(BAR.names()).collect()
    assert sorted(map(tuple, plain)) == streamed
    assert len(streamed) > 50


def run_until_all_is_read(spark, config: GoldConfig) -> None:
    """Run a job that has no end, and stop it when there is nothing left to do."""
    job = threading.Thread(target=gold.run, args=(config,))
    job.start()
    while not spark.streams.active:
        assert job.is_alive()
        job.join(0.05)
    (query,) = spark.streams.active
    query.processAllAvailable()
    query.stop()
    job.join()


def test_backfill_refuses_what_would_be_no_backfill(spark, streamed, tmp_path) -> None:
    bootstrap, directory = streamed
    with pytest.raises(ValueError, match="a backfill is one batch"):
        GoldBackfill(**options(bootstrap, tmp_path, max_offsets_per_trigger=5))
    with pytest.raises(ValueError, match="output is needed, or a topic"):
        SilverBackfill(**options(bootstrap, tmp_path))
    wrong = {"stream_checkpoint": str(directory / "nothing"), "output": str(tmp_path / "bars")}
    with pytest.raises(JobError, match="nothing holds no committed batch: is this the checkpoint of the job to repeat"):
        backfill.run_gold(GoldBackfill(**options(bootstrap, tmp_path, **wrong)))


# -- silver and book --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def streamed_raw(server, spark, tmp_path_factory) -> tuple[str, Path]:
    """Raw trades and depth, silver and book of them in small batches; then more of both, and the archive of it all."""
    directory = tmp_path_factory.mktemp("again")

    def put(market: Market) -> None:
        topics = {"trades_topic": RAW, "depth_topic": DEPTH}
        feed.run(feed.FeedConfig(bootstrap_servers=server.bootstrap, **topics, market=market, quiet=True))

    def of(job: str, topic: str, **more: object) -> dict[str, Any]:
        output = str(directory / job / "rows")
        return {**options(server.bootstrap, directory / job, output=output, **more), "topics": [topic]}

    put(RAW_MARKET)
    dead = {"output_topic": None, "dead_letter_topic": "again-dead"}
    silver.run(SilverConfig(**of("silver", RAW, max_offsets_per_trigger=120, watermark=WATERMARK, **dead)))
    book.run(BookConfig(**of("book", DEPTH, max_offsets_per_trigger=110)))
    put(Market(events=30, depth_per_trade=1, seed=5))
    bronze.run(BronzeConfig(**{**of("bronze", RAW), "topics": [RAW, DEPTH]}))
    for job in ("silver", "book"):
        assert len(list((directory / job / "checkpoint" / "commits").glob("[0-9]*"))) > 1
    return server.bootstrap, directory


def again(streamed_raw: tuple[str, Path], job: str, topic: str, source: str, **more: object) -> dict[str, Any]:
    """Return the configuration that makes a job's rows again, from the topic or from the archive."""
    bootstrap, directory = streamed_raw
    own = directory / f"{job}-from-{source}"
    if source == "archive":
        more["archive"] = str(directory / "bronze" / "rows")
    checkpoint = str(directory / job / "checkpoint")
    return {
        **options(bootstrap, own, output=str(own / "rows"), stream_checkpoint=checkpoint, **more),
        "topics": [topic],
    }


def rows(spark, path: str | Path, columns: list[str]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in spark.read.parquet(str(path)).select(columns).collect()), key=repr)


def dead_letters(bootstrap: str, topic: str) -> list[tuple[Any, ...]]:
    return sorted((record.key, record.value, record.headers) for record in market.consume(bootstrap, topic))


@only_soaked  # two minutes; the bars of these trades are compared row for row above
@pytest.mark.parametrize("source", ["topic", "archive"])
def test_silver_is_made_again_row_for_row(spark, streamed_raw, source) -> None:
    bootstrap, directory = streamed_raw
    dead = f"again-dead-from-{source}"
    config = SilverBackfill(**again(streamed_raw, "silver", RAW, source, watermark=WATERMARK, dead_letter_topic=dead))
    backfill.run_silver(config)
    streamed = rows(spark, directory / "silver" / "rows", SILVER_COLUMNS)
    assert len(streamed) > 200
    assert rows(spark, config.output, SILVER_COLUMNS) == streamed
    assert dead_letters(bootstrap, dead) == dead_letters(bootstrap, "again-dead")


def test_a_plain_batch_differs_from_silver_by_exactly_the_late_trades(spark, streamed_raw) -> None:
    bootstrap, directory = streamed_raw
    planned = (directory / "silver" / "checkpoint" / "offsets").glob("[0-9]*")
    ends = max(planned, key=lambda path: int(path.name)).read_text().splitlines()[2]
    read = read_topics_once(spark, JobConfig(bootstrap_servers=bootstrap), [RAW], ending_offsets=ends)
    good = parse_trades(read).where("reason IS NULL").select(SILVER_TRADE.names())
    plain = set(map(tuple, good.distinct().collect()))
    late = [
        json.loads(value)
        for _, value, headers in dead_letters(bootstrap, "again-dead")
        if dict(headers)["dlq.reason"] == b"late"
    ]
    late_ids = {(trade["symbol"], trade["trade_id"]) for trade in late}
    streamed = set(rows(spark, directory / "silver" / "rows", SILVER_TRADE.names()))
    assert len(late_ids) > 5
    assert streamed < plain
    assert {row[:2] for row in plain - streamed} == late_ids - {row[:2] for row in streamed}


@pytest.mark.parametrize("source", FROM_TOPIC)
def test_books_are_made_again_row_for_row(spark, streamed_raw, source) -> None:
    _, directory = streamed_raw
    config = BookBackfill(**again(streamed_raw, "book", DEPTH, source))
    backfill.run_book(config)
    streamed = rows(spark, directory / "book" / "rows", BOOK.names())
    assert {row[BOOK.names().index("status")] for row in streamed} >= {"snapshot", "applied", "gap"}
    assert rows(spark, config.output, BOOK.names()) == streamed
