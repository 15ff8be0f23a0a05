"""Counts and times of a controller's decisions, and of the batches of metadata records that a node loads.

An operation is a decision, or a notification by the quorum (of committed records, a snapshot, another leader), as the
events of Apache Kafka's controller are. Deviation: Apache Kafka's times are whole milliseconds. Here they have
fractions, because most are below one.
"""

from collections.abc import Callable, Iterator

from kafkapy.metrics.histogram import Histogram, bucket_of, new_histogram


class OperationCounts:
    """Exists only on a node with an admin listener."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """now_ns: a monotonic clock."""
        self.now_ns = now_ns
        self.started = 0
        self.timed_out = 0
        """Decisions that were refused because their time was over before it was their turn."""
        self.queue_us: Histogram = new_histogram()
        """How long decisions wait for their turn."""
        self.processing_us: Histogram = new_histogram()
        self.batch_us: Histogram = new_histogram()
        """How long it takes to load a batch of committed records."""
        self.batch_records: Histogram = new_histogram()

    def record_start(self, requested_ns: int) -> int:
        """Count an operation that was requested at requested_ns; return the time now."""
        now_ns = self.now_ns()
        self.started += 1
        self.queue_us[bucket_of((now_ns - requested_ns) // 1000)] += 1
        return now_ns

    def record_done(self, began_ns: int) -> None:
        self.processing_us[bucket_of((self.now_ns() - began_ns) // 1000)] += 1

    def notification(self, steps: Iterator[None]) -> Iterator[None]:
        """Take the steps of a notification by the quorum, and count it."""
        self.started += 1
        yield from self._timed(steps, self.processing_us)

    def batch(self, steps: Iterator[None], record_count: int) -> Iterator[None]:
        """Take the steps in which a batch of committed records is loaded, and count it."""
        self.batch_records[bucket_of(record_count)] += 1
        yield from self._timed(steps, self.batch_us)

    def _timed(self, steps: Iterator[None], histogram: Histogram) -> Iterator[None]:
        """Take the steps; count how long they took in all, without the pauses between them."""
        took_ns = 0
        is_over = False
        while not is_over:
            began_ns = self.now_ns()
            try:
                next(steps)
            except StopIteration:
                is_over = True
            took_ns += self.now_ns() - began_ns
            if not is_over:
                yield
        histogram[bucket_of(took_ns // 1000)] += 1
