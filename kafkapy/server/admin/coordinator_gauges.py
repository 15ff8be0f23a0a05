"""Gauges of what runs group and share coordinators, under the names of Apache Kafka's CoordinatorRuntimeMetrics.

There, threads take events from a queue. Here the event loop decides a request when it has read it: nothing is queued,
and the loop's idle time is the threads'.
"""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkapy.gauge import Gauge

if TYPE_CHECKING:
    from kafkapy.metrics.coordinators import CoordinatorCounts
    from kafkapy.metrics.registry import NodeCounts

QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999, "max": 1.0}
"""In ascending order."""


def runtime_gauges(counts: "NodeCounts") -> Iterator[Gauge]:
    yield from _of_kind("group", counts.group_coordinator, counts)
    yield from _of_kind("share", counts.share_coordinator, counts)


def _of_kind(kind: str, own: "CoordinatorCounts", counts: "NodeCounts") -> Iterator[Gauge]:
    group = f"kafka.server:type={kind}-coordinator-metrics"
    yield Gauge(group, "thread-idle-ratio-avg", counts.idle.share)
    yield Gauge(group, "event-queue-size", 0)
    rate = counts.rates.per_second(f"{kind}-coordinator-flushes", own.flush_us.count, time.monotonic())
    yield Gauge(group, "batch-flush-rate", rate)
    flush_us = own.flush_us.quantiles([*QUANTILES.values()])
    for name, value_us in zip(QUANTILES, flush_us, strict=True):
        yield Gauge(group, f"batch-flush-time-ms-{name}", value_us / 1000)
        yield Gauge(group, f"event-queue-time-ms-{name}", 0)
