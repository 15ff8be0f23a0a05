"""A rate over the last windows of time, as Apache Kafka's metrics measure it (Rate over SampledStat).

All but one of the windows count as full from the start, so that a burst after silence passes. A window begins with the
first value after the one before has ended, and is forgotten once its last value is older than all windows together: so
the time measured may be longer than they are.
"""

import math
from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

MAX_THROTTLE_MS: Final = 2**31 - 1
EXPIRATION_MS: Final = 3_600_000
MAX_RATES: Final = 20_000
"""Of a table: up to 2 KiB each."""
EXPIRED_AT_ONCE: Final = 16
"""Rates forgotten with each one that is made: what one client may have to do for others."""

K = TypeVar("K", bound=Hashable)


class WindowedRate:
    """Values per second. The clock is the caller's."""

    __slots__ = ("_window_count", "_window_ms", "_windows")

    def __init__(self, window_count: int, window_ms: int) -> None:
        assert window_count >= 1, "quota.window.num"
        assert window_ms >= 1, "quota.window.size.seconds"
        self._window_count = window_count
        self._window_ms = window_ms
        self._windows: deque[tuple[int, int, float]] = deque()
        """(begun at, last value at, sum) of each, the newest last."""

    def record(self, value: float, now_ms: int) -> None:
        windows = self._windows
        if not windows or now_ms - windows[-1][0] >= self._window_ms:
            windows.append((now_ms, now_ms, value))
        else:
            begun_ms, _, total = windows[-1]
            windows[-1] = (begun_ms, now_ms, total + value)
        self._forget(now_ms)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return for how long nothing may be recorded for the rate to come down to `limit`, 0 if it is not above.

        X ms added to the time measured bring a rate O down to T: O * W / (W + X) = T.
        """
        self._forget(now_ms)
        elapsed_ms = self._elapsed_ms(now_ms)
        rate = self._total() * 1000 / elapsed_ms
        if not rate > limit:
            return 0
        if limit <= 0:
            return MAX_THROTTLE_MS
        return min(math.floor((rate - limit) / limit * elapsed_ms + 0.5), MAX_THROTTLE_MS)

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
    """Values per second over the time since the first of them, at least a window: no burst passes (SimpleRate)."""

    __slots__ = ()

    def _elapsed_ms(self, now_ms: int) -> int:
        return max(now_ms - self._windows[0][0], self._window_ms) if self._windows else self._window_ms


class RateTable(Generic[K]):
    """Rates by who is measured, forgotten after an hour of silence, or as the least recently used of MAX_RATES."""

    def __init__(self, window_count: int, window_ms: int) -> None:
        self.window_count = window_count
        self.window_ms = window_ms
        self._rates: OrderedDict[K, tuple[int, WindowedRate]] = OrderedDict()
        """Last used at, and the rate; least recently used first."""

    def __len__(self) -> int:
        return len(self._rates)

    def rate(self, key: K, now_ms: int) -> WindowedRate:
        """Return the rate of `key`, which counts as used."""
        found = self._rates.pop(key, None)
        if found is None or now_ms - found[0] > EXPIRATION_MS:
            self._expire(now_ms)
            rate = WindowedRate(self.window_count, self.window_ms)
        else:
            rate = found[1]
        self._rates[key] = (now_ms, rate)
        return rate

    def _expire(self, now_ms: int) -> None:
        rates = self._rates
        if len(rates) >= MAX_RATES:
            rates.popitem(last=False)
        for _ in range(EXPIRED_AT_ONCE):
            if not rates or now_ms - next(iter(rates.values()))[0] <= EXPIRATION_MS:
                return
            rates.popitem(last=False)
