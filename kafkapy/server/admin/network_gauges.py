"""Gauges of connections, their bytes, requests and logins, and of idle time.

Deviations: with TLS, bytes are those of the wire, where Apache Kafka counts decrypted ones. Rates are those since the
newest scrape that is half a minute old, where Apache Kafka's are those of two windows of 30 s.

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
    from kafkapy.metrics.rates import Rates
    from kafkapy.protocol.traffic import ConnectionTraffic
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


def network_gauges(reactor: "Reactor", idle: "IdleShare", rates: "Rates") -> Iterator[Gauge | None]:
    """Yield the gauges of the clients' connections."""
    now_s = time.monotonic()
    request_memory = reactor.request_memory
    yield Gauge(SOCKET_SERVER, "MemoryPoolUsed", request_memory.bytes)
    yield Gauge(SOCKET_SERVER, "MemoryPoolAvailable", max(request_memory.max_bytes - request_memory.bytes, 0))
    traffic = reactor.traffic if reactor.traffic is not None else {}
    yield Gauge(SOCKET_SERVER, "ExpiredConnectionsKilledCount", sum(each.expired for each in traffic.values()))
    yield Gauge(REQUEST_CHANNEL, "RequestQueueSize", request_memory.requests)
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
        for name, total in (("connection-creation", created), ("connection-close", created - count)):
            yield Gauge(SOCKETS, f"{name}-rate", rates.per_second((name, tags), total, now_s), tags)
        if (listener, index) in traffic:
            yield from _of_traffic(traffic[listener, index], tags, rates, now_s)
    for (name, version, listener, index), count in software.items():
        where = (("listener", listener), ("networkProcessor", str(index)))
        client = (("clientSoftwareName", name), ("clientSoftwareVersion", version))
        yield Gauge(SOCKETS, "connections", count, client + where)


def _of_traffic(
    counts: "ConnectionTraffic", tags: tuple[tuple[str, str], ...], rates: "Rates", now_s: float
) -> Iterator[Gauge]:
    """Yield totals and rates. In the names of Apache Kafka's library a broker's responses are its requests."""
    for name, total in (
        ("incoming-byte", counts.received_bytes),
        ("outgoing-byte", counts.sent_bytes),
        ("network-io", counts.reads + counts.writes),
        ("request", counts.responses),
        ("response", counts.requests),
        ("successful-authentication", counts.logins),
        ("failed-authentication", counts.failed_logins),
        ("successful-reauthentication", counts.renewals),
        ("failed-reauthentication", counts.failed_renewals),
    ):
        yield Gauge(SOCKETS, f"{name}-total", total, tags, is_counter=True)
        yield Gauge(SOCKETS, f"{name}-rate", rates.per_second((name, tags), total, now_s), tags)
    yield Gauge(SOCKETS, "expired-connections-killed-count", counts.expired, tags)
    yield Gauge(SOCKETS, "request-size-avg", counts.sent_bytes / max(counts.responses, 1), tags)
