"""silver, gold and live on real Spark, held against plain decimals: every trade, every bar, every late event."""

import json
from collections import Counter
from decimal import Decimal, localcontext
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from spark_jobs import audit_bars, audit_trades, feed, gold, live, oracle, silver
from spark_jobs.config import duration_ms
from spark_jobs.events import Trade
from spark_jobs.generator import Market
from spark_jobs.schemas import TRADE
from spark_jobs.trades import parse_trades
from tests.support import market

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
TRADES_FILE = Path(__file__).parents[3] / "shared" / "data" / "XRPETH-aggTrades-2019-10-11.csv.gz"
ROUGH = Market(events=1_400, trades_per_second=40, late=0.04, duplicates=0.03, malformed=0.02, seed=6)
ROUGH_SILVER = {"max_offsets_per_trigger": 500, "watermark": "8 seconds", "delivery": "exactly_once", "transactions": 2}


def spark_options(bootstrap: str, directory: Path, *topics: str, **more: object) -> dict[str, object]:
    """Return what all jobs of a test share: one run over what is there, its files in `directory`."""
    checkpoint = str(directory / "checkpoint")
    common = {"bootstrap_servers": bootstrap, "shuffle_partitions": 2, "trigger": "available_now"}
    return {**common, "topics": list(topics), "checkpoint": checkpoint, **more}


def silver_options(bootstrap: str, directory: Path, topic: str, **more: object) -> dict[str, object]:
    topics = {"output_topic": topic + "-silver", "dead_letter_topic": topic + "-dead"}
    return spark_options(bootstrap, directory, topic, output=str(directory / "trades"), **topics, **more)


def run_silver(bootstrap: str, directory: Path, topic: str, **more: object) -> None:
    silver.run(silver.SilverConfig(**silver_options(bootstrap, directory, topic, **more)))


def gold_options(bootstrap: str, directory: Path, topic: str, **more: object) -> dict[str, object]:
    outputs = {"output": str(directory / "bars"), "late_output": str(directory / "late")}
    return spark_options(bootstrap, directory, topic + "-silver", **outputs, output_topic=topic + "-bars", **more)


def run_gold(bootstrap: str, directory: Path, topic: str, **more: object) -> None:
    gold.run(gold.GoldConfig(**gold_options(bootstrap, directory, topic, **more)))


def rows(spark, path: Path) -> list[dict[str, object]]:
    return [row.asDict() for row in spark.read.parquet(str(path)).collect()]


@pytest.fixture(scope="module")
def rough(server, spark, tmp_path_factory) -> tuple[str, Path]:
    """A market with late, double and damaged trades on topic `rough`, and silver of it in batches of 500."""
    directory = tmp_path_factory.mktemp("rough")
    feed.run(feed.FeedConfig(bootstrap_servers=server.bootstrap, trades_topic="rough", market=ROUGH, quiet=True))
    run_silver(server.bootstrap, directory / "silver", "rough", **ROUGH_SILVER)
    return server.bootstrap, directory


def test_silver_sorts_every_record_into_trades_duplicates_and_dead_letters(spark, rough):
    bootstrap, directory = rough
    cut = market.batches(directory / "silver" / "checkpoint", market.consume(bootstrap, "rough"))
    good, late, _ = oracle.in_time([market.trades(batch) for batch in cut], duration_ms("8 seconds"))
    records = [record for batch in cut for record in batch]
    reasons = Counter(found for r in records if isinstance(found := oracle.parse(r.value, r.timestamp_ms), str))
    assert len(late) > 5
    assert len(reasons) == 4

    expected = market.trade_fields(good)
    assert market.row_fields(rows(spark, directory / "silver" / "trades")) == expected
    on_topic = market.consume(bootstrap, "rough-silver")
    assert market.row_fields([json.loads(record.value) for record in on_topic]) == expected

    dead = market.consume(bootstrap, "rough-dead")
    assert Counter(dict(record.headers)["dlq.reason"].decode() for record in dead) == reasons + Counter(late=len(late))
    by_place = {f"{r.topic}-{r.partition}-{r.offset}".encode(): r for r in records}
    for record in dead:
        origin = by_place[record.key]
        assert (record.value or b"", dict(record.headers)["dlq.key"]) == (origin.value or b"", origin.key)
        assert record.headers[-len(origin.headers) :] == origin.headers
    options = silver_options(bootstrap, directory / "silver", "rough", **ROUGH_SILVER)
    audit_trades.run(audit_trades.AuditTradesConfig(**options))


def test_gold_gives_each_complete_bar_once_and_counts_late_trades(spark, rough):
    bootstrap, directory = rough
    more = {"max_offsets_per_trigger": 400, "watermark": "1 second", "delivery": "exactly_once"}
    run_gold(bootstrap, directory / "gold", "rough", **more)
    cut = market.batches(directory / "gold" / "checkpoint", market.consume(bootstrap, "rough-silver"))
    counted, late, watermark_ms = oracle.in_time([market.trades(batch) for batch in cut], duration_ms("1 second"))
    assert len(late) > 5

    complete = market.by_key(bar for bar in oracle.bars(counted) if bar.end_ms <= watermark_ms)
    assert len(complete) > 100
    assert market.by_key(market.as_bar(row) for row in rows(spark, directory / "gold" / "bars")) == complete
    records = market.consume(bootstrap, "rough-bars")
    assert len(records) == len(complete)
    assert market.bars_on_topic(records) == complete
    assert market.row_fields(rows(spark, directory / "gold" / "late")) == market.trade_fields(late)
    audit_bars.run(audit_bars.AuditBarsConfig(**gold_options(bootstrap, directory / "gold", "rough", **more)))


def test_live_ends_with_the_bars_of_gold_and_those_not_yet_complete(spark, rough):
    bootstrap, directory = rough
    options = {"max_offsets_per_trigger": 400, "watermark": "1 second", "output_topic": "rough-live"}
    live.run(live.LiveConfig(**spark_options(bootstrap, directory / "live", "rough-silver", **options)))
    cut = market.batches(directory / "live" / "checkpoint", market.consume(bootstrap, "rough-silver"))
    counted, _, _ = oracle.in_time([market.trades(batch) for batch in cut], duration_ms("1 second"))
    records = market.consume(bootstrap, "rough-live")
    assert market.bars_on_topic(records) == market.by_key(oracle.bars(counted))
    assert len(records) > len(oracle.bars(counted))


@pytest.mark.skipif(not TRADES_FILE.exists(), reason=f"{TRADES_FILE.name} is not beside the project")
def test_bars_of_real_trades_equal_the_plain_ones(spark, bootstrap, topic, tmp_path):
    options = {"source": "csv", "file": TRADES_FILE, "trades_topic": topic, "quiet": True}
    assert feed.run(feed.FeedConfig(bootstrap_servers=bootstrap, **options)) == 12_477
    run_silver(bootstrap, tmp_path / "silver", topic)
    run_gold(bootstrap, tmp_path / "gold", topic)
    trades = market.trades(market.consume(bootstrap, topic))
    end_ms = max(trade.time_ms for trade in trades) - duration_ms("10 seconds")
    expected = market.by_key(bar for bar in oracle.bars(trades) if bar.end_ms <= end_ms)
    assert sum(bar.width == "1h" for bar in expected.values()) == 59
    assert market.by_key(market.as_bar(row) for row in rows(spark, tmp_path / "gold" / "bars")) == expected
    records = market.consume(bootstrap, topic + "-bars")
    assert len(records) == len(expected)
    assert market.bars_on_topic(records) == expected


GOOD = b'{"v":1,"symbol":"A","trade_id":1,"price":"1.10","quantity":"2","time_ms":1000,"is_buyer_maker":true}'
ODD = [
    GOOD,
    GOOD.replace(b'"1.10"', b"1.10"),
    GOOD.replace(b'"1.10"', b'"9999999999.99999999"'),
    GOOD.replace(b"true", b'"false"'),
    GOOD.replace(b'"v":1', b'"v":"1"'),
    GOOD.replace(b'"A"', '"Ω"'.encode()),
    b" \n" + GOOD.replace(b"}", b',"more":[1,{"a":2}]} '),
    GOOD.replace(b'"1.10"', b'"1.123456789"'),
    GOOD.replace(b'"1.10"', b'"10000000000"'),
    GOOD.replace(b'"1.10"', b'"-1"'),
    GOOD.replace(b'"1.10"', b'"1e3"'),
    GOOD.replace(b'"1.10"', b"1e3"),
    GOOD.replace(b'"1.10"', b'" 1"'),
    GOOD.replace(b'"1.10"', b'{"a":1}'),
    GOOD.replace(b'"1.10"', b"null"),
    GOOD.replace(b'"1.10"', b'"0.00000000"'),
    GOOD.replace(b'"2"', b'""'),
    GOOD.replace(b"1000", b"99999999999999999999999"),
    GOOD.replace(b"1000", b"9223372036854775807"),
    GOOD.replace(b"1000", b"-5"),
    GOOD.replace(b"1000", b"1.5"),
    GOOD.replace(b"1000", b"99999999999999"),
    GOOD.replace(b'_id":1', b'_id":9999999999999999999'),
    GOOD.replace(b"true", b"1"),
    GOOD.replace(b'"A"', b'"A|B"'),
    GOOD.replace(b'"A"', b'"\xff"'),
    GOOD.replace(b'"v":1,', b""),
    GOOD.replace(b'"v":1', b'"v":2'),
    GOOD.replace(b'"v":1', b'"v":{"a":[1, "\xc3\xa9"]}'),
    GOOD.replace(b'"v":1', b'"v":"' + "é".encode() * 5_000 + b'"'),
    GOOD.replace(b'"v":1', b'"v":0.000010'),
    GOOD.replace(b'"v":1', b'"v":-123456789.5'),
    *(
        GOOD.replace(b'"1.10"', text)
        for text in (b"0.0001", b"0.0015", b"9999999.5", b"12345678.5", b"12345678", b"0.0")
    ),
    GOOD[:-1],
    GOOD.replace(b'"', b"'"),
    GOOD.replace(b'"A"', b'"A","symbol":"B"'),
    GOOD + b"}",
    GOOD + b" {}",
    GOOD + b"," + GOOD,
    GOOD + b',{"v":"1"}',
    GOOD + b"] [" + GOOD,
    GOOD + b"/*}*/",
    b"[" + GOOD + b"]",
    b"\xef\xbb\xbf" + GOOD,
    GOOD.decode().encode("utf-16"),
    b"",
    None,
    b"{}",
    b"null",
    b"7",
    b"\x00\x01",
]


def test_a_record_is_judged_as_the_oracle_judges_it(spark):
    records = [(number, value and bytearray(value), 5_000) for number, value in enumerate(ODD)]
    frame = spark.createDataFrame(records, "number INT, value BINARY, ms LONG")
    parsed = parse_trades(frame.withColumn("timestamp", F.timestamp_millis("ms"))).orderBy("number").collect()
    for value, row in zip(ODD, parsed, strict=True):
        expected = oracle.parse(value, 5_000)
        found = row.reason or tuple(row[name] for name in TRADE.names())
        if isinstance(expected, Trade):
            decimals = Decimal(expected.price), Decimal(expected.quantity)
            fields = (expected.symbol, expected.trade_id, *decimals, expected.time_ms, expected.is_buyer_maker)
            assert found == fields, value
        else:
            assert found == expected, value


def test_quotients_are_rounded_half_up_once(spark):
    """Ties, and quotients as near to a tie as sums of so many digits can come."""
    pairs = [
        ("0.0000000050000000", "1.00000000"),
        ("0.0000000049999999", "1.00000000"),
        ("-0.0000000050000000", "1.00000000"),
        ("1.0000000000000000", "3.00000000"),
        ("4999999999999999.9999999999999999", "99999999999999999999.99999999"),
        ("1234567890.1234567890123455", "1.00000000"),
        ("1.0000000049999999", "1.00000000"),
        ("2.0000000099999999", "1.99999999"),
    ]
    frame = spark.createDataFrame(pairs, "n STRING, d STRING").select(
        "n", "d", gold.quotient(F.expr("CAST(n AS DECIMAL(38,16))"), F.expr("CAST(d AS DECIMAL(28,8))")).alias("q")
    )
    with localcontext(oracle.EXACT):
        for row in frame.collect():
            assert row.q == (Decimal(row.n) / Decimal(row.d)).quantize(oracle.EIGHT_PLACES), row
