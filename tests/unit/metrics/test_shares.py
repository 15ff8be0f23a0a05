"""What share groups are counted in: acknowledgements, fetches that hold a share partition, recent values."""

from math import isnan

from kafkapy.metrics.recent_histogram import PERIOD_NS, RecentHistogram
from kafkapy.metrics.sampled import Sampled
from kafkapy.metrics.shares import MAX_GROUPS, MS, ShareCounts

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


class Clock:
    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns

    def pass_ms(self, duration_ms: int) -> None:
        self.ns += duration_ms * MS


def test_acknowledgements_count_records() -> None:
    counts = ShareCounts(Clock())
    counts.count_acknowledgements([ACCEPT], 7)
    counts.count_acknowledgements([ACCEPT, REJECT, GAP], 3)
    assert counts.acknowledgements == [1, 8, 0, 1, 0]


def test_the_oldest_of_too_many_groups_is_forgotten() -> None:
    counts = ShareCounts(Clock())
    first = counts.of_group("0")
    assert counts.of_group("0") is first
    for number in range(1, MAX_GROUPS + 1):
        counts.of_group(str(number))
    assert len(counts.groups) == MAX_GROUPS
    assert counts.of_group("0") is not first


def test_a_share_partition_is_held_for_a_share_of_the_time() -> None:
    clock = Clock()
    counts = ShareCounts(clock).new_partition()
    for idle_ms, held_ms in ((0, 0), (100, 0), (30, 10)):
        clock.pass_ms(idle_ms)
        counts.on_hold()
        clock.pass_ms(held_ms)
        counts.on_release()
    assert counts.lock_ms is not None
    assert counts.lock_ratio is not None
    assert counts.lock_ms.quantiles((0.5, 1.0)) == [0, 10]
    assert counts.lock_ratio.quantiles((0.3, 0.6)) == [1, 24.5], "to a sixteenth"
    assert counts.lock_ratio.count == 3


def test_recent_values_are_those_of_two_periods() -> None:
    clock = Clock()
    histogram = RecentHistogram(clock)
    for value in (1, 2, 3):
        histogram.record(value)
        clock.ns += PERIOD_NS
    assert (histogram.count, histogram.quantiles((0.5, 1.0))) == (3, [2, 3])
    assert RecentHistogram(clock).quantiles((0.5,)) == [0]


def test_averages_and_maxima_are_those_of_the_last_minute() -> None:
    sampled = Sampled()
    assert isnan(sampled.average(0))
    assert isnan(sampled.maximum(0))
    sampled.record(10, 0)
    sampled.record(2, 29_999)
    sampled.record(3, 30_000)
    assert (sampled.average(59_999), sampled.maximum(59_999)) == (5, 10)
    assert (sampled.average(60_000), sampled.maximum(60_000)) == (3, 3)
    assert isnan(sampled.average(90_000))
