"""Rates over time windows, as measured by Apache Kafka's metrics (Rate over SampledStat), and a token bucket.

All windows but one count as full from the start, so that a burst after a quiet time passes. A window starts with the
first value after the end of the previous window, and is dropped once its last value is older than the total length of
all windows; the measured time may therefore exceed that length.
"""

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from itertools import islice
from typing import Final, Generic, TypeVar

from kafkapy.types import INT32_MAX

MAX_THROTTLE_MS: Final = INT32_MAX
EXPIRATION_MS: Final = 3_600_000
MAX_RATES: Final = 20_000
"""Maximum entries of a RateTable, up to 2 KiB each."""
SAMPLE_MS: Final = 30_000
EXPIRED_AT_ONCE: Final = 16
"""Maximum expired entries removed when one is added, which bounds the work of a single request."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def _whole_ms(throttle_ms: float) -> int:
    """Return the nearest whole number, which is bounded: with a tiny limit the time is infinite."""
    return math.floor(min(throttle_ms + 0.5, MAX_THROTTLE_MS))


class WindowedRate:
    """Values per second. Callers pass the time."""

    __slots__ = ("_window_count", "_window_ms", "_windows", "throttled_by", "throttled_until_ms")

    def __init__(self, window_count: int, window_ms: int) -> None:
        assert window_count >= 1, "quota.window.num"
        assert window_ms >= 1, "quota.window.size.seconds"
        self._window_count = window_count
        self._window_ms = window_ms
        self._windows: deque[tuple[int, int, float]] = deque()
        """(start, time of the last value, sum) of each window, the newest last; times in ms."""
        self.throttled_until_ms = 0
        """The end of the longest throttle so far. The windows may have forgotten by then what it was for."""
        self.throttled_by = 0.0
        """The limit that it was for."""

    def record(self, value: float, now_ms: int) -> None:
        windows = self._windows
        if not windows or now_ms - windows[-1][0] >= self._window_ms:
            windows.append((now_ms, now_ms, value))
        else:
            begun_ms, _, total = windows[-1]
            windows[-1] = (begun_ms, now_ms, total + value)
        self._forget(now_ms)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return for how many ms nothing may be recorded until the rate drops to `limit`; 0 if it is not above.

        Solves O * W / (W + X) = T for X: observed rate O, measured time W, limit T.
        """
        self._forget(now_ms)
        elapsed_ms = self._elapsed_ms(now_ms)
        rate = self._total() * 1000 / elapsed_ms
        if not rate > limit:
            return 0
        if limit <= 0:
            return MAX_THROTTLE_MS
        return _whole_ms((rate - limit) / limit * elapsed_ms)

    def per_second(self, now_ms: int) -> float:
        self._forget(now_ms)
        return self._total() * 1000 / self._elapsed_ms(now_ms)

    def _total(self) -> float:
        return math.fsum(window[2] for window in self._windows)

    def _forget(self, now_ms: int) -> None:
        windows = self._windows
        oldest_ms = now_ms - self._window_count * self._window_ms
        while windows and (windows[0][1] <= oldest_ms or len(windows) > self._window_count + 1):
            windows.popleft()

    def _elapsed_ms(self, now_ms: int) -> int:
        elapsed_ms = now_ms - self._windows[0][0] if self._windows else 0
        missing_windows = self._window_count - 1 - elapsed_ms // self._window_ms
        return max(elapsed_ms + max(missing_windows, 0) * self._window_ms, 1)


class SimpleRate(WindowedRate):
    """Values per second since the first value, over at least one window: bursts do not pass (Kafka's SimpleRate)."""

    __slots__ = ()

    def _elapsed_ms(self, now_ms: int) -> int:
        return max(now_ms - self._windows[0][0], self._window_ms) if self._windows else self._window_ms


class TokenBucket:
    """A token bucket, filled at `limit` per second up to the total of all windows (KIP-599). Callers pass the time.

    It starts full. It may be overdrawn; callers then wait until the count is no longer negative.
    """

    __slots__ = ("_burst_s", "_tokens", "_updated_ms")

    def __init__(self, window_count: int, window_ms: int) -> None:
        self._burst_s = window_count * window_ms / 1000
        self._tokens = math.inf
        self._updated_ms = 0

    def charge(self, count: float, limit: float, now_ms: int) -> None:
        self._tokens = self.tokens(limit, now_ms) - count

    def tokens(self, limit: float, now_ms: int) -> float:
        """Return the number of tokens, negative if the bucket is overdrawn."""
        elapsed_s = max(now_ms - self._updated_ms, 0) / 1000
        self._updated_ms = now_ms
        self._tokens = min(limit * self._burst_s, self._tokens + limit * elapsed_s)
        return self._tokens

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return the ms until the bucket is no longer overdrawn."""
        return _whole_ms(max(-self.tokens(limit, now_ms), 0.0) / limit * 1000)


class RecentMean:
    """The mean of the values of the last minute, kept in two samples of 30 s (Kafka's Avg over SampledStat)."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[tuple[int, float, int]] = deque(maxlen=2)
        """(start in ms, sum, count) of each sample, the newest last."""

    def record(self, value: float, now_ms: int) -> None:
        if self._samples and now_ms - self._samples[-1][0] < SAMPLE_MS:
            begun_ms, total, count = self._samples[-1]
            self._samples[-1] = (begun_ms, total + value, count + 1)
        else:
            self._samples.append((now_ms, value, 1))

    def mean(self, now_ms: int) -> float | None:
        """Return the mean, None if there are no recent values."""
        recent = [(total, count) for begun_ms, total, count in self._samples if now_ms - begun_ms < 2 * SAMPLE_MS]
        return sum(total for total, _ in recent) / sum(count for _, count in recent) if recent else None


class RateTable(Generic[K, V]):
    """Rates by key. An entry expires after an hour without use; at MAX_RATES the least recently used is removed."""

    def __init__(self, new: Callable[[], V]) -> None:
        """`new` creates an entry, such as a WindowedRate or a TokenBucket."""
        self._new = new
        self._entries: OrderedDict[K, tuple[int, V]] = OrderedDict()
        """(time of last use in ms, entry) by key; least recently used first."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K, now_ms: int) -> V:
        """Return the entry of `key`, created if necessary; counts as a use."""
        found = self._entries.pop(key, None)
        if found is None or now_ms - found[0] > EXPIRATION_MS:
            self._expire(now_ms)
            entry = self._new()
        else:
            entry = found[1]
        self._entries[key] = (now_ms, entry)
        return entry

    def peek(self, key: K, now_ms: int) -> V | None:
        """Return the entry of `key`, None if there is none or it has expired; does not count as a use."""
        found = self._entries.get(key)
        return None if found is None or now_ms - found[0] > EXPIRATION_MS else found[1]

    def newest(self, count: int) -> list[tuple[K, V]]:
        """Return the most recently used entries, at most `count`; does not count as a use."""
        return [(key, entry) for key, (_, entry) in islice(reversed(self._entries.items()), count)]

    def _expire(self, now_ms: int) -> None:
        entries = self._entries
        if len(entries) >= MAX_RATES:
            entries.popitem(last=False)
        for _ in range(EXPIRED_AT_ONCE):
            if not entries or now_ms - next(iter(entries.values()))[0] <= EXPIRATION_MS:
                return
            entries.popitem(last=False)
