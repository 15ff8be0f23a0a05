"""Counts of requests: kafka.network:type=RequestMetrics.

Most requests are answered without waiting. They are counted by three increments: the requests of their API and version,
their time, their size. Those that wait have two histograms more. All others are derived when they are read:
local time = time of requests that did not wait + time up to the first wait of the others.

Deviation: Apache Kafka's times are whole milliseconds. Here they have fractions, because most are below one. Deviation:
Apache Kafka has queues of requests and responses. Here RequestQueueTimeMs, ResponseQueueTimeMs and ResponseSendTimeMs
are 0, because one loop serves a request as soon as it has read it, and hands its response to the socket at the end of
the same turn. What requests wait for is kafkapy_event_loop_lag_seconds.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from kafkapy.metrics.errors import count_codes
from kafkapy.metrics.histogram import SMALL, SMALL_VALUES, Histogram, bucket_of, new_histogram

FETCH: Final = 1
FOLLOWER: Final = 1 << 32
"""Added to the key of an API and version, for fetches of followers."""
MAX_VERSION: Final = 100
"""Requests of higher versions, which no API has, are counted together."""


class ApiCounts:
    """The times (in microseconds) and sizes (in bytes) of one API's requests."""

    __slots__ = ("at_once", "frame_bytes", "local", "remote", "throttled_ms", "waited")

    def __init__(self) -> None:
        self.at_once: Histogram = new_histogram()
        """Times of requests that did not wait."""
        self.waited: Histogram = new_histogram()
        """Total times of requests that waited."""
        self.local: Histogram = new_histogram()
        """Their times up to the first wait."""
        self.remote: Histogram = new_histogram()
        """Their times from then on."""
        self.frame_bytes: Histogram = new_histogram()
        self.throttled_ms: Histogram = new_histogram()
        """Throttle times other than 0."""

    def record_wait(self, local_us: int, total_us: int, count: int = 1) -> None:
        """Count requests that were answered after a wait."""
        for histogram, value in (
            (self.local, local_us),
            (self.remote, max(total_us - local_us, 0)),
            (self.waited, total_us),
        ):
            histogram[SMALL[value] if value < SMALL_VALUES else bucket_of(value)] += count


class VersionCounts:
    """The requests of one version of an API. `followers`: the same, for fetches of followers; None for other APIs."""

    __slots__ = ("api", "api_key", "followers", "is_follower", "request_count", "version")

    def __init__(self, api_key: int, version: int, api: ApiCounts, *, is_follower: bool) -> None:
        self.api_key = api_key
        self.version = version
        self.api = api
        self.is_follower = is_follower
        self.request_count = 0
        self.followers: VersionCounts | None = None


class RequestCounts:
    """The counts of all requests of a node's listeners."""

    def __init__(self) -> None:
        self._versions: dict[int, VersionCounts] = {}
        self.apis: dict[tuple[int, bool], ApiCounts] = {}
        """By API key, and whether the requests are those of followers (of Fetch only)."""
        self.errors: dict[int, Counter[int]] = {}
        """By API key: how often each error code was answered, 0 among them."""

    def of(self, key: int) -> VersionCounts:
        """Return the counts for a frame that begins with `key`: API key and version as one number of 32 bits."""
        found = self._versions.get(key)
        return found if found is not None else self._new(key)

    def _new(self, key: int) -> VersionCounts:
        api_key, version = key >> 16, key & 0xFFFF
        if version > MAX_VERSION:
            return self.of((api_key << 16) | MAX_VERSION)
        found = self._versions[key] = self._new_of(api_key, version, is_follower=False)
        if api_key == FETCH:
            found.followers = self._versions[key | FOLLOWER] = self._new_of(api_key, version, is_follower=True)
        return found

    def _new_of(self, api_key: int, version: int, *, is_follower: bool) -> VersionCounts:
        api = self.apis.get((api_key, is_follower))
        if api is None:
            api = self.apis[api_key, is_follower] = ApiCounts()
        return VersionCounts(api_key, version, api, is_follower=is_follower)

    def count_errors(self, api_key: int, response: Any) -> None:
        """Count the error codes of a response, one for each of its entries that has one."""
        count_codes(response, self.errors_of(api_key))

    def errors_of(self, api_key: int) -> Counter[int]:
        errors = self.errors.get(api_key)
        if errors is None:
            errors = self.errors[api_key] = Counter()
        return errors

    def versions(self) -> Iterator[VersionCounts]:
        yield from list(self._versions.values())
