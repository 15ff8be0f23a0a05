"""Gauges of clients with quotas, under the names of Apache Kafka's sensors.

A rate shared by all users, or by all client ids of a user, has an empty label for them. Deviation: Apache Kafka reports
all clients of each quota. Here the most recently measured ones, MAX_SHOWN at most, because client-ids may be very many.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kafkapy.gauge import Gauge

if TYPE_CHECKING:
    from kafkapy.security.quotas import Bucket, ClientQuotas


def quota_gauges(quotas: "ClientQuotas | None", now_ms: int) -> Iterator[Gauge]:
    """`now_ms`: of the monotonic clock, as used by the rates."""
    if quotas is None:
        return
    for kind, quota, name in (
        ("Produce", quotas.produce, "byte-rate"),
        ("Fetch", quotas.fetch, "byte-rate"),
        ("Request", quotas.request, "request-time"),
    ):
        yield from _of_buckets(kind, name, quota.rates(now_ms))
        yield from _of_buckets(kind, "throttle-time", quota.throttles(now_ms))
    yield from _of_buckets("ControllerMutation", "tokens", quotas.mutation.tokens(now_ms))


def _of_buckets(kind: str, name: str, measured: "list[tuple[Bucket, float]]") -> Iterator[Gauge]:
    for (user, client_id), value in measured:
        yield Gauge(f"kafka.server:type={kind}", name, value, (("user", user), ("client_id", client_id)))
