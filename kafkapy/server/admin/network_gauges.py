"""Gauges of connections, their bytes, requests and logins, and of idle time.

Deviation: Apache Kafka counts decrypted bytes, and its rates are those of two windows of 30 s. Here bytes are those of
the wire, and rates those since the newest scrape that is half a minute old, because nothing is counted twice.

Deviation: Apache Kafka has network threads and request handler threads, each with an idle percentage. Here all are the
share of time in which the event loop's thread used no CPU since the last scrape, because that one loop does the work of
both kinds. So are io-ratio and io-wait-ratio. A select is a call that tries to receive or send on one connection, since
libuv does not tell how often it polls all of them; the maximum of request sizes is that of the last minute or the last
scrape.
"""

import math
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkapy.gauge import Gauge
from kafkapy.server.admin.names import Tags

if TYPE_CHECKING:
    from kafkapy.metrics.idle import IdleShare
    from kafkapy.metrics.rates import Rates
    from kafkapy.protocol.traffic import ConnectionTraffic, OutboundTraffic
    from kafkapy.reactor.reactor import Reactor

SOCKET_SERVER: Final = "kafka.network:type=SocketServer"
ACCEPTOR: Final = "kafka.network:type=Acceptor"
REQUEST_CHANNEL: Final = "kafka.network:type=RequestChannel"
SOCKETS: Final = "kafka.server:type=socket-server-metrics"
RAFT_CHANNEL: Final = "kafka.server:type=raft-channel-metrics"
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
    yield Gauge("", "kafkapy_unsent_response_bytes", reactor.unsent.bytes)
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
        # clients choose their name and version: no more series than so many
        if of_client not in software and len(software) >= MAX_SOFTWARE:
            of_client = ("other", "other", info.listener_name, index)
        software[of_client] += 1
        yield None
    for acceptor in reactor.acceptors:
        of_listener = (("listener", acceptor.listener_name),)
        yield Gauge(ACCEPTOR, "AcceptorBlockedPercent", acceptor.blocked_ns, of_listener, is_counter=True)
    yield from _connection_gauges(reactor, counts, idle, rates, now_s)
    for (name, version, listener, index), count in software.items():
        where = (("listener", listener), ("networkProcessor", str(index)))
        client = (("clientSoftwareName", name), ("clientSoftwareVersion", version))
        yield Gauge(SOCKETS, "connections", count, client + where)


def _connection_gauges(
    reactor: "Reactor", counts: "Counter[tuple[str, int]]", idle: "IdleShare", rates: "Rates", now_s: float
) -> Iterator[Gauge]:
    """Yield the gauges of each listener's connections at each processor. `counts`: how many there are."""
    traffic = reactor.traffic if reactor.traffic is not None else {}
    for (listener, index), created in list(reactor.created_counts.items()):
        tags = (("listener", listener), ("networkProcessor", str(index)))
        count = counts[listener, index]
        yield Gauge(SOCKETS, "connection-count", count, tags)
        yield Gauge(SOCKETS, "connection-creation-total", created, tags, is_counter=True)
        yield Gauge(SOCKETS, "connection-close-total", created - count, tags, is_counter=True)
        for name, total in (("connection-creation", created), ("connection-close", created - count)):
            yield Gauge(SOCKETS, f"{name}-rate", rates.per_second((SOCKETS, name, tags), total, now_s), tags)
        if (listener, index) in traffic:
            yield from traffic_of(SOCKETS, traffic[listener, index], tags, rates, now_s)
            yield from polls_of(SOCKETS, traffic[listener, index].polls, tags, idle, rates, now_s)
            expired = traffic[listener, index].expired
            yield Gauge(SOCKETS, "expired-connections-killed-count", expired, tags)


def traffic_of(group: str, counts: "ConnectionTraffic", tags: Tags, rates: "Rates", now_s: float) -> Iterator[Gauge]:
    """Yield totals and rates. In the names of Apache Kafka's library all that a node sends are requests."""
    now_ms = round(now_s * 1000)
    for name, total in (
        ("incoming-byte", counts.received_bytes),
        ("outgoing-byte", counts.sent_bytes),
        ("network-io", counts.reads + counts.writes),
        ("request", counts.sent_frames),
        ("response", counts.received_frames),
        ("successful-authentication", counts.logins),
        ("failed-authentication", counts.failed_logins),
        ("successful-reauthentication", counts.reauthentications),
        ("failed-reauthentication", counts.failed_reauthentications),
    ):
        yield Gauge(group, f"{name}-total", total, tags, is_counter=True)
        yield Gauge(group, f"{name}-rate", rates.per_second((group, name, tags), total, now_s), tags)
    without_reauthentication = counts.logins_without_reauthentication
    yield Gauge(group, "successful-authentication-no-reauth-total", without_reauthentication, tags, is_counter=True)
    latencies = zip(("avg", "max"), counts.reauthentication_ms.read(now_ms), strict=True)
    for name, value in latencies:
        yield Gauge(group, f"reauthentication-latency-{name}", value, tags)
    average = counts.sent_bytes / counts.sent_frames if counts.sent_frames else math.nan
    yield Gauge(group, "request-size-avg", average, tags)
    yield Gauge(group, "request-size-max", counts.longest_recent_frame(now_ms), tags)


def polls_of(group: str, count: int, tags: Tags, idle: "IdleShare", rates: "Rates", now_s: float) -> Iterator[Gauge]:
    """Yield how often connections were polled for IO, and how long the event loop worked and waited in all."""
    yield Gauge(group, "select-total", count, tags, is_counter=True)
    yield Gauge(group, "select-rate", rates.per_second((group, "select", tags), count, now_s), tags)
    for name, share, total_ns in (
        ("io", 1 - idle.share, idle.busy_ns),
        ("io-wait", idle.share, idle.idle_ns),
    ):
        yield Gauge(group, f"{name}-ratio", share, tags)
        yield Gauge(group, f"{name}-time-ns-total", total_ns, tags, is_counter=True)
        yield Gauge(group, f"{name}-time-ns-avg", total_ns / count if count else math.nan, tags)


def raft_channel_gauges(counts: "OutboundTraffic", idle: "IdleShare", rates: "Rates") -> Iterator[Gauge]:
    """Yield the gauges of the connections to the voters of the quorum; zeros on a node that is its only voter."""
    now_s = time.monotonic()
    yield Gauge(RAFT_CHANNEL, "connection-count", counts.opened - counts.closed)
    for name, total in (("connection-creation", counts.opened), ("connection-close", counts.closed)):
        yield Gauge(RAFT_CHANNEL, f"{name}-total", total, is_counter=True)
        yield Gauge(RAFT_CHANNEL, f"{name}-rate", rates.per_second((RAFT_CHANNEL, name), total, now_s))
    yield from traffic_of(RAFT_CHANNEL, counts, (), rates, now_s)
    yield from polls_of(RAFT_CHANNEL, counts.polls, (), idle, rates, now_s)
