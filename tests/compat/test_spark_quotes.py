"""quotes: the ticks of real-time mode are those of micro-batches and of plain Python, and come before a batch ends."""

import json
import time
from decimal import Decimal

import pyspark
import pytest
from confluent_kafka import Producer

from spark_jobs import depth, feed, latency, oracle, quotes
from spark_jobs.errors import JobError
from spark_jobs.events import Trade
from spark_jobs.generator import Market
from spark_jobs.latency import LatencyConfig
from spark_jobs.quotes import QuotesConfig
from spark_jobs.session import stop_amid_batch
from spark_jobs.source import read_topics
from tests.support import market

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
real_time = pytest.mark.skipif(pyspark.__version__.startswith(("3.", "4.0", "4.1")), reason="real-time mode: Spark 4.2")
MARKET = Market(events=600, depth_per_trade=0.5, snapshot_every=40, malformed=0.03, duplicates=0.02, seed=5)
BAD_DEPTH = [
    b'{"v":1,"symbol":"X","type":"delta","time_ms":1,"last_update_id":2,"bids":[["1","2","3"]],"asks":[]}',
    b'{"v":1,"symbol":"X","type":"delta","time_ms":1,"last_update_id":2,"bids":[[null,"2"]],"asks":[]}',
    b'{"v":1,"symbol":"X","type":"other","time_ms":1,"last_update_id":2,"bids":[],"asks":[]}',
    b'{"v":1,"symbol":"X","type":"delta","time_ms":1,"last_update_id":2,"bids":[]}',
    b'{"v":2}',
    b"",
]


def filled(bootstrap: str, topic: str) -> dict[str, str]:
    """Put a market with bad records on a topic of each kind, of one partition; return the names."""
    names = {"trades_topic": f"{topic}-trades", "depth_topic": f"{topic}-depth"}
    feed.run(feed.FeedConfig(bootstrap_servers=bootstrap, **names, market=MARKET, partitions=1, quiet=True))
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in BAD_DEPTH:
        producer.produce(names["depth_topic"], value, "X", timestamp=MARKET.start_ms)
    assert producer.flush(30) == 0
    return names


def config_of(bootstrap: str, names: dict[str, str], path, suffix: str, **more: object) -> QuotesConfig:
    return QuotesConfig(
        bootstrap_servers=bootstrap,
        topics=list(names.values()),
        depth_topics=[names["depth_topic"]],
        output_topic=f"{names['trades_topic']}-{suffix}",
        dead_letter_topic=f"{names['trades_topic']}-{suffix}-dead",
        output_partitions=1,
        checkpoint=str(path / suffix),
        shuffle_partitions=2,
        **more,
    )


def expected(records: list[market.Record]) -> list[dict[str, object]]:
    """Return the ticks of good records, by plain Python."""
    ticks = []
    for record in records:
        if record.topic.endswith("-trades"):
            trade = oracle.parse(record.value, record.timestamp_ms)
            if isinstance(trade, Trade):
                ticks.append(trade_tick(trade))
        elif record.value not in BAD_DEPTH:
            ticks.append(quote_tick(record))
    return ticks


def trade_tick(trade: Trade) -> dict[str, object]:
    price, quantity = Decimal(trade.price), Decimal(trade.quantity)
    turnover = price * quantity
    size = "large" if turnover >= 100_000 else "medium" if turnover >= 1_000 else "small"
    side = "sell" if trade.is_buyer_maker else "buy"
    common = {"v": 1, "symbol": trade.symbol, "kind": "trade", "time_ms": trade.time_ms, "id": trade.trade_id}
    return common | {"price": price, "quantity": quantity, "side": side, "size_class": size}


def quote_tick(record: market.Record) -> dict[str, object]:
    fields = json.loads(record.value or b"")
    message = depth.parse(record.value, fields["symbol"])
    tick: dict[str, object] = {"v": 1, "symbol": fields["symbol"], "kind": "quote", "time_ms": fields["time_ms"]}
    tick |= {"id": fields["last_update_id"], "is_book": fields["type"] == "snapshot"}
    for name, levels, best in (("bid", message.bids, max), ("ask", message.asks, min)):
        held = [level for level in levels if level[1]]
        if held:
            price, quantity = best(held)
            tick |= {name: depth.decimal_of(price), f"{name}_quantity": depth.decimal_of(quantity)}
    if "bid" in tick and "ask" in tick:
        tick["spread"] = tick["ask"] - tick["bid"]  # type: ignore[operator]
    return tick


DECIMALS = {"price", "quantity", "bid", "bid_quantity", "ask", "ask_quantity", "spread"}


def ticks(records: list[market.Record]) -> dict[str, dict[str, object]]:
    """Return {source: tick} of the topic's records; each source once."""
    found = {}
    for record in records:
        fields = json.loads(record.value or b"")
        source = dict(record.headers)["source"].decode()
        assert source not in found
        found[source] = {name: Decimal(v) if name in DECIMALS else v for name, v in fields.items()}
    return found


def test_ticks_and_dead_letters_are_those_of_plain_python(spark, bootstrap, topic, tmp_path) -> None:
    names = filled(bootstrap, topic)
    config = config_of(bootstrap, names, tmp_path, "batch", trigger="available_now")
    quotes.run(config)
    sources = market.consume(bootstrap, *names.values())
    found = ticks(market.consume(bootstrap, config.output_topic))
    assert_equal_ticks(found.values(), expected(sources))
    assert {tick["size_class"] for tick in found.values() if tick["kind"] == "trade"} == {"small", "medium", "large"}
    dead = market.consume(bootstrap, config.dead_letter_topic)
    places = {f"{record.topic}-{record.partition}-{record.offset}" for record in sources}
    assert {record.key.decode() for record in dead} == places - set(found)
    reasons = {dict(r.headers)["dlq.reason"] for r in dead if dict(r.headers)["dlq.topic"].endswith(b"-depth")}
    wrong = {b"bids are no levels", b"type is not of its type", b"asks is missing", b"unknown version 2", b"empty"}
    assert reasons == wrong
    kept = dict(market.consume(bootstrap, config.output_topic)[0].headers)
    assert kept["schema"] == b"tick.v1"
    assert b"feed" in {name.encode() for name in kept}, "the headers of the source are passed on"


def assert_equal_ticks(found, wanted) -> None:
    assert sorted(map(exact, found)) == sorted(map(exact, wanted)) != []


def exact(tick: dict[str, object]) -> str:
    """Return all fields in one order, decimals without trailing zeros."""
    return repr(sorted((n, str(v.normalize() if isinstance(v, Decimal) else v)) for n, v in tick.items()))


@real_time
def test_real_time_mode_gives_the_same_ticks_before_its_batch_ends(spark, bootstrap, topic, tmp_path) -> None:
    names = filled(bootstrap, topic)
    config = config_of(bootstrap, names, tmp_path, "quick", real_time="1 hour")
    quotes.require_slots(spark, config)
    quotes.create_missing_topics(spark, config, [config.output_topic, config.dead_letter_topic], 1, {})
    query = quotes.writer(read_topics(spark, config), config).start()
    try:
        sources = market.consume(bootstrap, *names.values())
        wanted = expected(sources)
        found: list[market.Record] = []
        end_s = time.monotonic() + 120
        while len(found) < len(wanted):
            assert time.monotonic() < end_s, f"{len(found)} of {len(wanted)} ticks came"
            assert query.isActive, query.exception()
            found = market.consume(bootstrap, config.output_topic)
        assert query.recentProgress == []
    finally:
        stop_amid_batch(query)
    assert_equal_ticks(ticks(found).values(), wanted)
    latencies = [int(dict(record.headers)["latency_ms"]) for record in found]
    assert min(latencies) > 0, "the market's timestamps are of another year"


@real_time
def test_more_partitions_than_tasks_are_refused(spark, bootstrap, topic, tmp_path) -> None:
    names = {"trades_topic": f"{topic}-trades", "depth_topic": f"{topic}-depth"}
    for name in names.values():
        quotes.create_missing_topics(spark, config_of(bootstrap, names, tmp_path, "q"), [name], 2, {})
    with pytest.raises(JobError, match=r"have 4 partitions, local.* runs 2 tasks at once"):
        quotes.run(config_of(bootstrap, names, tmp_path, "q"))


@real_time
def test_latency_measures_both_modes_and_draws_them(spark, bootstrap, tmp_path, capsys) -> None:
    page = tmp_path / "latency.html"
    latency.run(LatencyConfig(bootstrap_servers=bootstrap, rate=200, warm_up_s=4, seconds=3, page=page))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["mode", "real_time", "micro_batches"]
    ticks_counted = [int(line.split()[2].replace(",", "")) for line in lines[1:]]
    assert all(100 <= count <= 610 for count in ticks_counted), "200 a second, fewer where the machine is busy"
    p50_real_time, p50_batches = (float(line.split()[3]) for line in lines[1:])
    assert 0 < p50_real_time < p50_batches
    assert "real_time" in page.read_text()
