"""Metrics of Fetch requests: of consumers, of followers, and of both together; conversions of Produce requests."""

from kafkapy.gauge import Distribution, Gauge
from kafkapy.metrics.histogram import bucket_of
from kafkapy.metrics.requests import RequestCounts
from kafkapy.metrics.traffic import BrokerTraffic
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.server.admin.request_gauges import request_gauges

FETCH_17 = (1 << 16) | 17
PRODUCE_12 = 12
CREATE_TOPICS = 19
LATER_CODES = (9_998, 9_999)


def test_fetches_of_consumers_and_followers() -> None:
    counts = RequestCounts()
    consumers = counts.of(FETCH_17)
    followers = consumers.followers
    assert followers is not None
    for version, count in ((consumers, 2), (followers, 3)):
        version.request_count += count
        version.api.at_once[7] += count
    found = [each for each in request_gauges(counts, BrokerTraffic()) if each is not None]
    requests = {dict(each.tags)["request"]: each.value for each in found if isinstance(each, Gauge)}
    assert requests == {"FetchConsumer": 2, "FetchFollower": 3, "Fetch": 5}
    times = {
        dict(each.tags)["request"]: sum(map(sum, each.histograms))
        for each in found
        if isinstance(each, Distribution) and each.name == "TotalTimeMs"
    }
    assert times == requests


def test_conversions_of_produce_requests_are_exported_with_zeros_for_the_others() -> None:
    counts, traffic = RequestCounts(), BrokerTraffic()
    counts.of(PRODUCE_12).api.at_once[7] += 3
    traffic.record_validation(temporary_bytes=2000, conversion_ns=0)
    traffic.record_validation(temporary_bytes=4000, conversion_ns=5_000)
    found = {each.name: each for each in request_gauges(counts, traffic) if isinstance(each, Distribution)}
    times, sizes = found["MessageConversionsTimeMs"], found["TemporaryMemoryBytes"]
    assert (times.zeros, sum(times.histograms[0]), times.histograms[0][5], times.unit) == (2, 1, 1, 0.001)
    assert (sizes.zeros, sum(sizes.histograms[0]), sizes.histograms[0][bucket_of(4000)], sizes.unit) == (1, 2, 1, 1.0)


def test_codes_of_later_releases_are_one_series() -> None:
    """They have one name, and a scrape must not have two samples of one series."""
    counts = RequestCounts()
    counts.errors_of(CREATE_TOPICS).update((*LATER_CODES, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE))
    found = [each for each in request_gauges(counts, BrokerTraffic()) if isinstance(each, Gauge)]
    errors = [(dict(each.tags)["error"], each.value) for each in found if each.name == "ErrorsPerSec"]
    assert sorted(errors) == [("NONE", 1), ("UNKNOWN_SERVER_ERROR", 3)]
