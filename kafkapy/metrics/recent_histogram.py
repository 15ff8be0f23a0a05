"""Histograms of which a broker has thousands: sparse, with the quantiles of the last minutes.

A dense histogram with its window (kafkapy/server/admin/windows.py) takes some 40 KB; one of these a few hundred bytes,
because it keeps the buckets that occur, and two periods instead of ten states.
"""

from collections.abc import Callable, Sequence
from typing import Final

from kafkapy.metrics.histogram import LAST_BUCKET, bucket_of, quantiles

PERIOD_NS: Final = 150_000_000_000
"""Quantiles are those of the running period and the one before: of the last 2.5 to 5 minutes."""


class RecentHistogram:
    """Counts values; while no new ones come, the last quantiles stay, as in Apache Kafka."""

    __slots__ = ("_before", "_now_ns", "_period_began_ns", "_running", "count")

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """now_ns: a monotonic clock."""
        self.count = 0
        """The number of all values since the start."""
        self._now_ns = now_ns
        self._period_began_ns = now_ns()
        self._before: dict[int, int] = {}
        self._running: dict[int, int] = {}

    def record(self, value: int) -> None:
        """Count a value, an integer of at least 0."""
        now_ns = self._now_ns()
        if now_ns - self._period_began_ns >= PERIOD_NS:
            self._before, self._running = self._running, {}
            self._period_began_ns = now_ns
        self.count += 1
        bucket = bucket_of(value)
        self._running[bucket] = self._running.get(bucket, 0) + 1

    def quantiles(self, wanted: Sequence[float]) -> list[float]:
        """Return the recent values at ascending quantiles; zeros if nothing was counted."""
        counts = [0] * (LAST_BUCKET + 1)
        for period in (self._before, self._running):
            for bucket, count in period.items():
                counts[bucket] += count
        return quantiles(counts, wanted)
