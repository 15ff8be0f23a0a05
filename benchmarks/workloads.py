"""The loads: each runs against one server with a client that is the same for both, and returns its figures.

A figure's name ends in its unit; `higher_is_better` tells how a ratio of it is to be read.
"""

import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.servers import Server, java
from tools.kafka import kcat

Figures = dict[str, float]


@dataclass(frozen=True)
class Workload:
    name: str
    run: Callable[[Server, str, float], Figures]
    """(server, a topic name of its own, scale of the load) -> figures"""


def create_topic(server: Server, topic: str, partitions: int = 1) -> None:
    from spark_jobs.topics import create_topic

    create_topic(server.bootstrap, topic, partitions)


def produce_with_java(server: Server, topic: str, *, records: int, record_bytes: int, **settings: str) -> Figures:
    """Apache Kafka's ProducerPerformance as fast as it goes, acks=all, idempotent: the Java client's defaults."""
    load = ["--topic", topic, "--num-records", str(records), "--record-size", str(record_bytes), "--throughput", "-1"]
    properties = [f"{key}={value}" for key, value in settings.items()]
    extra = ["--producer-props", *properties] if properties else []
    command = java("org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", server.bootstrap, *load, *extra)
    cpu = server.cpu_s()
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    cpu = server.cpu_s() - cpu
    (last,) = re.findall(r"(\d+) records sent, ([\d.]+) records/sec .* (\d+) ms 99th", said)[-1:]
    megabytes = records * record_bytes / 1e6
    return {
        "records_per_s": float(last[1]),
        "p99_ms": float(last[2]),
        "broker_cpu_s_per_gb": cpu / megabytes * 1000,
        "broker_cpu_s_per_million": cpu / records * 1e6,
    }


def produce_100b(server: Server, topic: str, scale: float) -> Figures:
    create_topic(server, topic)
    return produce_with_java(server, topic, records=int(2_000_000 * scale), record_bytes=100)


def produce_1k(server: Server, topic: str, scale: float) -> Figures:
    create_topic(server, topic)
    return produce_with_java(server, topic, records=int(500_000 * scale), record_bytes=1024)


def produce_100b_large_batches(server: Server, topic: str, scale: float) -> Figures:
    create_topic(server, topic)
    settings = {"batch.size": "65536", "linger.ms": "10"}
    return produce_with_java(server, topic, records=int(3_000_000 * scale), record_bytes=100, **settings)


def catch_up(server: Server, topic: str, scale: float) -> Figures:
    """kcat reads a topic from its beginning to its end."""
    records = int(2_000_000 * scale)
    create_topic(server, topic)
    produce_with_java(server, topic, records=records, record_bytes=100, **{"batch.size": "65536", "linger.ms": "10"})
    program = kcat()
    assert program is not None, "kcat is missing: run `make tools`"
    command = [program, "-b", server.bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", ""]
    cpu, started = server.cpu_s(), time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - started
    cpu = server.cpu_s() - cpu
    return {"records_per_s": records / seconds, "broker_cpu_s_per_gb": cpu / (records * 100 / 1e9)}


def small_requests(server: Server, topic: str, scale: float) -> Figures:
    """librdkafka, one record a request, many requests in flight on one connection."""
    from confluent_kafka import Producer

    requests = int(100_000 * scale)
    create_topic(server, topic)
    settings = {"bootstrap.servers": server.bootstrap, "linger.ms": 0, "batch.num.messages": 1, "acks": "1"}
    producer = Producer({**settings, "queue.buffering.max.messages": requests + 1})
    producer.produce(topic, b"warm")
    producer.flush(30)
    cpu, started = server.cpu_s(), time.monotonic()
    for _ in range(requests):
        producer.produce(topic, b"x" * 100, partition=0)
    assert producer.flush(120) == 0
    seconds = time.monotonic() - started
    return {"requests_per_s": requests / seconds, "broker_cpu_us_per_request": (server.cpu_s() - cpu) / requests * 1e6}


def at_rest(server: Server, topic: str, scale: float) -> Figures:
    """A fresh server with nothing to do: started again on its directory, then left alone for a while."""
    server.stop()
    server.start()
    ready_s = server.ready_after_s
    time.sleep(2)
    cpu = server.cpu_s()
    time.sleep(5)
    return {
        "ready_s": ready_s,
        "idle_memory_mb": server.memory_mb(),
        "idle_cpu_percent": (server.cpu_s() - cpu) / 5 * 100,
    }


WORKLOADS = [
    Workload("start and rest", at_rest),
    Workload("produce 100 B", produce_100b),
    Workload("produce 1 KiB", produce_1k),
    Workload("produce 100 B, 64 KiB batches", produce_100b_large_batches),
    Workload("one record a request", small_requests),
    Workload("catch-up, kcat", catch_up),
]


def is_higher_better(figure: str) -> bool:
    return figure.endswith("_per_s")
