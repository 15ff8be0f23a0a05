"""audit-trades: proves that topic, Iceberg, Delta and Parquet hold each of silver's trades once, to the last digit.

audit_rows.py has the method, and what is counted for each place. The dead-letter topic must have each invalid or late
record once, as it was, with its key and headers, and the right reason, topic, partition and offset. Letters of topics
that silver does not read are ignored; quotes, which reads the same topics, needs a dead-letter topic of its own.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from confluent_kafka import Message

from spark_jobs import oracle
from spark_jobs.audit_rows import (
    Found,
    History,
    Key,
    Kind,
    Values,
    compare,
    conclude,
    found_in,
    on_this_machine,
    on_topic,
    place_of,
    places_of,
    records_of,
)
from spark_jobs.config import duration_ms
from spark_jobs.events import Trade
from spark_jobs.schemas import SILVER_TRADE
from spark_jobs.silver import LATE, SilverConfig

TRADES = Kind(SILVER_TRADE, "trades", ("symbol", "trade_id"), "time_ms")
Headers = list[tuple[str, Any]]
Parsed = tuple[Message, Trade | str]
"""A record, and the trade in it, or the reason why it is not a trade."""


class AuditTradesConfig(SilverConfig):
    """Silver's own configuration; kafka's options by librdkafka's names stand under producer."""


def run(config: AuditTradesConfig) -> None:
    """Audit all places that the configuration names, print a table, and raise JobError if something is wrong."""
    batches = read_batches(config)
    rows = [asdict(trade) for trade in expected_trades(config, batches)]
    trades = {TRADES.key_of(row): TRADES.values_of(row) for row in rows}
    found = [compare(place, trades, rows) for place, rows in places_of(config, TRADES)]
    letters = dict(expected_letters(config, batches))
    there = found_in("letters", on_topic(config, config.dead_letter_topic), of_letter)
    topics = {place_of(record)[0] for batch in batches for record, _ in batch} | set(config.topics)
    own = (letter for letter in there if letter[0][0] in topics or letter[1] is None)
    conclude(config, [*found, compare(f"topic {config.dead_letter_topic}", letters, own)])


def read_batches(config: AuditTradesConfig) -> list[list[Parsed]]:
    """Return the records of each committed batch."""
    max_ahead_ms = duration_ms(config.max_ahead)

    def parsed(message: Message) -> Parsed:
        return message, oracle.parse(message.value(), message.timestamp()[1], max_ahead_ms)

    history = History.of(on_this_machine(config.checkpoint))
    return history.cut(records_of(config, history), parsed)


def good(batches: Iterable[Iterable[Parsed]]) -> list[list[Trade]]:
    return [[trade for _, trade in batch if isinstance(trade, Trade)] for batch in batches]


def expected_trades(config: AuditTradesConfig, batches: list[list[Parsed]]) -> list[Trade]:
    counted, _, _ = oracle.in_time(good(batches), duration_ms(config.watermark))
    return counted


# -- dead letters ---------------------------------------------------------------------------------------------------


def expected_letters(config: AuditTradesConfig, batches: list[list[Parsed]]) -> Iterator[tuple[Key, Values]]:
    """Yield the letter of each invalid or late record."""
    limits_ms = oracle.late_watermarks(good(batches), duration_ms(config.watermark))
    for batch, limit_ms in zip(batches, limits_ms, strict=True):
        for record, found in batch:
            if isinstance(found, str):
                yield letter(record, found)
            elif found.time_ms <= limit_ms:
                yield letter(record, LATE)


def letter(record: Message, reason: str) -> tuple[Key, Values]:
    """Return the dead letter of a record: its place, then value and headers."""
    place, offset = place_of(record), record.offset() or 0
    own: Headers = [
        ("dlq.reason", reason.encode()),
        ("dlq.topic", place[0].encode()),
        ("dlq.partition", b"%d" % place[1]),
        ("dlq.offset", b"%d" % offset),
        ("dlq.timestamp_ms", b"%d" % record.timestamp()[1]),
        ("dlq.key", record.key()),
    ]
    return (*place, offset), (record.value(), (*own, *headers_of(record)))


def of_letter(record: Message) -> Found:
    """Return a letter of the topic, by the place in its key."""
    rest, partition, offset = (record.key() or b"").decode().rsplit("-", 2)
    return (rest, int(partition), int(offset)), (record.value(), headers_of(record))


def headers_of(record: Message) -> tuple[Any, ...]:
    return tuple(record.headers() or ())
