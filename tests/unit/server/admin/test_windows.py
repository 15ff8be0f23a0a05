"""Quantiles of the last minutes."""

from kafkapy.gauge import Distribution
from kafkapy.metrics.histogram import bucket_of, new_histogram
from kafkapy.server.admin.windows import MIN_AGE_S, WINDOW_S, Windows


def distribution(*histograms: list[int], zeros: int = 0) -> Distribution:
    return Distribution("kafka.network:type=RequestMetrics", "TotalTimeMs", (), histograms, zeros, 0.001)


def test_values_are_counted_for_ever_but_quantiles_forget_them() -> None:
    windows, counts = Windows(), new_histogram()
    counts[8] += 100
    assert windows.read(distribution(counts), 0.0) == (100, [0.008] * 6)
    counts[4] += 10
    assert windows.read(distribution(counts), MIN_AGE_S)[0] == 110
    counts[2] += 1
    count, found = windows.read(distribution(counts), WINDOW_S + MIN_AGE_S)
    assert (count, found) == (111, [0.002] * 6)


def test_while_nothing_is_counted_the_last_quantiles_stay() -> None:
    windows, counts = Windows(), new_histogram()
    counts[bucket_of(5)] += 1
    windows.read(distribution(counts), 0.0)
    assert windows.read(distribution(counts), 10 * WINDOW_S) == (1, [0.005] * 6)


def test_histograms_and_zeros_are_taken_together() -> None:
    low, high = new_histogram(), new_histogram()
    low[1], high[9] = 5, 5
    count, found = Windows().read(distribution(low, high, zeros=10), 0.0)
    assert (count, found[0], found[1], found[-1]) == (20, 0.0, 0.001, 0.009)
