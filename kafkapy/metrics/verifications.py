"""Counts of verifications: requests to transaction coordinators whether a partition is in a transaction."""

from collections.abc import Callable

from kafkapy.metrics.histogram import Histogram, bucket_of, new_histogram


class VerificationCounts:
    """Exists only on a broker with an admin listener."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """now_ns: a monotonic clock."""
        self.now_ns = now_ns
        self.times_us: Histogram = new_histogram()
        self.failures = 0
        """Partitions that were not verified."""

    def record(self, requested_ns: int, failures: int) -> None:
        """Count a request made at requested_ns that was answered now with so many failures."""
        self.times_us[bucket_of((self.now_ns() - requested_ns) // 1000)] += 1
        self.failures += failures
