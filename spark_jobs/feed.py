"""feed: produces trades and order-book updates with a stock client: keyed by symbol, zstd, idempotent.

The events come from a recorded file (recordings.py) or from the generator (generator.py), at their own pace, at a
multiple of it, or as fast as possible. A record's timestamp is the time at which the event reached the recorder. The
header `schema` names the schema of the value; `feed` has the feed's id and the number of the event.

Resuming: the state file says how many events, from the first on, were acknowledged, and after which offset of each
partition later ones may be. A feed that starts again skips these events, reads the few records after those offsets, and
skips also the events that it finds there. So every event is sent exactly once, however the feed ended.
"""

import hashlib
import json
import sys
import threading
import time
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from pydantic import Field, model_validator

from spark_jobs.config import JobConfig, Options
from spark_jobs.errors import JobError
from spark_jobs.events import SENT_NS, Event
from spark_jobs.generator import Market, generate
from spark_jobs.metrics import FeedMetrics, served
from spark_jobs.recordings import read_csv, read_dump
from spark_jobs.schemas import DEPTH, TRADE
from spark_jobs.signals import stop_on_signals
from spark_jobs.topics import create_topics

SAVE_EVERY_S = 1.0
TIMEOUT_S = 30.0
SCHEMA_HEADERS = {"trade": TRADE.versioned_name(), "depth": DEPTH.versioned_name()}


class FeedConfig(JobConfig):
    source: Literal["generate", "csv", "dump"] = Field(
        default="generate", description="a made-up market, Binance's CSV files, or a websocket dump of JSON lines"
    )
    file: Path | None = Field(default=None, description="the file of source csv or dump; .gz and .zip are unpacked")
    symbol: str | None = Field(default=None, description="market of the file; default its name up to the first dash")
    market: Market = Field(default=Market(), description="settings of the generator")
    speed: float = Field(default=0.0, ge=0, description="1: at the events' own pace, 10: ten times it, 0: no waiting")
    limit: int | None = Field(default=None, ge=1, description="end after this many events")
    trades_topic: str = Field(default="trades", description="topic of trades")
    depth_topic: str = Field(default="depth", description="topic of order-book updates")
    partitions: int = Field(default=3, ge=1, description="partitions of a topic that must be created")
    replication_factor: int = Field(default=-1, description="replicas of such a topic; -1: the broker's default")
    topic_config: Options = Field(
        default={"retention.ms": "-1"},
        description="settings of such a topic; by default its records stay: retention would delete old recordings",
    )
    state: Path | None = Field(default=None, description="file that says how far the feed came; none: start anew")
    quiet: bool = Field(default=False, description="no progress lines")
    sent_at: bool = Field(
        default=False,
        description="add a header sent_ns, when the record was given to the producer, for page",
    )

    @model_validator(mode="after")
    def _has_file(self) -> Self:
        if (self.source == "generate") == (self.file is not None):
            raise ValueError("file is needed with source csv and dump, and with these alone")
        return self

    def topic(self, kind: str) -> str:
        return self.trades_topic if kind == "trade" else self.depth_topic


def run(config: FeedConfig) -> int:
    """Send all events; return the number sent. SIGINT and SIGTERM end it after the records in flight."""
    with stop_on_signals() as stop:
        feed = Feed(config, stop)
        try:
            with served(config, feed.metrics.registry):
                return feed.send(events(config))
        except KafkaException as error:
            raise JobError(
                f"{config.bootstrap_servers}: {error.args[0].str()} (options of the client: kafka)"
            ) from None


def events(config: FeedConfig) -> Iterator[Event]:
    if config.source == "generate":
        found = generate(config.market)
    else:
        assert config.file is not None
        found = (read_csv if config.source == "csv" else read_dump)(config.file, config.symbol)
    return islice(found, config.limit)


def feed_id(config: FeedConfig) -> str:
    """Return the id of a feed, 12 hex digits: a hash of the settings that determine its events."""
    what: list[Any] = [config.source, config.symbol, config.trades_topic, config.depth_topic]
    if config.file is None:
        what.append(config.market.model_dump())
    else:
        try:
            what += [config.file.name, config.file.stat().st_size]
        except OSError as error:
            raise JobError(f"{config.file} cannot be read: {error.strerror}") from None
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:12]


class Feed:
    """A run of a feed: its producer, and which events are acknowledged."""

    def __init__(self, config: FeedConfig, stop: threading.Event) -> None:
        self.config = config
        self.stop = stop
        self.id = feed_id(config)
        self.metrics = FeedMetrics()
        self.failure: str | None = None
        self.acknowledged: dict[int, tuple[str, int, int]] = {}
        self.next_event = 0
        self.next_offsets: dict[tuple[str, int], int] = {}
        self.sent = 0
        self.saved_at = self.started_at = time.monotonic()

    def send(self, events: Iterator[Event]) -> int:
        first = self._peek(events)
        self._create_topics(first)
        done = self._resume()
        producer = Producer(self._client(**PRODUCER))
        try:
            for number, event in enumerate(chain((first,), events)):
                if number < self.next_event or number in done:
                    self._acknowledge(number, done.get(number))
                    continue
                self._pace(producer, event)
                if self.stop.is_set() or self.failure:
                    break
                self._produce(producer, number, event)
        finally:
            left = producer.flush(TIMEOUT_S)
            self._save()
        if self.failure or left:
            raise JobError(
                f"{self.next_event} events are on {self.config.bootstrap_servers}, the next one failed: "
                f"{self.failure or 'no response'}; "
                + ("start the feed again to go on" if self.config.state else "set state to be able to go on")
            )
        self._show(end=True)
        return self.sent

    def _peek(self, events: Iterator[Event]) -> Event:
        """Read the first event, so that bad input is reported before a topic is created."""
        first = next(events, None)
        if first is None:
            raise JobError("the source holds no events")
        self._first_arrival_ms = first.arrival_ms
        return first

    def _create_topics(self, first: Event) -> None:
        config = self.config
        has_both = config.source == "dump" or (config.source == "generate" and config.market.depth_per_trade > 0)
        kinds = ["trade", "depth"] if has_both else [first.kind]
        self.topics = list(dict.fromkeys(config.topic(kind) for kind in kinds))
        create_topics(self._client(), self.topics, config.partitions, config.replication_factor, config.topic_config)

    def _resume(self) -> dict[int, tuple[str, int, int]]:
        """Read the state file and the records after its offsets; return {event number: (topic, partition, offset)}."""
        path = self.config.state
        consumer = Consumer(self._client(**{"group.id": "feed", "enable.auto.commit": False, **CONSUMER}))
        try:
            partitions = _partitions(consumer, self.topics)
            if path is None or not path.exists():
                self.next_offsets = {key: end for key, (_, end) in partitions.items()}
                self._save()
                return {}
            self._load(path)
            self._refuse_other_topics(path, partitions)
            return self._own_records(consumer, partitions)
        finally:
            consumer.close()

    def _load(self, path: Path) -> None:
        try:
            state = json.loads(path.read_text())
            found, self.next_event = state["feed"], int(state["next_event"])
            self.next_offsets = {(topic, int(partition)): int(at) for topic, partition, at in state["next_offsets"]}
        except (OSError, ValueError, KeyError, TypeError):
            raise JobError(f"{path} is not the state of a feed: remove it to start anew") from None
        if found != self.id:
            raise JobError(f"{path} is the state of another feed: give this one a file of its own, or remove it")

    def _refuse_other_topics(self, path: Path, partitions: dict[tuple[str, int], tuple[int, int]]) -> None:
        """Raise JobError if a topic ends before the state does, as after its deletion."""
        for (topic, partition), at in self.next_offsets.items():
            _, end = partitions.get((topic, partition), (0, 0))
            if at > end:
                raise JobError(
                    f"{path} says that {topic}-{partition} reached offset {at}, it ends at {end}: the topic was made "
                    f"again, or has lost records; remove {path} to send all events to it"
                )

    def _own_records(
        self, consumer: Consumer, partitions: dict[tuple[str, int], tuple[int, int]]
    ) -> dict[int, tuple[str, int, int]]:
        starts = {key: max(start, self.next_offsets.get(key, start)) for key, (start, _) in partitions.items()}
        ends = {key: end for key, (_, end) in partitions.items() if starts[key] < end}
        consumer.assign([TopicPartition(*key, starts[key]) for key in ends])
        done: dict[int, tuple[str, int, int]] = {}
        while ends:
            message = consumer.poll(TIMEOUT_S)
            if message is None:
                raise JobError(f"{self.config.bootstrap_servers} does not answer a fetch within {TIMEOUT_S:.0f} s")
            key = (str(message.topic()), int(message.partition() or 0))
            error = message.error()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                ends.pop(key, None)
                continue
            number = self._number(message)
            if number is not None:
                done[number] = (*key, int(message.offset() or 0))
            if int(message.offset() or 0) + 1 >= ends.get(key, 0):
                ends.pop(key, None)
        return done

    def _number(self, message: Message) -> int | None:
        headers = message.headers()
        assert not isinstance(headers, dict)  # a consumer returns pairs; a producer takes pairs or a mapping
        for name, value in headers or ():
            if name == "feed" and isinstance(value, bytes):
                found, _, number = value.decode("ascii", "replace").partition(":")
                return int(number) if found == self.id and number.isdigit() else None
        return None

    def _pace(self, producer: Producer, event: Event) -> None:
        """Wait until the event is due. The clock of a resumed feed starts at its first unsent event."""
        if not self.config.speed:
            return
        if self.sent == 0:
            self._first_arrival_ms, self._paced_at = event.arrival_ms, time.monotonic()
        due = self._paced_at + (event.arrival_ms - self._first_arrival_ms) / 1000 / self.config.speed
        while (wait := due - time.monotonic()) > 0 and not self.stop.is_set() and not self.failure:
            producer.poll(0)
            self._tick()
            self.stop.wait(min(wait, 0.1))

    def _produce(self, producer: Producer, number: int, event: Event) -> None:
        topic = self.config.topic(event.kind)
        headers: list[tuple[str, str | bytes | None]] = [
            ("schema", SCHEMA_HEADERS[event.kind]),
            ("feed", f"{self.id}:{number}"),
        ]
        if self.config.sent_at:
            headers.append((SENT_NS, b"%d" % time.time_ns()))

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failure = self.failure or error.str()
            else:
                self._acknowledge(number, (topic, int(message.partition() or 0), int(message.offset() or 0)))

        while True:
            try:
                producer.produce(
                    topic,
                    key=event.key,
                    value=event.value,
                    timestamp=event.arrival_ms,
                    headers=headers,
                    on_delivery=delivered,
                )
                break
            except BufferError:
                producer.poll(0.1)
        self.sent += 1
        self.metrics.sent(topic, event.arrival_ms)
        producer.poll(0)
        if number % 256 == 0:
            self._tick()

    def _acknowledge(self, number: int, where: tuple[str, int, int] | None) -> None:
        if where is None:
            return
        self.acknowledged[number] = where
        while (found := self.acknowledged.pop(self.next_event, None)) is not None:
            topic, partition, offset = found
            self.next_offsets[topic, partition] = offset + 1
            self.next_event += 1

    def _tick(self) -> None:
        if time.monotonic() - self.saved_at >= SAVE_EVERY_S:
            self._save()
            self._show()

    def _save(self) -> None:
        self.saved_at = time.monotonic()
        if self.config.state is None:
            return
        offsets = [[topic, partition, at] for (topic, partition), at in sorted(self.next_offsets.items())]
        text = json.dumps({"feed": self.id, "next_event": self.next_event, "next_offsets": offsets})
        try:
            self.config.state.parent.mkdir(parents=True, exist_ok=True)
            partial = self.config.state.with_name(self.config.state.name + ".partial")
            partial.write_text(text)
            partial.rename(self.config.state)
        except OSError as error:
            raise JobError(f"the feed's state cannot be written to {self.config.state}: {error.strerror}") from None

    def _show(self, *, end: bool = False) -> None:
        if self.config.quiet:
            return
        seconds = max(time.monotonic() - self.started_at, 0.001)
        what = "ended" if end else "feeding"
        print(
            f"{what}: {self.sent} events in {seconds:.1f} s ({self.sent / seconds:.0f} a second), "
            f"{self.next_event} acknowledged from the start",
            file=sys.stderr,
            flush=True,
        )

    def _client(self, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.config.bootstrap_servers,
            "error_cb": lambda _error: None,
            "log_level": 0,
            **more,
            **self.config.kafka,
        }


PRODUCER: dict[str, Any] = {
    "enable.idempotence": True,
    "compression.type": "zstd",
    "partitioner": "murmur2_random",
    "linger.ms": 20,
    "queue.buffering.max.messages": 100_000,
    "message.timeout.ms": 120_000,
}
NOT_YET = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
)
RETRY_S = 0.1
CONSUMER: dict[str, Any] = {
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_uncommitted",  # an open transaction of others does not hide the feed's own records
}


def _partitions(consumer: Consumer, topics: list[str]) -> dict[tuple[str, int], tuple[int, int]]:
    """Return {(topic, partition): (first offset, end offset)}. A topic just created may not have its leaders yet."""
    end_s = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return {where: ends for topic in topics for where, ends in _ends(consumer, topic)}
        except KafkaException as error:
            if error.args[0].code() not in NOT_YET or time.monotonic() > end_s:
                raise
            time.sleep(RETRY_S)


def _ends(consumer: Consumer, topic: str) -> Iterator[tuple[tuple[str, int], tuple[int, int]]]:
    described = consumer.list_topics(topic, TIMEOUT_S).topics[topic]
    if described.error is not None:
        raise KafkaException(described.error)
    for partition in described.partitions:
        yield (topic, partition), consumer.get_watermark_offsets(TopicPartition(topic, partition), TIMEOUT_S)
