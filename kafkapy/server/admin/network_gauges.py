"""Gauges of connections, received bytes and idle time.

Deviation: the idle percentages of Apache Kafka's network and request handler threads are all the share of time in which
the event loop's thread used no CPU since the last scrape: that one loop does the work of both kinds of threads.
"""

import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkapy.gauge import Gauge

if TYPE_CHECKING:
    from kafkapy.metrics.idle import IdleShare
    from kafkapy.reactor.reactor import Reactor

SOCKET_SERVER: Final = "kafka.network:type=SocketServer"
REQUEST_CHANNEL: Final = "kafka.network:type=RequestChannel"
SOCKETS: Final = "kafka.server:type=socket-server-metrics"
HANDLERS: Final = "kafka.server:type=KafkaRequestHandlerPool"
MAX_SOFTWARE: Final = 100
"""Clients by software name and version: further ones are counted together, as "other"."""


def idle_gauges(idle: "IdleShare", *, is_broker: bool, is_controller: bool) -> Iterator[Gauge]:
    """Yield how idle the event loop is; runs on its thread."""
    share = idle.read(time.monotonic(), time.thread_time())
    yield Gauge(SOCKET_SERVER, "NetworkProcessorAvgIdlePercent", share)
    kinds = ["", *(["Broker"] if is_broker else []), *(["Controller"] if is_controller else [])]
    for kind in kinds:
        yield Gauge(HANDLERS, f"{kind}RequestHandlerAvgIdlePercent", share)
        yield Gauge(HANDLERS, f"{kind}RequestHandlerAvgIdlePercent", idle.idle_ns, is_counter=True)


def network_gauges(reactor: "Reactor", idle: "IdleShare") -> Iterator[Gauge | None]:
    """Yield the gauges of the clients' connections."""
    backlog = reactor.backlog
    yield Gauge(SOCKET_SERVER, "MemoryPoolUsed", backlog.bytes)
    yield Gauge(SOCKET_SERVER, "MemoryPoolAvailable", max(backlog.max_bytes - backlog.bytes, 0))
    yield Gauge(SOCKET_SERVER, "ExpiredConnectionsKilledCount", 0)
    yield Gauge(REQUEST_CHANNEL, "RequestQueueSize", backlog.requests)
    yield Gauge(REQUEST_CHANNEL, "ResponseQueueSize", 0)
    for index in range(len(reactor.processors)):
        yield Gauge(REQUEST_CHANNEL, "ResponseQueueSize", 0, (("processor", str(index)),))
        yield Gauge("kafka.network:type=Processor", "IdlePercent", idle.share, (("networkProcessor", str(index)),))
    counts: Counter[tuple[str, int]] = Counter()
    software: Counter[tuple[str, str, str, int]] = Counter()
    for index, info in reactor.connections():
        counts[info.listener_name, index] += 1
        of_client = (info.software_name, info.software_version, info.listener_name, index)
        if of_client not in software and len(software) >= MAX_SOFTWARE:
            of_client = ("other", "other", info.listener_name, index)
        software[of_client] += 1
        yield None
    for (listener, index), created in list(reactor.created_counts.items()):
        tags = (("listener", listener), ("networkProcessor", str(index)))
        count = counts[listener, index]
        yield Gauge(SOCKETS, "connection-count", count, tags)
        yield Gauge(SOCKETS, "connection-creation-total", created, tags, is_counter=True)
        yield Gauge(SOCKETS, "connection-close-total", created - count, tags, is_counter=True)
    for (name, version, listener, index), count in software.items():
        where = (("listener", listener), ("networkProcessor", str(index)))
        client = (("clientSoftwareName", name), ("clientSoftwareVersion", version))
        yield Gauge(SOCKETS, "connections", count, client + where)
