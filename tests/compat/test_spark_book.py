"""Order books on Spark against an exchange that remembers every state, over restarts, and as a plain batch."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from spark_jobs import book
from spark_jobs.book import BookConfig, book_rows
from spark_jobs.config import JobConfig
from spark_jobs.errors import JobError
from spark_jobs.order_book import OrderBook
from spark_jobs.schemas import BOOK
from spark_jobs.source import read_topics_once
from spark_jobs.topics import create_topic
from tests.support import market
from tests.support.exchange import Exchange, deliver
from tests.support.market import recorded_depth

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
DATA = Path(__file__).parents[3] / "shared" / "data"


def config_of(bootstrap: str, topic: str, tmp_path: Path, **changes: Any) -> BookConfig:
    settings = {
        "bootstrap_servers": bootstrap,
        "topics": [topic],
        "checkpoint": str(tmp_path / "checkpoint"),
        "output": str(tmp_path / "book"),
        "trigger": "available_now",
        "shuffle_partitions": 2,
    }
    return BookConfig(**{**settings, **changes})


def put(bootstrap: str, topic: str, messages: list[Any]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for message in messages:
        producer.produce(topic, message.to_json(), message.symbol)
    assert producer.flush(60) == 0


def rows_of(frame) -> list[dict[str, Any]]:
    rows = [row.asDict() for row in frame.select(BOOK.names()).collect()]
    return sorted(rows, key=lambda row: (row["partition"], row["offset"], row["status"], row["update_id"]))


def expected_rows(messages: list[Any]) -> list[tuple[str, int]]:
    """Return (status, update id) of each row of one symbol, by the machine alone."""
    machine = OrderBook()
    return sorted((row.status.value, row.update_id) for message in messages for row in machine.step(message))


def test_books_are_the_exchanges_over_restarts_and_in_a_plain_batch(spark, bootstrap, topic, tmp_path) -> None:
    exchanges = {
        symbol: Exchange(symbol, 1, is_future) for symbol, is_future in (("BTCUSDT", False), ("ETHUSDT", True))
    }
    messages = {symbol: deliver(exchange, 400).messages for symbol, exchange in exchanges.items()}
    create_topic(bootstrap, topic, 2)
    create_topic(bootstrap, f"{topic}-rows", 1, cleanup_policy="compact")
    config = config_of(bootstrap, topic, tmp_path, book_topic=f"{topic}-rows", delivery="exactly_once")
    for part in (slice(0, 150), slice(150, None)):
        put(bootstrap, topic, [message for each in messages.values() for message in each[part]])
        book.run(config)
    rows = rows_of(spark.read.parquet(config.output))
    for symbol, exchange in exchanges.items():
        own = [row for row in rows if row["symbol"] == symbol]
        assert sorted((row["status"], row["update_id"]) for row in own) == expected_rows(messages[symbol])
        quoted = [row for row in own if row["bid"] is not None and row["status"] != "stale"]
        assert len(quoted) > 200
        for row in quoted:
            truth = exchange.quotes_at(row["update_id"])
            assert truth is not None
            assert {name: row[name] for name in truth} == truth
    client = JobConfig(bootstrap_servers=bootstrap)
    assert rows_of(book_rows(read_topics_once(spark, client, [topic]))) == rows
    on_topic = [json.loads(record.value) for record in market.consume(bootstrap, f"{topic}-rows")]
    for symbol in exchanges:
        places = [(row["offset"], row["update_id"]) for row in rows if row["symbol"] == symbol]
        ids = [(row["offset"], row["update_id"]) for row in on_topic if row["symbol"] == symbol]
        assert sorted(ids) == sorted(places)
        assert [offset for offset, _ in ids] == sorted(offset for offset, _ in ids), "in the order of the records"


@pytest.mark.skipif(not DATA.is_dir(), reason="shared/data is not beside the project")
def test_gap_of_the_real_files_is_found_and_bad_records_are_reported(spark, bootstrap, topic, tmp_path) -> None:
    create_topic(bootstrap, topic, 1)
    for name in ("snap", "update"):
        put(bootstrap, topic, recorded_depth(DATA / f"btcusdt-depth-{name}.csv"))
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"{", "BTCUSDT")
    producer.produce(topic, b"{}")
    producer.produce(topic, b'{"v":2,"symbol":"BTCUSDT"}', "BTCUSDT")
    assert producer.flush(60) == 0
    with pytest.raises(JobError, match="holds schema version 2, this job knows 1: use a job that knows it, or set"):
        book.run(config_of(bootstrap, topic, tmp_path))
    config = config_of(bootstrap, topic, tmp_path, unknown_version="malformed")
    book.run(config)
    rows = rows_of(spark.read.parquet(config.output))
    assert [(row["status"], row["symbol"], row["update_id"], row["reason"]) for row in rows] == [
        ("snapshot", "BTCUSDT", 2098021528332, None),
        ("gap", "BTCUSDT", 2098041696700, "follows 2098041693400, the book is at 2098021528332"),
        ("malformed", "BTCUSDT", -1, "not JSON"),
        ("malformed", "", -1, "no key: the symbol is unknown"),
        ("malformed", "BTCUSDT", -1, "schema version 2, this job knows 1"),
    ]
