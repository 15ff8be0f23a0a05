"""Spark's streams on market trades as their results leave: ticks in milliseconds, Iceberg, and topics by two sinks.

The session is that of spark.py, warm before it counts. Latency is measured by `python -m spark_jobs latency`'s own
means: from the producer's clock to the consumer's, which are one.
"""

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.spark import PARTITIONS, fill, spark_figures, spark_session
from benchmarks.topics import create_topic, delete_topic
from benchmarks.wire import end_offsets
from benchmarks.workload import Cost, Figures, Workload
from harness.servers import Server

RATES = (100, 1_000, 5_000)
"""Ticks per second."""
LATENCY_S, WARM_UP_S = 60, 20
COMPILE_RATE, COMPILE_S = 1_000, 45.0
TRADES = 400_000
STREAM_BATCHES = 4

_filled: dict[tuple[str, str], int] = {}


def real_time(server: Server, topic: str, scale: float) -> Figures:
    """The quotes job in real-time mode at each rate. The broker's CPU counts the warm-up, too."""
    _compile_quotes(server.bootstrap)
    figures: Figures = {}
    for rate in RATES:
        with Cost(server) as cost:
            measured = _measure_latency(server.bootstrap, rate, max(10.0, LATENCY_S * scale))
        figures[f"ticks_{rate}_p50_ms"] = measured.quantile(0.5)
        figures[f"ticks_{rate}_p99_ms"] = measured.quantile(0.99)
        figures[f"ticks_{rate}_broker_cpu_percent"] = cost.cpu_s / cost.seconds * 100
    return figures


@cache
def _compile_quotes(bootstrap: str) -> None:
    """Run quotes once on each broker, uncounted: the first run of all has a cold JVM, and its first checkpoint."""
    _measure_latency(bootstrap, COMPILE_RATE, COMPILE_S)


def _measure_latency(bootstrap: str, rate: int, seconds: float) -> Any:
    from spark_jobs.latency import LatencyConfig, measure

    config = LatencyConfig(bootstrap_servers=bootstrap, rate=rate, warm_up_s=WARM_UP_S, seconds=seconds)
    return measure(spark_session(), config, bootstrap, bootstrap, "real_time")


def prepare(server: Server, topic: str, scale: float) -> None:
    """Fill the topic and stream it once, uncounted: Spark's own JVM is cold, too."""
    _filled[server.name, topic] = fill(server, topic, int(TRADES * scale), PARTITIONS)
    to_iceberg(server, topic, scale)


def to_iceberg(server: Server, topic: str, scale: float) -> Figures:
    """Trades checked and typed, to an Iceberg table with a catalogue of its own, each batch once."""
    from spark_jobs.silver import SilverConfig
    from spark_jobs.sink import TableSink
    from spark_jobs.tables import IcebergTable

    with tempfile.TemporaryDirectory(prefix="kafkapy-bench-spark-") as directory:
        settings = {**stream_settings(server, topic, directory), "iceberg": f"{directory}/tables"}
        config = SilverConfig(**settings, output_topic=None)
        tables = TableSink(config, "trades", reset_output=False)
        figures = timed_stream(server, topic, trades_of(config), config, tables.write)
        (table,) = tables.tables
        assert isinstance(table, IcebergTable)
        rows = table.count_rows()
    assert rows == _filled[server.name, topic], f"the table has {rows} rows of {_filled[server.name, topic]}"
    return figures


def to_topics(server: Server, topic: str, scale: float) -> Figures:
    """The same trades from topic to topic: by Spark's sink, which may repeat a batch, and in transactions."""
    return {
        f"{delivery}_{name}": figure
        for delivery in ("at_least_once", "exactly_once")
        for name, figure in to_topic(server, topic, delivery).items()
    }


def to_topic(server: Server, topic: str, delivery: str) -> Figures:
    from spark_jobs.live import LiveConfig
    from spark_jobs.sink import topic_sink

    output = f"{topic}-{delivery}".replace("_", "-")
    create_topic(server, output, PARTITIONS, config={"retention.ms": "-1"})
    with tempfile.TemporaryDirectory(prefix="kafkapy-bench-spark-") as directory:
        settings: dict[str, Any] = {
            "delivery": delivery,
            "output_topic": output,
            "transactional_id": Path(directory).name,
        }
        config = LiveConfig(**stream_settings(server, topic, directory), **settings, transactions=PARTITIONS)
        rows = source_of(config).select("key", "value")
        with topic_sink(config, "bench", {output: None}, reset_output=False) as sink:
            figures = timed_stream(server, topic, rows, config, lambda batch, n: sink.write(batch, output, n))
    found = end_offsets(server, output, PARTITIONS)
    assert found >= _filled[server.name, topic], f"{output} has {found} records of {_filled[server.name, topic]}"
    delete_topic(server, output)
    return figures


def stream_settings(server: Server, topic: str, directory: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": server.bootstrap,
        "topics": [topic],
        "checkpoint": str(Path(directory, "checkpoint")),
        "trigger": "available_now",
        "max_offsets_per_trigger": -(-_filled[server.name, topic] // STREAM_BATCHES),
        "shuffle_partitions": 2,
    }


def source_of(config: Any) -> Any:
    from spark_jobs.source import read_topics

    return read_topics(spark_session(), config)


def trades_of(config: Any) -> Any:
    """Return good trades as silver writes them. Those that come twice stay: fill repeats them."""
    from pyspark.sql import functions as F

    from spark_jobs.schemas import SILVER_TRADE
    from spark_jobs.trades import parse_trades

    good = parse_trades(source_of(config)).where("reason IS NULL")
    return good.select(*SILVER_TRADE.names(), F.to_date("event_time").alias("date"))


def timed_stream(server: Server, topic: str, rows: Any, config: Any, write: Callable[[Any, int], None]) -> Figures:
    """Run a query from the topic's beginning to its end, and return what it cost."""
    from spark_jobs.batches import run_batches
    from spark_jobs.metrics import QueryMetrics

    with Cost(server) as cost:
        run_batches(rows, config, QueryMetrics(config, "bench"), write)
    return spark_figures(cost, _filled[server.name, topic])


WORKLOADS = [
    Workload("Spark ticks in real time", real_time, family="spark", warms_up=False, rounds=2, quick_rounds=0),
    Workload("Spark stream to Iceberg", to_iceberg, prepare=prepare, family="spark", rounds=2, quick_rounds=0),
    Workload("Spark stream to a topic", to_topics, prepare=prepare, family="spark", rounds=2, quick_rounds=0),
]
