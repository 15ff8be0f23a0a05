"""Counts of share groups (KIP-932): of a broker's share partitions, its sessions, and its share coordinator.

The names of these metrics, and what they count, are those of Apache Kafka's ShareGroupMetrics, SharePartitionMetrics
and ShareCoordinatorMetrics.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from kafkapy.metrics.histogram import bucket_of, new_histogram
from kafkapy.metrics.recent_histogram import RecentHistogram
from kafkapy.metrics.sampled import Sampled

MAX_GROUPS: Final = 1000
"""Groups that are counted each for itself, some 8 KB each: for another one, the oldest is forgotten."""
MS: Final = 1_000_000
ACKNOWLEDGE_TYPES: Final = ("Gap", "Accept", "Release", "Reject", "Renew")
"""By their number. Gaps are not counted: nobody has acknowledged anything."""
CountsT = TypeVar("CountsT")


class ShareCounts:
    """Exists only on a broker with an admin listener."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """now_ns: a monotonic clock."""
        self._now_ns = now_ns
        self.acknowledgements = [0] * len(ACKNOWLEDGE_TYPES)
        """Records, by how they were acknowledged."""
        self.load_ms = new_histogram()
        """How long share partitions took to be loaded."""
        self.expired_fetches = 0
        """Fetches that waited until their time was over."""
        self.groups: dict[str, ShareFetchCounts] = {}
        self.letters: dict[str, DeadLetterCounts] = {}
        """By group, of those that have given up a record."""
        self.state_writes = 0
        """Writes of the states of share partitions, and first reads by a new leader, which are writes."""
        self.state_write_ms = Sampled()
        """How long requests to write states took."""
        self.rebalances = 0
        """Group epochs of share groups that heartbeats began."""

    def count_acknowledgements(self, types: Sequence[int], record_count: int) -> None:
        """Count one acknowledged batch; `types` has one type for all its records, or one for each."""
        if len(types) == 1:
            self.acknowledgements[types[0]] += record_count
            return
        for each in types:
            self.acknowledgements[each] += 1

    def record_load(self, took_ms: int) -> None:
        self.load_ms[bucket_of(took_ms)] += 1

    def record_state_write(self, began_ms: int) -> None:
        """Count a request to write states that came at began_ms of now_ms()."""
        now_ms = self.now_ms()
        self.state_write_ms.record(now_ms - began_ms, now_ms)

    def now_ms(self) -> int:
        return self._now_ns() // MS

    def of_group(self, group_id: str) -> "ShareFetchCounts":
        """Return the counts of a group's fetches."""
        return _of_group(self.groups, group_id, ShareFetchCounts)

    def letters_of(self, group_id: str) -> "DeadLetterCounts":
        """Return the counts of a group's dead letters."""
        return _of_group(self.letters, group_id, DeadLetterCounts)

    def new_partition(self) -> "SharePartitionCounts":
        """Return the counts of a share partition, for as long as it is in use."""
        return SharePartitionCounts(self._now_ns)


class ShareFetchCounts:
    """The fetches of a share group on this broker."""

    __slots__ = ("acquire_ms", "fetch_ratio")

    def __init__(self) -> None:
        self.fetch_ratio = new_histogram()
        """How many of a request's share partitions it could read, in percent."""
        self.acquire_ms = new_histogram()
        """How long a request waited for share partitions that it could read."""

    def record_ratio(self, held_count: int, requested_count: int) -> None:
        self.fetch_ratio[bucket_of(held_count * 100 // requested_count)] += 1

    def record_acquire(self, took_ms: int) -> None:
        self.acquire_ms[bucket_of(took_ms)] += 1


class DeadLetterCounts:
    """The dead letters of a share group: records that were written, requests to write some, those that failed."""

    __slots__ = ("failed_requests", "requests", "written_records")

    def __init__(self) -> None:
        self.written_records = 0
        self.requests = 0
        self.failed_requests = 0


class SharePartitionCounts:
    """One share partition in use. Histograms are made when they have a value: most share partitions are idle."""

    __slots__ = (
        "_held_at_ns",
        "_idle_ms",
        "_now_ns",
        "_released_at_ns",
        "batch_records",
        "lock_ms",
        "lock_ratio",
        "timeouts",
    )

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._held_at_ns = 0
        self._released_at_ns: int | None = None
        self._idle_ms = 0
        self.timeouts = 0
        """Records whose acquisition lock timed out."""
        self.batch_records: RecentHistogram | None = None
        """Records of each batch that came in flight."""
        self.lock_ms: RecentHistogram | None = None
        """For how long fetches held the share partition, which they do one after the other."""
        self.lock_ratio: RecentHistogram | None = None
        """How long the next fetch held it, in percent of the time since the fetch before released it."""

    def record_batch(self, record_count: int) -> None:
        if self.batch_records is None:
            self.batch_records = RecentHistogram(self._now_ns)
        self.batch_records.record(record_count)

    def on_hold(self) -> None:
        """A fetch holds the share partition from now on."""
        self._held_at_ns = self._now_ns()
        self._idle_ms = 0 if self._released_at_ns is None else (self._held_at_ns - self._released_at_ns) // MS

    def on_release(self) -> None:
        """The fetch lets go."""
        if self.lock_ms is None or self.lock_ratio is None:
            self.lock_ms, self.lock_ratio = RecentHistogram(self._now_ns), RecentHistogram(self._now_ns)
        self._released_at_ns = self._now_ns()
        held_ms = (self._released_at_ns - self._held_at_ns) // MS
        self.lock_ms.record(held_ms)
        self.lock_ratio.record(_percent(held_ms, self._idle_ms))


def _of_group(counts: dict[str, CountsT], group_id: str, new: Callable[[], CountsT]) -> CountsT:
    """Return the counts of a group, new ones if it has none; the oldest of too many groups is forgotten."""
    found = counts.get(group_id)
    if found is None:
        if len(counts) >= MAX_GROUPS:
            del counts[next(iter(counts))]
        found = counts[group_id] = new()
    return found


def _percent(held_ms: int, idle_ms: int) -> int:
    """Return the share of time that was held, in percent; a time below a millisecond counts as one."""
    if held_ms + idle_ms == 0:
        return 100
    return 100 // idle_ms if held_ms == 0 else 100 * held_ms // (held_ms + idle_ms)
