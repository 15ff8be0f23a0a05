"""What the market-data jobs wrote, in the oracle's terms: topics by a stock consumer, batches by the checkpoint."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from spark_jobs import depth
from spark_jobs.events import Trade
from spark_jobs.oracle import Bar, parse
from spark_jobs.recordings import read_csv

BAR_TYPES = Bar.__annotations__


@dataclass(frozen=True, slots=True)
class Record:
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def recorded_depth(path: Path) -> list[depth.DepthMessage]:
    """Return the order-book messages of a recording, as the book reads them from a topic."""
    return [depth.parse(event.value, event.key) for event in read_csv(path)]


def consume(bootstrap: str, *topics: str) -> list[Record]:
    """Return every record of the topics up to their ends."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.partition.eof": True})
    begins: dict[tuple[str, int], int] = {}
    for topic in topics:
        for partition in consumer.list_topics(topic, 30).topics[topic].partitions:
            begins[topic, partition], _ = consumer.get_watermark_offsets(TopicPartition(topic, partition), 30)
    consumer.assign([TopicPartition(*where, begin) for where, begin in begins.items()])
    left = set(begins)
    records = []
    while left:
        message = consumer.poll(60)
        assert message is not None, f"nothing arrives from {sorted(left)}"
        if message.error() is not None:
            left.discard((message.topic(), message.partition()))
            continue
        where = (message.topic(), message.partition(), message.offset(), message.timestamp()[1])
        records.append(Record(*where, message.key(), message.value(), tuple(message.headers() or ())))
    consumer.close()
    return records


def batches(checkpoint: Path, records: Iterable[Record]) -> list[list[Record]]:
    """Cut a topic's records into the batches that a query's checkpoint tells of."""
    ends = [each for each, _ in planned(checkpoint)]
    cut: list[list[Record]] = [[] for _ in ends]
    for record in records:
        number = next(n for n, end in enumerate(ends) if record.offset < end[record.topic][str(record.partition)])
        cut[number].append(record)
    return cut


def planned(checkpoint: Path) -> list[tuple[dict[str, dict[str, int]], int]]:
    """Return where each batch of a query over topics ends, {topic: {partition: offset}}, and its watermark."""
    log = checkpoint / "offsets"
    found = []
    for number in range(len(list(log.glob("[0-9]*")))):
        _, metadata, *sources = (log / str(number)).read_text().splitlines()
        ends = {topic: partitions for source in sources for topic, partitions in json.loads(source).items()}
        found.append((ends, json.loads(metadata)["batchWatermarkMs"]))
    return found


def trades(records: Iterable[Record]) -> list[Trade]:
    """Return the good trades among records."""
    return [found for record in records if isinstance(found := parse(record.value, record.timestamp_ms), Trade)]


def last_values(records: Iterable[Record]) -> dict[bytes, dict[str, object]]:
    """Return {key: value}, the last of each key: what compaction leaves. Keys stay in one partition."""
    return {record.key or b"": json.loads(record.value or b"null") for record in records}


def table_rows(folder: Path, table: str) -> list[dict[str, Any]]:
    """Return the rows of a table that jobs wrote to a folder."""
    from spark_jobs.query import connect  # not at the top: tests without Spark's packages read topics alone

    connection, _ = connect(folder)
    with connection:
        found = connection.sql(f"select * from {table}")
        return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


def bar_key(bar: Bar) -> bytes:
    return f"{bar.symbol}|{bar.width}|{bar.start_ms}".encode()


def bars_on_topic(records: Iterable[Record]) -> dict[bytes, Bar]:
    return {key: as_bar(value) for key, value in last_values(records).items()}


def as_bar(fields: dict[str, object]) -> Bar:
    """Return a Bar of a row's or a JSON value's fields, decimals from their digits."""
    taken = {name: fields[name] for name in BAR_TYPES}
    return Bar(**{name: Decimal(str(v)) if BAR_TYPES[name] is Decimal else v for name, v in taken.items()})


def by_key(bars: Iterable[Bar]) -> dict[bytes, Bar]:
    found = list(bars)
    keyed = {bar_key(bar): bar for bar in found}
    assert len(keyed) == len(found), "a bar is there twice"
    return keyed


def trade_fields(trades: Iterable[Trade]) -> list[tuple[object, ...]]:
    """Return trades as tuples of exact values, in order."""
    return sorted(_exact(asdict(trade)) for trade in trades)


def row_fields(rows: Sequence[dict[str, object]]) -> list[tuple[object, ...]]:
    return sorted(_exact(row) for row in rows)


def _exact(fields: dict[str, object]) -> tuple[object, ...]:
    price, quantity = Decimal(str(fields["price"])), Decimal(str(fields["quantity"]))
    return (fields["symbol"], fields["trade_id"], price, quantity, fields["time_ms"], fields["is_buyer_maker"])
