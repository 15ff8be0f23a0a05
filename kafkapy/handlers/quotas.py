"""Byte rates of clients: a client beyond its quota is told so, then its connection is muted as long (KIP-124, KIP-219).

Deviation: the size of a Fetch response is counted as its records and some bytes for each partition that has any, or an
error; Apache Kafka counts the encoded response.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from kafkapy.handlers.context import RequestContext, Services
from kafkapy.seams import FileRegion

if TYPE_CHECKING:
    from kafkapy.protocol.messages.fetch_response import PartitionData

PARTITION_BYTES: Final = 44
"""Of a partition in a Fetch response, beside its records."""


def throttle_produce(services: Services, context: RequestContext, response: Any, size_bytes: int) -> None:
    """Count a Produce request; if its client is beyond producer_byte_rate, say so in the response and mute.

    `response`: None with acks=0, where the connection is muted all the same.
    """
    assert services.client_quotas is not None, "asked first"
    user, client_id = _client(context)
    now_ms = services.clock.monotonic_ms()
    throttle_ms = services.client_quotas.produce.record(user, client_id, size_bytes, now_ms)
    if throttle_ms == 0:
        return
    _mute(context, throttle_ms)
    if response is not None:
        response.throttle_time_ms = throttle_ms


def most_fetched(services: Services, context: RequestContext, max_bytes: int) -> int:
    """Return how much a Fetch may read: no more than consumer_byte_rate allows in all windows together."""
    assert services.client_quotas is not None, "asked first"
    most = services.client_quotas.fetch.most_in_windows(*_client(context))
    return max_bytes if most is None or most >= max_bytes else int(most)


def throttle_fetch(services: Services, context: RequestContext, answers: "Iterable[tuple[Any, PartitionData]]") -> int:
    """Count a Fetch response; return for how long its client, and its connection, is throttled.

    A response for which the client is throttled does not count: it is not sent.
    """
    assert services.client_quotas is not None, "asked first"
    user, client_id = _client(context)
    size_bytes = sum(sent_bytes(answer) for _, answer in answers)
    now_ms = services.clock.monotonic_ms()
    quota = services.client_quotas.fetch
    throttle_ms = quota.record(user, client_id, size_bytes, now_ms)
    if throttle_ms > 0:
        quota.unrecord(user, client_id, size_bytes, now_ms)
        _mute(context, throttle_ms)
    return throttle_ms


def sent_bytes(answer: "PartitionData") -> int:
    """Return how many bytes of a Fetch response a partition counts as."""
    records = answer.records
    record_bytes = records.length if isinstance(records, FileRegion) else len(records or b"")
    return PARTITION_BYTES + record_bytes if record_bytes or answer.error_code else 0


def _client(context: RequestContext) -> tuple[str, str]:
    """Return user and client-id, empty without one."""
    return context.principal.partition(":")[2], context.client_id or ""


def _mute(context: RequestContext, throttle_ms: int) -> None:
    connection = context.connection
    connection.throttle_ms = max(connection.throttle_ms, throttle_ms)
