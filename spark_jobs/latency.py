"""latency: measures the time from a producer to a consumer of the quotes job's ticks, in each mode, on each cluster.

A producer sends trades and order-book updates at a steady rate, with the time of sending in a header that quotes passes
on; a consumer of the ticks compares it with its own time. Both run in the process of Spark's driver, so there is one
clock. They share the machine with the broker: the result is that of the whole way on this machine, under its load.
"""

import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pydantic import Field
from pyspark.sql import SparkSession

from spark_jobs import picture
from spark_jobs.config import Duration, SparkConfig
from spark_jobs.connector import require_spark
from spark_jobs.errors import JobError
from spark_jobs.events import SENT_NS, Event
from spark_jobs.generator import Market, generate
from spark_jobs.quotes import REAL_TIME_SINCE, QuotesConfig, with_slots, writer
from spark_jobs.session import spark_session, stop_amid_batch
from spark_jobs.source import read_topics
from spark_jobs.topics import create_topics

log = logging.getLogger("spark_jobs")
GIVE_UP_S = 60.0
Mode = Literal["real_time", "micro_batches"]
MARKET = Market(events=5_000, depth_per_trade=0.25, late=0, duplicates=0, malformed=0)
"""Sent repeatedly: quotes keeps no state, so repeats make no difference."""


class LatencyConfig(SparkConfig):
    beside: dict[str, str] = Field(default={}, description="other clusters to measure, name: host:port")
    modes: list[Mode] = Field(default=["real_time", "micro_batches"], description="what to measure, in this order")
    rate: int = Field(default=1_000, ge=1, description="ticks per second")
    warm_up_s: float = Field(
        default=70, ge=0, description="seconds that do not count: Spark compiles, and writes its first checkpoint"
    )
    seconds: float = Field(default=60, gt=0, description="seconds that count")
    real_time: Duration = Field(default="1 minute", description="length of a batch in real-time mode")
    trigger: Duration = Field(default="0 seconds", description="micro-batches: one per duration, or back to back")
    page: Path = Field(default=Path("latency.html"), description="histogram to write: .html")


@dataclass(frozen=True, slots=True)
class Measured:
    """The latencies of one run in ms, in order."""

    cluster: str
    mode: Mode
    sorted_ms: list[float]

    def quantile(self, share: float) -> float:
        return self.sorted_ms[min(len(self.sorted_ms) - 1, int(len(self.sorted_ms) * share))]


def run(config: LatencyConfig) -> None:
    if "real_time" in config.modes:
        require_spark("real-time mode", REAL_TIME_SINCE, "set modes: [micro_batches]")
    clusters = {config.bootstrap_servers: config.bootstrap_servers, **config.beside}
    slots = with_slots(QuotesConfig(bootstrap_servers="", topics=["-"], checkpoint="-", master=config.master)).master
    with spark_session(config.model_copy(update={"master": slots}), "latency") as spark:
        found = [
            measure(spark, config, name, address, mode) for mode in config.modes for name, address in clusters.items()
        ]
    print("\n".join(table(found)), flush=True)
    title = f"From producer to consumer through quotes, {config.rate:,} ticks/s"
    picture.draw_histogram({f"{one.cluster}, {one.mode}": one.sorted_ms for one in found}, title, config.page)


def table(found: list[Measured]) -> list[str]:
    width = max(len(one.cluster) for one in found)
    lines = [f"{'cluster':{width}}  {'mode':13}  {'ticks':>9}  {'p50 ms':>9}  {'p99 ms':>9}  {'most ms':>9}"]
    for one in found:
        figures = "  ".join(f"{one.quantile(share):9.1f}" for share in (0.5, 0.99, 1))
        lines.append(f"{one.cluster:{width}}  {one.mode:13}  {len(one.sorted_ms):9,}  {figures}")
    return lines


def measure(spark: SparkSession, config: LatencyConfig, name: str, address: str, mode: Mode) -> Measured:
    """Run quotes in a mode over topics of its own; return the latencies of the ticks sent after the warm-up."""
    run_id = token_hex(4)
    topics = {kind: f"latency-{kind}-{run_id}" for kind in ("trade", "depth", "ticks")}
    client = {"bootstrap.servers": address}
    create_topics(client, list(topics.values()), 1)
    checkpoint = tempfile.mkdtemp(prefix="spark-jobs-latency-")
    quotes = QuotesConfig(
        bootstrap_servers=address,
        kafka=config.kafka,
        topics=[topics["trade"], topics["depth"]],
        depth_topics=[topics["depth"]],
        output_topic=topics["ticks"],
        checkpoint=checkpoint,
        trigger=config.trigger,
        real_time=config.real_time if mode == "real_time" else None,
    )
    query = writer(read_topics(spark, quotes), quotes).start()
    try:
        with feeding(client, topics, config.rate):
            sorted_ms = sorted(latencies(client, topics["ticks"], config.warm_up_s, config.seconds))
        if not sorted_ms and (failure := query.exception()) is not None:
            raise failure
    finally:
        stop_amid_batch(query)
        shutil.rmtree(checkpoint, ignore_errors=True)
        delete_topics(client, list(topics.values()))
    if not sorted_ms:
        raise JobError(
            f"no tick came from {name} within {config.warm_up_s + config.seconds + GIVE_UP_S:.0f} s ({mode})"
        )
    measured = Measured(name, mode, sorted_ms)
    log.info("latency: %s, %s: p50 %.1f ms, p99 %.1f ms", name, mode, measured.quantile(0.5), measured.quantile(0.99))
    return measured


@contextmanager
def feeding(client: Mapping[str, str], topics: Mapping[str, str], rate: int) -> Iterator[None]:
    """Send events at a steady rate, from a thread, until the end of the context."""
    stop = threading.Event()
    thread = threading.Thread(target=_feed, args=(client, topics, rate, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _feed(client: Mapping[str, str], topics: Mapping[str, str], rate: int, stop: threading.Event) -> None:
    producer = Producer({**client, "linger.ms": 0, "queue.buffering.max.messages": 1_000_000})
    events: Iterator[Event] = cycle(generate(MARKET))
    started, number = time.monotonic(), 0
    while not stop.is_set():
        due = int((time.monotonic() - started) * rate)
        for _ in range(due - number):
            event = next(events)
            producer.produce(topics[event.kind], event.value, event.key, headers=[(SENT_NS, b"%d" % time.time_ns())])
        number = due
        producer.poll(0)
        stop.wait(0.001)
    producer.flush(30)


def latencies(client: Mapping[str, str], topic: str, warm_up_s: float, seconds: float) -> list[float]:
    """Return the latencies in ms of ticks that were sent in the seconds after the warm-up."""
    settings: dict[str, Any] = {"group.id": "latency", "enable.auto.commit": False, "fetch.wait.max.ms": 100}
    consumer = Consumer({**client, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    first_ns = time.time_ns() + int(warm_up_s * 1e9)
    last_ns = first_ns + int(seconds * 1e9)
    give_up_s = time.monotonic() + warm_up_s + seconds + GIVE_UP_S
    found = []
    try:
        while time.monotonic() < give_up_s:
            message = consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            now_ns = time.time_ns()
            sent_ns = int(dict(message.headers() or ()).get(SENT_NS) or 0)
            if sent_ns >= last_ns:
                break
            if sent_ns >= first_ns:
                found.append((now_ns - sent_ns) / 1e6)
    finally:
        consumer.close()
    return found


def delete_topics(client: Mapping[str, str], topics: list[str]) -> None:
    admin = AdminClient(dict(client))  # kept in a variable: it must outlive its results
    for deleted in admin.delete_topics(topics).values():
        deleted.result(30)
