"""Rates of counts, from scrape to scrape."""

from kafkapy.metrics.rates import Rates


def test_the_first_rate_is_that_since_the_start() -> None:
    assert Rates(started_s=100.0).per_second("bytes", 50, 110.0) == 5.0


def test_of_a_count_that_did_not_begin_with_the_process_the_first_rate_is_0() -> None:
    rates = Rates(started_s=100.0)
    assert rates.per_second("offset", 5_000, 110.0, is_from_zero=False) == 0.0
    assert rates.per_second("offset", 5_020, 120.0, is_from_zero=False) == 2.0


def test_a_rate_is_that_of_the_last_half_minute() -> None:
    rates = Rates(started_s=0.0)
    found = [rates.per_second("bytes", count, now_s) for now_s, count in ((10, 100), (20, 100), (40, 400), (70, 400))]
    assert found == [10.0, 5.0, 10.0, 0.0]


def test_two_scrapes_at_once_divide_by_a_second_at_least() -> None:
    rates = Rates(started_s=0.0)
    assert rates.per_second("bytes", 0, 60.0) == 0.0
    assert rates.per_second("bytes", 10, 60.0) == 10 / 60


def test_keys_are_apart_and_bounded() -> None:
    rates = Rates(started_s=0.0)
    for number in range(10_001):
        assert rates.per_second(number, number, 10.0) == number / 10
