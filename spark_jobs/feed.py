"""Puts trades on a topic with a stock client: keyed by symbol, zstd, idempotent."""

from collections.abc import Iterable

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from spark_jobs.trades import Trade


class FeedError(Exception):
    """Trades that did not reach the topic; the text says why."""


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """Create the topic. Raises FeedError when that fails (an existing one, an unreachable broker)."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    try:
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    except KafkaException as error:
        raise FeedError(f"topic {topic} could not be created on {bootstrap}: {error.args[0].str()}") from error


def feed(bootstrap: str, topic: str, trades: Iterable[Trade]) -> int:
    """Produce all trades, each at its own time, and return their number once every one is acknowledged."""
    failures: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": "zstd",
            "linger.ms": 20,
            "queue.buffering.max.messages": 100_000,
            "message.timeout.ms": 60_000,
        }
    )
    count = 0
    for trade in trades:
        count += 1
        _produce(producer, topic, trade, failures)
    if producer.flush(60) or failures:
        raise FeedError(f"not all of {count} trades were acknowledged: {failures[:1] or 'time-out'}")
    return count


def _produce(producer: Producer, topic: str, trade: Trade, failures: list[str]) -> None:
    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failures.append(str(error))

    while True:
        try:
            producer.produce(
                topic, key=trade.symbol, value=trade.to_json(), timestamp=trade.time_ms, on_delivery=delivered
            )
            producer.poll(0)
            return
        except BufferError:
            producer.poll(0.1)
