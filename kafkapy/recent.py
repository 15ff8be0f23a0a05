"""The average and the maximum of the values of the last half minute to minute, as Apache Kafka's Avg and Max.

Two samples of 30 s each (metrics.num.samples, metrics.sample.window.ms): the current one and the one before it.
"""

import math
from typing import Final

SAMPLE_MS: Final = 30_000


class RecentValues:
    """For values that are rare: a login, an election. Times: of a monotonic clock."""

    __slots__ = ("_before", "_began_ms", "_count", "_highest", "_total")

    def __init__(self) -> None:
        self._began_ms = 0
        self._count = 0
        self._total = self._highest = 0.0
        self._before = (0, 0.0, 0.0)
        """Count, total and maximum of the sample before the current one."""

    def record(self, value: float, now_ms: int) -> None:
        self._pass_to(now_ms)
        self._highest = max(value, self._highest) if self._count else value
        self._count += 1
        self._total += value

    def read(self, now_ms: int) -> tuple[float, float]:
        """Return the average and the maximum; both NaN if there are no recent values."""
        self._pass_to(now_ms)
        count, total, highest = self._before
        count += self._count
        if not count:
            return math.nan, math.nan
        return (total + self._total) / count, max(highest, self._highest)

    def _pass_to(self, now_ms: int) -> None:
        """Start another sample if the current one is over."""
        age_ms = now_ms - self._began_ms
        if age_ms < SAMPLE_MS:
            return
        is_recent = age_ms < 2 * SAMPLE_MS
        self._before = (self._count, self._total, self._highest) if is_recent else (0, 0.0, 0.0)
        self._began_ms = now_ms - age_ms % SAMPLE_MS
        self._count, self._total, self._highest = 0, 0.0, 0.0
