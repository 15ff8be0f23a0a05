"""Spark's jobs on market trades: a batch read, the stream to Parquet, live bars; and how they grow with partitions.

Latency, tables and topics as sinks: spark_sinks.py.

One Spark session serves both brokers, warm before it counts. Trades are the generator's JSON, about 130 bytes each, in
zstd batches of 1,000 that are sent again and again: what is read is what a busy market gives.
"""

import json
import shutil
import tempfile
import threading
import time
from functools import cache
from typing import Any

from benchmarks.topics import create_topic, delete_topic
from benchmarks.wire import Pipe, end_offsets, produce_frame, run_pipes
from benchmarks.workload import Cost, Figures, Workload
from harness.servers import Server

TRADES = 5_000_000
PARTITIONS = 4
BATCH_TRADES = 1_000
BATCHES = 20
ZSTD = 4
DEPTH = 5
LIVE_S, LIVE_WARM_UP_S, LIVE_TRADES_PER_S = 60, 25, 300
SESSION = {"spark.driver.memory": "3g"}
"""Consumers of 117 partitions a round stay in Spark's pool for five minutes: the stock 1 GiB does not hold them."""

_filled: dict[tuple[str, str], int] = {}


@cache
def spark_session() -> Any:
    from spark_jobs.config import SparkConfig
    from spark_jobs.session import start_session

    config = SparkConfig(bootstrap_servers="", master="local[*]", shuffle_partitions=2, spark=SESSION)
    return start_session(config, "kafkapy benchmarks")


@cache
def _batches() -> list[bytes]:
    """Return batches of generated trades as a producer would send them."""
    from kafkapy.record.builder import BatchFields, build_batch
    from spark_jobs.generator import Market, generate

    market = Market(events=BATCH_TRADES * BATCHES, late=0, duplicates=0, malformed=0)
    records = [(event.arrival_ms, event.key.encode(), event.value, ()) for event in generate(market)]
    chunks = [records[start : start + BATCH_TRADES] for start in range(0, len(records), BATCH_TRADES)]
    return [build_batch(chunk, BatchFields(compression=ZSTD)) for chunk in chunks]


def fill(server: Server, topic: str, trades: int, partitions: int) -> int:
    """Create the topic and put about so many trades on it, evenly; return how many there are."""
    create_topic(server, topic, partitions, config={"retention.ms": "-1"})  # the generator's times are long past
    batches = _batches()
    count = max(partitions, min(partitions * BATCHES, trades // BATCH_TRADES))
    frames = [
        produce_frame(topic, number % partitions, batches[(number // partitions + number) % BATCHES])
        for number in range(count)
    ]
    pipe = Pipe(server, frames, DEPTH)
    run_pipes([pipe], max(0, trades // BATCH_TRADES - len(frames)))
    pipe.connection.close()
    return end_offsets(server, topic, partitions)


def prepare(server: Server, topic: str, scale: float) -> None:
    """Fill the topic and read it once, uncounted: Spark's own JVM is cold, too."""
    _filled[server.name, topic] = fill(server, topic, int(TRADES * scale), PARTITIONS)
    batch_read(server, topic, scale)


def batch_read(server: Server, topic: str, scale: float) -> Figures:
    return _read(server, topic, _filled[server.name, topic])


def _read(server: Server, topic: str, records: int) -> Figures:
    """Read a topic in one batch and sum up the lengths of its values, so that each is looked at."""
    from spark_jobs.config import JobConfig
    from spark_jobs.source import read_topics_once

    with Cost(server) as cost:
        rows = read_topics_once(spark_session(), JobConfig(bootstrap_servers=server.bootstrap), [topic])
        (row,) = rows.selectExpr("count(*) AS records", "sum(length(value)) AS size").collect()
    assert row.records == records, f"Spark read {row.records} records of {records}"
    return spark_figures(cost, records)


def spark_figures(cost: Cost, records: int) -> Figures:
    return {
        "records_per_s": records / cost.seconds,
        "broker_cpu_s_per_million": cost.cpu_s / records * 1e6,
        "peak_memory_mb": cost.peak_memory_mb,
    }


def stream_to_parquet(server: Server, topic: str, scale: float) -> Figures:
    """The bronze job from the beginning of the topic to its end: start, batches, commit."""
    from spark_jobs.bronze import BronzeConfig, archive_writer

    records = _filled[server.name, topic]
    with tempfile.TemporaryDirectory(prefix="kafkapy-bench-spark-") as directory:
        config = BronzeConfig(
            bootstrap_servers=server.bootstrap,
            topics=[topic],
            trigger="available_now",
            shuffle_partitions=2,
            checkpoint=f"{directory}/checkpoint",
            output=f"{directory}/archive",
        )
        with Cost(server) as cost:
            query = archive_writer(spark_session(), config).start()
            query.awaitTermination()
        read = sum(progress["numInputRows"] for progress in query.recentProgress)
    assert read == records, f"the stream read {read} records of {records}"
    return spark_figures(cost, records)


def partition_growth(server: Server, topic: str, scale: float) -> Figures:
    """Batch reads of the same number of trades from 1, 16 and 100 partitions."""
    figures = {}
    for partitions in (1, 16, 100):
        name = f"{topic}-{partitions}"
        records = fill(server, name, int(TRADES / 5 * scale), partitions)
        found = _read(server, name, records)
        figures[f"partitions_{partitions}_records_per_s"] = found["records_per_s"]
        figures[f"partitions_{partitions}_broker_cpu_s_per_million"] = found["broker_cpu_s_per_million"]
        delete_topic(server, name)
    return figures


def live_bars(server: Server, topic: str, scale: float) -> Figures:
    """Trades at a steady rate, each with the time at which it is sent; the live job's bars, as a reader gets them.

    The age of a bar of 1 s is measured from the newest trade in it to the moment at which a consumer holds it.
    """
    from spark_jobs.live import LiveConfig

    bars = f"{topic}-bars"
    create_topic(server, topic, PARTITIONS)
    create_topic(server, bars, 1, config={"cleanup.policy": "compact"})
    directory = tempfile.mkdtemp(prefix="kafkapy-bench-spark-")
    config = LiveConfig(
        bootstrap_servers=server.bootstrap,
        topics=[topic],
        output_topic=bars,
        checkpoint=f"{directory}/checkpoint",
        trigger="0 seconds",
        shuffle_partitions=2,
    )
    stop = threading.Event()
    sent: dict[tuple[str, int], float] = {}
    feeder = threading.Thread(target=_feed, args=(server, topic, sent, stop))
    query = _start_live(config)
    try:
        feeder.start()
        ages = _ages(server, bars, sent, LIVE_WARM_UP_S)
        with Cost(server) as cost:
            ages = _ages(server, bars, sent, max(20.0, LIVE_S * scale))
    finally:
        stop.set()
        feeder.join()
        query.processAllAvailable()  # a batch that is interrupted makes Spark 4.0 overflow its stack over the message
        query.stop()
        shutil.rmtree(directory)
        delete_topic(server, topic)
        delete_topic(server, bars)
    ages.sort()
    assert ages, "no bar came"
    return {
        "p50_ms": ages[len(ages) // 2] * 1000,
        "p99_ms": ages[len(ages) * 99 // 100] * 1000,
        "broker_cpu_percent": cost.cpu_s / cost.seconds * 100,
        "peak_memory_mb": cost.peak_memory_mb,
    }


def _start_live(config: Any) -> Any:
    from spark_jobs import live
    from spark_jobs.gold import bar_stream
    from spark_jobs.metrics import QueryMetrics
    from spark_jobs.session import stream_writer
    from spark_jobs.sink import TopicSink
    from spark_jobs.source import read_topics

    spark, metrics = spark_session(), QueryMetrics(config, "live")
    output = live.Output(config, metrics, TopicSink(config))
    writer = stream_writer(bar_stream(read_topics(spark, config), config), config, "live").outputMode("update")
    return writer.foreachBatch(lambda bars, number: live.write(spark, output, bars, number)).start()


def _feed(server: Server, topic: str, sent: dict[tuple[str, int], float], stop: threading.Event) -> None:
    from confluent_kafka import Producer

    from spark_jobs.events import Trade

    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 5, "compression.type": "zstd"})
    symbols = ("BTCUSDT", "ETHUSDT", "SOLUSDT")
    started, number = time.monotonic(), 0
    while not stop.is_set():
        for _ in range(int((time.monotonic() - started) * LIVE_TRADES_PER_S) - number):
            now, symbol = time.time(), symbols[number % 3]
            trade = Trade(symbol, number, f"{100 + number % 50}.25", "0.5", int(now * 1000), number % 2 == 0)
            sent[symbol, number] = now
            producer.produce(topic, trade.to_json(), symbol)
            number += 1
        producer.poll(0)
        stop.wait(0.01)
    producer.flush(30)


def _ages(server: Server, bars: str, sent: dict[tuple[str, int], float], seconds: float) -> list[float]:
    """Return how old the newest trade of each bar of 1 s was when the bar was read, for so many seconds."""
    from confluent_kafka import Consumer

    settings = {"group.id": "bars", "auto.offset.reset": "latest", "fetch.wait.max.ms": 20}
    consumer = Consumer({"bootstrap.servers": server.bootstrap, **settings})
    consumer.subscribe([bars])
    ages = []
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            message = consumer.poll(0.2)
            if message is None or message.error() is not None:
                continue
            bar = json.loads(message.value() or b"{}")
            if bar["width"] == "1s":
                ages.append(time.time() - sent[bar["symbol"], bar["close_trade_id"]])
    finally:
        consumer.close()
    return ages


WORKLOADS = [
    Workload("Spark batch read of trades", batch_read, prepare=prepare, family="spark"),
    Workload("Spark stream to Parquet", stream_to_parquet, prepare=prepare, family="spark", quick_rounds=0),
    Workload("Spark batch read by partitions", partition_growth, family="spark", rounds=2, quick_rounds=0),
    Workload("Spark live bars", live_bars, family="spark", warms_up=False, rounds=1, quick_rounds=0),
]
