"""End-to-end latency at a steady rate: from the moment at which a record was due to be sent until a consumer has it.

A record is due at start + number / rate, whether or not the ones before it could be sent in time, so that a broker that
stalls is charged for all that had to wait (no coordinated omission). Producer (linger 0, acks=all) and consumer are
librdkafka's, a process each, on one clock.
"""

import contextlib
import gc
import json
import statistics
import struct
import subprocess
import sys
import time
from functools import partial

from benchmarks.topics import create_topic, delete_topic
from benchmarks.workload import Cost, Figures, Workload
from harness.servers import Server

RATES = (1_000, 5_000, 20_000)
SECONDS = 20
RECORD_BYTES = 100
COUNTED = 0.75
"""The last part of the records, which counts; the first warms up."""
DUE_NS = struct.Struct(">q")
_TICK_SECONDS = 0.0005


def end_to_end(server: Server, topic: str, scale: float, *, rate: int, replicas: int = 1) -> Figures:
    create_topic(server, topic, replicas=replicas)
    count = int(rate * max(SECONDS * scale, 3))
    command = [sys.executable, "-m", "benchmarks.latency"]
    consumer = subprocess.Popen(
        [*command, "consume", server.bootstrap, topic, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert consumer.stdout is not None
    assert consumer.stdout.readline() == "ready\n"
    try:
        with Cost(server) as cost:
            producing = [*command, "produce", server.bootstrap, topic, str(count), str(rate)]
            subprocess.run(producing, check=True, timeout=count / rate + 120)
            found = json.loads(consumer.communicate(timeout=60)[0])
    finally:
        consumer.kill()
        consumer.wait()
    delete_topic(server, topic)
    figures = cost.figures(records=count, size_bytes=count * RECORD_BYTES)
    return {**found, "broker_cpu_s_per_million": figures["broker_cpu_s_per_million"]}


def _produce(bootstrap: str, topic: str, count: int, rate: int) -> None:
    from confluent_kafka import Producer

    settings = {"linger.ms": 0, "acks": "all", "queue.buffering.max.messages": count, "log_level": 4}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    producer.list_topics(topic, timeout=30)
    padding = b"x" * (RECORD_BYTES - DUE_NS.size)
    start_ns = time.monotonic_ns() + 100_000_000
    sent = 0
    while sent < count:
        due = min(count, (time.monotonic_ns() - start_ns) * rate // 1_000_000_000)
        for number in range(sent, due):
            producer.produce(topic, DUE_NS.pack(start_ns + number * 1_000_000_000 // rate) + padding, partition=0)
        sent = max(sent, due)
        producer.poll(0)
        time.sleep(_TICK_SECONDS)
    assert producer.flush(60) == 0


def _consume(bootstrap: str, topic: str, count: int) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "latency", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    consumer.poll(1.0)
    print("ready", flush=True)
    waited_ns: list[int] = []
    while len(waited_ns) < count:
        message = consumer.poll(10.0)
        assert message is not None, "the records do not come"
        assert message.error() is None, message.error()
        waited_ns.append(time.monotonic_ns() - DUE_NS.unpack_from(message.value() or b"")[0])
    consumer.close()
    print(json.dumps(_percentiles(waited_ns[-int(count * COUNTED) :])))


def _percentiles(waited_ns: list[int]) -> Figures:
    cuts = statistics.quantiles(waited_ns, n=1000, method="inclusive")
    return {"p50_ms": cuts[499] / 1e6, "p99_ms": cuts[989] / 1e6, "p999_ms": cuts[998] / 1e6}


WORKLOADS = [
    Workload(
        f"end to end at {rate:,} records/s",
        partial(end_to_end, rate=rate),
        family="latency",
    )
    for rate in RATES
]

if __name__ == "__main__":
    gc.disable()
    with contextlib.suppress(KeyboardInterrupt):
        if sys.argv[1] == "produce":
            _produce(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
        else:
            _consume(sys.argv[2], sys.argv[3], int(sys.argv[4]))
