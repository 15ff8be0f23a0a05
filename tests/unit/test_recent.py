"""Average and maximum of the last half minute to minute."""

from math import isnan

from kafkapy.recent import RecentValues


def test_without_values_both_are_not_a_number() -> None:
    assert all(map(isnan, RecentValues().read(5)))


def test_the_average_and_the_maximum_of_the_last_two_samples() -> None:
    recent = RecentValues()
    for value, now_ms in ((2, 100_000), (4, 110_000), (12, 125_000)):
        recent.record(value, now_ms)
    assert recent.read(126_000) == (6, 12)
    recent.record(1, 131_000)
    assert recent.read(131_000) == (4.75, 12)


def test_values_older_than_two_samples_are_forgotten() -> None:
    recent = RecentValues()
    recent.record(12, 100_000)
    recent.record(2, 130_000)
    assert recent.read(149_000) == (7, 12)
    assert recent.read(151_000) == (2, 2)
    assert all(map(isnan, recent.read(215_000)))
