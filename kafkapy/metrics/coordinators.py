"""Counts of a kind of coordinator: the batches that it appends to its topic.

The names of these metrics, and what they count, are those of Apache Kafka's CoordinatorRuntimeMetrics.
"""

from collections.abc import Callable

from kafkapy.metrics.recent_histogram import RecentHistogram


class CoordinatorCounts:
    """Exists only on a broker with an admin listener."""

    __slots__ = ("flush_us", "now_ns")

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """now_ns: a monotonic clock."""
        self.now_ns = now_ns
        self.flush_us = RecentHistogram(now_ns)
        """How long appends took, in microseconds."""

    def record_flush(self, began_ns: int) -> None:
        """Count an append that began at began_ns of now_ns(), and has just ended."""
        self.flush_us.record((self.now_ns() - began_ns) // 1000)
