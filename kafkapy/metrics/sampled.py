"""Average and maximum of the last half minute to minute, as Apache Kafka's sampled statistics have them."""

from typing import Final

SAMPLE_MS: Final = 30_000
"""metrics.sample.window.ms, of which metrics.num.samples are kept: 2."""


class Sampled:
    """The values of two samples, the running one and the one before."""

    __slots__ = ("_before", "_running")

    def __init__(self) -> None:
        self._running = _Sample(-SAMPLE_MS)
        self._before = self._running

    def record(self, value: float, now_ms: int) -> None:
        if now_ms - self._running.began_ms >= SAMPLE_MS:
            self._before, self._running = self._running, _Sample(now_ms)
        sample = self._running
        sample.count += 1
        sample.total += value
        sample.largest = max(sample.largest, value)

    def average(self, now_ms: int) -> float:
        """Return the average; NaN without values."""
        samples = self._current(now_ms)
        count = sum(sample.count for sample in samples)
        return sum(sample.total for sample in samples) / count if count else float("nan")

    def maximum(self, now_ms: int) -> float:
        """Return the largest value; NaN without values."""
        return max((sample.largest for sample in self._current(now_ms) if sample.count), default=float("nan"))

    def _current(self, now_ms: int) -> "list[_Sample]":
        samples = [self._running] if self._before is self._running else [self._before, self._running]
        return [sample for sample in samples if now_ms - sample.began_ms < 2 * SAMPLE_MS]


class _Sample:
    __slots__ = ("began_ms", "count", "largest", "total")

    def __init__(self, began_ms: int) -> None:
        self.began_ms = began_ms
        self.count = 0
        self.total = 0.0
        self.largest = 0.0
