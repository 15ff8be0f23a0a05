"""Histograms: which bucket a value has, and what quantiles say of it."""

import pytest

from kafkapy.metrics.histogram import LAST_BUCKET, SMALL, SMALL_VALUES, bucket_of, middle_of, new_histogram, quantiles


def counted(*values: int) -> list[int]:
    counts = new_histogram()
    for value in values:
        counts[SMALL[value] if value < SMALL_VALUES else bucket_of(value)] += 1
    return counts


def test_buckets_rise_with_their_values_and_none_is_left_out() -> None:
    buckets = [bucket_of(value) for value in range(10_000)]
    assert buckets == sorted(buckets)
    assert set(buckets) == set(range(buckets[-1] + 1))


@pytest.mark.parametrize("value", [0, 1, 15, 16, 17, 1000, 4095, 4096, 10**6, 2**40 + 12345])
def test_the_middle_of_a_bucket_is_near_its_values(value: int) -> None:
    assert abs(middle_of(bucket_of(value)) - value) <= value / 16


def test_values_out_of_range_are_counted_at_the_ends() -> None:
    assert (bucket_of(-5), bucket_of(2**80)) == (0, LAST_BUCKET)


def test_quantiles_are_those_of_the_values() -> None:
    counts = counted(*range(1, 11))
    assert quantiles(counts, (0.5, 0.9, 1.0)) == [5, 9, 10]


def test_of_nothing_the_quantiles_are_zero() -> None:
    assert quantiles(new_histogram(), (0.5, 0.99)) == [0, 0]


def test_the_table_of_small_values_is_the_function() -> None:
    assert list(SMALL) == [bucket_of(value) for value in range(SMALL_VALUES)]
