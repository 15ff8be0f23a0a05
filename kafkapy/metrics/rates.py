"""Rates per second of counts that only grow, as of the last half minute to minute; measured from scrape to scrape."""

from collections import deque
from collections.abc import Hashable
from typing import Final

WINDOW_S: Final = 30.0
MIN_AGE_S: Final = 1.0
MAX_RATES: Final = 10_000
"""Within MIN_AGE_S one event would look like a peak. At MAX_RATES keys all begin anew: clients choose some."""


class Rates:
    """Keeps earlier counts, by a key. Apache Kafka's rates are those of two windows of 30 s (metrics.num.samples)."""

    def __init__(self, started_s: float) -> None:
        """started_s: when counting began, on a monotonic clock like all times here."""
        self._started_s = started_s
        self._earlier: dict[Hashable, deque[tuple[float, float]]] = {}

    def per_second(self, key: Hashable, count: float, now_s: float, *, is_from_zero: bool = True) -> float:
        """Return how fast a count has grown: since the newest earlier one that is WINDOW_S old, or the oldest.

        is_from_zero: whether the count was 0 at the start; if not, the first rate is 0.
        """
        earlier = self._earlier.get(key)
        if earlier is None:
            if len(self._earlier) >= MAX_RATES:
                self._earlier.clear()
            earlier = self._earlier[key] = deque([(self._started_s, 0.0) if is_from_zero else (now_s, count)])
        while len(earlier) > 1 and earlier[1][0] <= now_s - WINDOW_S:
            earlier.popleft()
        then_s, before = earlier[0]
        if now_s - earlier[-1][0] >= MIN_AGE_S:
            earlier.append((now_s, count))
        return max(count - before, 0.0) / max(now_s - then_s, MIN_AGE_S)
