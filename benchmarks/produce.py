"""Producing: Apache Kafka's ProducerPerformance as fast as it goes, and many small requests."""

from functools import partial
from typing import Any

from benchmarks.java_clients import produce
from benchmarks.topics import create_topic, delete_topic
from benchmarks.wire import Pipe, end_offsets, new_batch, produce_frame, run_pipes
from benchmarks.workload import Cost, Figures, Workload
from harness.servers import Server

NO_SETTINGS: dict[str, Any] = {}
LARGE_BATCHES: dict[str, Any] = {"batch_size": "65536", "linger_ms": "10"}
DEPTH = 5
"""Requests under way on a connection, as with Java's producer."""


def produce_with_java(
    server: Server, topic: str, scale: float, *, record_bytes: int, partitions: int, acks: str, **settings: Any
) -> Figures:
    records = int(min(4_000_000, 1_500_000_000 // record_bytes) * scale)
    create_topic(server, topic, partitions)
    figures = produce(server, topic, records=records, record_bytes=record_bytes, acks=acks, **settings)
    delete_topic(server, topic)
    return figures


def _java_workloads() -> list[Workload]:
    """All combinations; the quick ones are the commonest, with small and large records, and that with large batches."""
    workloads = []
    for record_bytes, size in ((100, "100 B"), (1024, "1 KiB")):
        for settings, batches in ((NO_SETTINGS, "16 KiB batches"), (LARGE_BATCHES, "64 KiB batches")):
            for acks, said in (("all", "acks=all idempotent"), ("1", "acks=1")):
                for partitions in (1, 16):
                    is_quick = acks == "all" and partitions == 1 and (record_bytes, bool(settings)) != (1024, True)
                    run = partial(
                        produce_with_java, record_bytes=record_bytes, partitions=partitions, acks=acks, **settings
                    )
                    name = f"{size}, {batches}, {said}, {partitions} partition{'s' * (partitions > 1)}"
                    workloads.append(Workload(f"produce {name}", run, family="produce", quick_rounds=2 * is_quick))
    return workloads


def small_requests(server: Server, topic: str, scale: float, *, connections: int) -> Figures:
    """Produce requests of one record of 100 bytes, acks=1, five under way on each connection, over 16 partitions."""
    requests = int(200_000 * scale)
    partitions = 16
    create_topic(server, topic, partitions)
    batch = new_batch(1, 100)
    frames = [produce_frame(topic, partition, batch) for partition in range(partitions)]
    pipes = [Pipe(server, [frames[number % partitions]], DEPTH) for number in range(connections)]
    with Cost(server) as cost:
        run_pipes(pipes, requests)
    for pipe in pipes:
        pipe.connection.close()
    assert end_offsets(server, topic, partitions) == requests + connections, "not all that was sent is there"
    delete_topic(server, topic)
    return {
        "requests_per_s": requests / cost.seconds,
        "broker_cpu_us_per_request": cost.cpu_s / requests * 1e6,
        "peak_memory_mb": cost.peak_memory_mb,
    }


WORKLOADS = [
    *_java_workloads(),
    *(
        Workload(
            f"one record a request, {count} connection{'s' * (count > 1)}",
            partial(small_requests, connections=count),
            family="requests",
        )
        for count in (1, 10, 100)
    ),
]
