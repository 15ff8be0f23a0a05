"""Books as each second begins: by records, by timers for silent symbols, and after kill -9 of the driver."""

import json
from copy import deepcopy
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from spark_jobs import audit_book
from spark_jobs.audit_book import AuditBookConfig
from spark_jobs.book import BookConfig
from spark_jobs.book import run as run_book
from spark_jobs.depth import Delta, DepthMessage
from spark_jobs.errors import JobError
from spark_jobs.latency import delete_topics
from spark_jobs.topics import create_topic
from tests.support import market
from tests.support.copying import only_soaked
from tests.support.eventually import eventually
from tests.support.exchange import Exchange, deliver
from tests.support.spark_job import kill_at, needs_spark4

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    needs_spark4,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
WATERMARK_MS, FORGET_MS = 2_000, 7_000
Sent = list[tuple[str, DepthMessage, int]]
"""(symbol, message, event time), in the order of the one partition."""


def played(exchanges: dict[str, Exchange], counts: dict[str, int]) -> Sent:
    """Return messages of several symbols by their time; one with fewer falls silent before the end."""
    sent: Sent = []
    for symbol, exchange in exchanges.items():
        exchange.time_ms -= exchange.time_ms % 1000 - 137
        for message in deliver(exchange, counts[symbol]).messages:
            last_ms = sent[-1][2] if sent and sent[-1][0] == symbol else exchange.time_ms
            sent.append((symbol, message, message.time_ms if isinstance(message, Delta) else last_ms))
    return sorted(sent, key=lambda one: one[2])


def put(bootstrap: str, topic: str, sent: Sent) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for symbol, message, time_ms in sent:
        producer.produce(topic, message.to_json(), symbol, timestamp=time_ms)
    assert producer.flush(60) == 0


def config_of(bootstrap: str, topic: str, path: Path) -> dict[str, Any]:
    return {
        "bootstrap_servers": bootstrap,
        "topics": [topic],
        "checkpoint": str(path / "checkpoint"),
        "output": str(path / "book"),
        "seconds_output": str(path / "seconds"),
        "seconds_topic": f"{topic}-seconds",
        "delivery": "exactly_once",
        "transactions": 1,
        "watermark": f"{WATERMARK_MS} milliseconds",
        "forget_after": f"{FORGET_MS} milliseconds",
        "trigger": "available_now",
        "max_offsets_per_trigger": 200,
        "shuffle_partitions": 2,
    }


def expected(
    sent: Sent, batches: list[tuple[int, int]], update_ids: dict[str, dict[int, int | None]]
) -> list[tuple[str, int, int]]:
    """Return (symbol, second, update id) of all seconds: the rule applied second by second.

    A second of a symbol is told with the update id that its book is at, if whole, before the first message that is not
    before the second, or at the end of the first batch whose watermark has passed it; if its last message then is not
    older than FORGET_MS. `batches` has the end offset and the watermark of each.
    """
    found = []
    for symbol in update_ids:
        own = [
            (offset, time_ms)
            for offset, (name, message, time_ms) in enumerate(sent)
            if name == symbol and isinstance(message, Delta)
        ]
        first_ms, end_ms = own[0][1], max(time_ms for _, time_ms in own) + FORGET_MS
        for second in range(first_ms // 1000 * 1000 + 1000, end_ms + 1, 1000):
            by_record = min((offset for offset, time_ms in own if time_ms >= second), default=len(sent))
            by_timer = next((end for end, watermark in batches if watermark > second), len(sent) + 1)
            until = min(by_record, by_timer)
            if until > len(sent) or (until == len(sent) and by_timer > len(sent)):
                continue  # nothing has come by that says that this second began
            known = [(offset, update_id) for offset, update_id in update_ids[symbol].items() if offset < until]
            if known and known[-1][1] is not None:
                found.append((symbol, second, known[-1][1]))
    return sorted(found)


def check(spark, bootstrap: str, topic: str, path: Path, exchanges: dict[str, Exchange], sent: Sent) -> None:
    rows = [row.asDict() for row in spark.read.parquet(str(path / "book")).orderBy("offset").collect()]
    at: dict[str, dict[int, int | None]] = {symbol: {} for symbol in exchanges}
    for row in sorted(rows, key=lambda row: (row["offset"], row["update_id"])):
        if row["status"] in ("snapshot", "applied", "recovered"):
            at[row["symbol"]][row["offset"]] = row["update_id"]
        elif row["status"] in ("gap", "waiting", "crossed"):
            at[row["symbol"]][row["offset"]] = None
    seconds = [row.asDict() for row in spark.read.parquet(str(path / "seconds")).collect()]
    told = sorted((row["symbol"], row["time_ms"], row["update_id"]) for row in seconds)
    batches = [(ends[topic]["0"], watermark) for ends, watermark in market.planned(path / "checkpoint")]
    assert told == expected(sent, batches, at)
    assert {symbol for symbol, _, _ in told} == set(exchanges)
    for row in seconds:
        truth = exchanges[row["symbol"]].quotes_at(row["update_id"])
        assert truth is not None
        assert {name: row[name] for name in truth} == truth
        bids, asks = exchanges[row["symbol"]].history[row["update_id"]]
        assert levels(row["bids"]) == sorted(bids.items(), reverse=True)[:10]
        assert levels(row["asks"]) == sorted(asks.items())[:10]
    on_topic = [json.loads(record.value or b"") for record in market.consume(bootstrap, f"{topic}-seconds")]
    assert sorted((one["symbol"], one["time_ms"], one["update_id"]) for one in on_topic) == told
    for symbol in exchanges:
        own = [one["time_ms"] for one in on_topic if one["symbol"] == symbol]
        assert own == sorted(own), "in order"


def levels(side: list[list[str]]) -> list[tuple[Decimal, Decimal]]:
    return [(Decimal(price), Decimal(quantity)) for price, quantity in side]


@only_soaked  # the killed driver below writes the same seconds, by the same rule
def test_each_second_has_the_exchanges_book_over_restarts_and_for_silent_symbols(
    spark, bootstrap, topic, tmp_path
) -> None:
    exchanges = {symbol: Exchange(symbol, 3) for symbol in ("BTCUSDT", "ETHUSDT")}
    sent = played(exchanges, {"BTCUSDT": 300, "ETHUSDT": 100})
    create_topic(bootstrap, topic, 1, retention_ms="-1")
    config = BookConfig(**config_of(bootstrap, topic, tmp_path))
    for part in (sent[:250], sent[250:]):
        put(bootstrap, topic, part)
        run_book(config)
    check(spark, bootstrap, topic, tmp_path, exchanges, sent)


PLACES = [
    pytest.param(("claimed-0", "delivered-1"), marks=only_soaked, id="twice"),  # a JVM for each
    pytest.param(("delivered-1",), id="before-the-checkpoint"),
]


@pytest.mark.parametrize("places", PLACES)
def test_a_killed_driver_tells_each_second_once_of_silent_symbols_too(
    spark, bootstrap, topic, tmp_path, places
) -> None:
    exchanges = {symbol: Exchange(symbol, 4) for symbol in ("BTCUSDT", "ETHUSDT")}
    sent = played(exchanges, {"BTCUSDT": 250, "ETHUSDT": 90})
    create_topic(bootstrap, topic, 1, retention_ms="-1")
    put(bootstrap, topic, sent)
    config = config_of(bootstrap, topic, tmp_path)
    kill_at(places, "book", config, tmp_path)
    run_book(BookConfig(**config))
    check(spark, bootstrap, topic, tmp_path, exchanges, sent)


def test_the_audit_finds_each_book_in_the_state_and_a_planted_digit(spark, bootstrap, topic, tmp_path) -> None:
    """The digit is planted in the topic, made anew: then the state is not what its records make."""
    exchange = Exchange("BTCUSDT", 5)
    sent = played({"BTCUSDT": exchange}, {"BTCUSDT": 60})
    create_topic(bootstrap, topic, 1, retention_ms="-1")
    put(bootstrap, topic, sent)
    config = AuditBookConfig(**config_of(bootstrap, topic, tmp_path))
    run_book(config)
    assert audit_book.audit(spark, config) == {"BTCUSDT": "current"}
    changed, price = deepcopy(sent), max(exchange.bids)
    changed[-1][1].bids.append((int(price * 10**8), 123))
    delete_topics({"bootstrap.servers": bootstrap}, [topic])
    eventually(lambda: topic not in AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics)
    create_topic(bootstrap, topic, 1, retention_ms="-1")
    put(bootstrap, topic, changed)
    with pytest.raises(JobError, match=r"is not what .* makes: differing: BTCUSDT"):
        audit_book.run(config)
