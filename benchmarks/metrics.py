"""What metrics cost: kafkapy with an admin listener beside kafkapy without one, and a scrape of many partitions.

Apache Kafka takes no part: it counts always. `metrics_cost` is a share: 0.1 means a tenth more CPU for each request.
"""

import threading
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks import produce, sockets
from benchmarks.topics import create_topic, delete_topic
from benchmarks.wire import call, connect, new_batch, produce_frame, receive
from benchmarks.workload import METERED, Cost, Figures, Workload
from harness.servers import Kafkapy, Server
from kafkapy.protocol.messages.metadata_request import MetadataRequest

CPU = "broker_cpu_us_per_request"
PARTITIONS = 10_000
PARTITIONS_A_TOPIC = 1_000
SCRAPES = 5
REQUESTS = 3_000
TIMEOUT_S = 60


def beside_unmetered(
    server: Server, topic: str, scale: float, *, load: Callable[[Server, str, float], Figures]
) -> Figures:
    """Run a load on the server, which has metrics, and on one that has none: A B B A, half of it each time."""
    with Kafkapy(Path(f"{server.directory}-unmetered")) as unmetered:
        for each in (unmetered, server):
            load(each, f"{topic}-warm", scale / 10)
        turns = [(each, load(each, topic, scale / 2)) for each in (unmetered, server, server, unmetered)]
    with_metrics = [found for each, found in turns if each is server]
    without = [found for each, found in turns if each is unmetered]
    return {
        CPU: _mean(with_metrics, CPU),
        "unmetered_cpu_us_per_request": _mean(without, CPU),
        "metrics_cost": _mean(with_metrics, CPU) / _mean(without, CPU) - 1,
        "requests_per_s": _mean(with_metrics, "requests_per_s"),
        "unmetered_requests_per_s": _mean(without, "requests_per_s"),
    }


def _mean(found: list[Figures], figure: str) -> float:
    return sum(each[figure] for each in found) / len(found)


def fetch_small(server: Server, topic: str, scale: float) -> Figures:
    """Fetch a batch of 4 KiB again and again."""
    sockets.fill_topic(server, topic, scale)
    began = time.monotonic()
    figures = sockets.fetch(server, topic, scale, fetch_bytes=4096, total_bytes=100_000 * 4096)
    requests = max(sockets.FETCH_DEPTH, int(100_000 * scale))
    delete_topic(server, topic)
    return {CPU: figures[CPU], "requests_per_s": requests / (time.monotonic() - began)}


def scrape(server: Server, topic: str, scale: float) -> Figures:
    """Scrape the metrics of many partitions; and the latency of small produces, without and with scrapes meanwhile."""
    count = max(int(PARTITIONS * scale), 10)
    names = [f"{topic}-{number}" for number in range(-(-count // PARTITIONS_A_TOPIC))]
    for name in names:
        create_topic(server, name, min(count, PARTITIONS_A_TOPIC))
    _scrape(server)
    with Cost(server) as cost:
        times = [_scrape(server) for _ in range(SCRAPES)]
    quiet_ms = _p99_ms(server, names[0], scale, with_scrapes=False)
    scraped_ms = _p99_ms(server, names[0], scale, with_scrapes=True)
    for name in names:
        delete_topic(server, name)
    return {
        "scrape_ms": sorted(times)[SCRAPES // 2],
        "broker_cpu_ms_per_scrape": cost.cpu_s / SCRAPES * 1000,
        "p99_ms": scraped_ms,
        "p99_ms_without_scrapes": quiet_ms,
        "p99_raised_by_ms": max(scraped_ms - quiet_ms, 0.0),
        "peak_memory_mb": cost.peak_memory_mb,
    }


def _scrape(server: Server) -> float:
    """Read /metrics; return how long that took, in milliseconds."""
    assert isinstance(server, Kafkapy)
    address = server.properties["kafkapy.admin.listener"]
    began = time.monotonic()
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=TIMEOUT_S) as response:
        assert b"kafka_server_brokertopicmetrics" in response.read()
    return (time.monotonic() - began) * 1000


def _p99_ms(server: Server, topic: str, scale: float, *, with_scrapes: bool) -> float:
    """Return the 99th percentile of produce requests' times, one after the other; while one scrape follows another."""
    frame = produce_frame(topic, 0, new_batch(1, 100))
    is_over = threading.Event()

    def scrape_on() -> None:
        while with_scrapes and not is_over.is_set():
            _scrape(server)

    scraping = threading.Thread(target=scrape_on)
    times = []
    with connect(server) as connection:
        call(connection, MetadataRequest(topics=[]), 9)
        scraping.start()
        try:
            for _ in range(max(int(REQUESTS * scale), 100)):
                began = time.monotonic()
                connection.sendall(frame)
                receive(connection)
                times.append((time.monotonic() - began) * 1000)
        finally:
            is_over.set()
            scraping.join()
    return sorted(times)[len(times) * 99 // 100]


WORKLOADS = [
    *(
        Workload(
            f"metrics: one record a request, {count} connection{'s' * (count > 1)}",
            partial(beside_unmetered, load=partial(produce.small_requests, connections=count)),
            family="metrics",
            servers=METERED,
            is_beside_apache=False,
            warms_up=False,
        )
        for count in (1, 10)
    ),
    Workload(
        "metrics: fetches of 4 KiB",
        partial(beside_unmetered, load=fetch_small),
        family="metrics",
        servers=METERED,
        is_beside_apache=False,
        warms_up=False,
    ),
    Workload(
        "metrics: scrapes of 10,000 partitions",
        scrape,
        family="metrics",
        servers=METERED,
        is_beside_apache=False,
        warms_up=False,
    ),
]
