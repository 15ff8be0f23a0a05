"""Fetches of consumers and of followers are told apart, and together."""

from kafkapy.gauge import Distribution, Gauge
from kafkapy.metrics.requests import RequestCounts
from kafkapy.server.admin.request_gauges import request_gauges

FETCH_17 = (1 << 16) | 17


def test_fetches_of_consumers_and_followers() -> None:
    counts = RequestCounts()
    consumers = counts.of(FETCH_17)
    followers = consumers.followers
    assert followers is not None
    for version, count in ((consumers, 2), (followers, 3)):
        version.request_count += count
        version.api.at_once[7] += count
    found = [each for each in request_gauges(counts) if each is not None]
    requests = {dict(each.tags)["request"]: each.value for each in found if isinstance(each, Gauge)}
    assert requests == {"FetchConsumer": 2, "FetchFollower": 3, "Fetch": 5}
    times = {
        dict(each.tags)["request"]: sum(map(sum, each.histograms))
        for each in found
        if isinstance(each, Distribution) and each.name == "TotalTimeMs"
    }
    assert times == requests
