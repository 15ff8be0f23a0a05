"""RequestMetrics: what kafkapy.metrics.requests has counted, under Apache Kafka's names.

Deviation: Apache Kafka has series of all APIs from the start. Here only APIs that were requested have some, because
most never are.
"""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkapy.gauge import Distribution, Gauge, Measured
from kafkapy.metrics.requests import FETCH
from kafkapy.protocol.api import APIS
from kafkapy.protocol.error_code import ErrorCode

if TYPE_CHECKING:
    from kafkapy.metrics.requests import ApiCounts, RequestCounts
    from kafkapy.metrics.traffic import BrokerTraffic

REQUEST_METRICS: Final = "kafka.network:type=RequestMetrics"
PRODUCE: Final = 0
MILLISECONDS: Final = 0.001
"""Per unit of the histograms, which count microseconds."""


def request_gauges(counts: "RequestCounts", traffic: "BrokerTraffic") -> Iterator[Measured | None]:
    """Yield the metrics of all requested APIs; those of Fetch also apart, for consumers and followers.

    traffic: has the conversions of Produce requests.
    """
    for version in counts.versions():
        names = _names(version.api_key, is_follower=version.is_follower)
        if version.request_count:
            for name in names if version.api_key != FETCH else names[:1]:
                tags = (("request", name), ("version", str(version.version)))
                yield Gauge(REQUEST_METRICS, "RequestsPerSec", version.request_count, tags, is_counter=True)
    yield from _fetches_of_both_kinds(counts)
    for (api_key, is_follower), api in list(counts.apis.items()):
        yield from _of_api(_names(api_key, is_follower=is_follower)[0], [api])
        if api_key == PRODUCE:
            yield from _conversions("Produce", _count(api), traffic)
        yield None
    both = [api for (api_key, _), api in counts.apis.items() if api_key == FETCH]
    if both:
        yield from _of_api("Fetch", both)
        yield from _conversions("Fetch", sum(map(_count, both)), None)
    for api_key, errors in list(counts.errors.items()):
        by_name: Counter[str] = Counter()  # codes of later releases have one name
        for code, count in list(errors.items()):
            by_name[ErrorCode(code).name] += count
        for name, count in by_name.items():
            tags = (("request", APIS[api_key].name), ("error", name))
            yield Gauge(REQUEST_METRICS, "ErrorsPerSec", count, tags, is_counter=True)


def _fetches_of_both_kinds(counts: "RequestCounts") -> Iterator[Gauge]:
    by_version: dict[int, int] = {}
    for version in counts.versions():
        if version.api_key == FETCH and version.request_count:
            by_version[version.version] = by_version.get(version.version, 0) + version.request_count
    for number, count in by_version.items():
        tags = (("request", "Fetch"), ("version", str(number)))
        yield Gauge(REQUEST_METRICS, "RequestsPerSec", count, tags, is_counter=True)


def _names(api_key: int, *, is_follower: bool) -> tuple[str, ...]:
    if api_key == FETCH:
        return ("FetchFollower",) if is_follower else ("FetchConsumer",)
    api = APIS.get(api_key)
    return (api.name if api is not None else str(api_key),)


def _of_api(name: str, apis: "list[ApiCounts]") -> Iterator[Distribution]:
    tags = (("request", name),)
    at_once = [api.at_once.copy() for api in apis]
    waited = [api.waited.copy() for api in apis]
    at_once_count = sum(map(sum, at_once))
    count = at_once_count + sum(map(sum, waited))
    throttled = [api.throttled_ms.copy() for api in apis]
    yield Distribution(REQUEST_METRICS, "TotalTimeMs", tags, at_once + waited, unit=MILLISECONDS)
    local = at_once + [api.local.copy() for api in apis]
    yield Distribution(REQUEST_METRICS, "LocalTimeMs", tags, local, unit=MILLISECONDS)
    remote = [api.remote.copy() for api in apis]
    yield Distribution(REQUEST_METRICS, "RemoteTimeMs", tags, remote, at_once_count, MILLISECONDS)
    yield Distribution(REQUEST_METRICS, "ThrottleTimeMs", tags, throttled, count - sum(map(sum, throttled)))
    yield Distribution(REQUEST_METRICS, "RequestBytes", tags, [api.frame_bytes.copy() for api in apis])
    for zero in ("RequestQueueTimeMs", "ResponseQueueTimeMs", "ResponseSendTimeMs"):
        yield Distribution(REQUEST_METRICS, zero, tags, (), count)


def _count(api: "ApiCounts") -> int:
    return sum(api.at_once) + sum(api.waited)


def _conversions(name: str, count: int, traffic: "BrokerTraffic | None") -> Iterator[Distribution]:
    """Yield the work that conversions took; traffic: None for Fetch, which Kafka 4 converts no more."""
    tags = (("request", name),)
    times = [] if traffic is None else [traffic.conversion_us.copy()]
    sizes = [] if traffic is None else [traffic.temporary_bytes.copy()]
    for metric, histograms, unit in (
        ("MessageConversionsTimeMs", times, MILLISECONDS),
        ("TemporaryMemoryBytes", sizes, 1.0),
    ):
        zeros = max(count - sum(map(sum, histograms)), 0)  # a request under way is in the histograms only
        yield Distribution(REQUEST_METRICS, metric, tags, histograms, zeros, unit)
