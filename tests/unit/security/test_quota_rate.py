"""Rates over windows: the figures of Apache Kafka's Rate, SampledStat and QuotaUtils (ClientQuotaManagerTest)."""

from random import Random

import pytest

from kafkapy.security.rate import MAX_THROTTLE_MS, TokenBucket, WindowedRate


def test_windows_count_as_full_from_the_start() -> None:
    rate = WindowedRate(11, 1000)
    rate.record(1000, now_ms=0)
    assert rate.per_second(0) == 100.0


def test_a_burst_beyond_the_quota_is_throttled_until_the_rate_has_come_down() -> None:
    """Ten seconds of 400 bytes, then 2300 more: 600 a second in 10.5 seconds, beyond a limit of 500."""
    rate = WindowedRate(11, 1000)
    for second in range(10):
        rate.record(400, now_ms=second * 1000)
        assert rate.throttle_ms(500, second * 1000) == 0
    rate.record(2300, now_ms=10_500)
    assert rate.per_second(10_500) == 6300 / 10.5
    assert rate.throttle_ms(500, 10_500) == 2100
    for second in range(11, 16):
        rate.record(0, now_ms=second * 1000)
    assert rate.throttle_ms(500, 16_000) == 0


def test_a_burst_after_silence_counts_until_its_window_is_forgotten() -> None:
    """The first ten seconds count as measured already, so that the rate does not fall while they pass, as in Kafka."""
    rate = WindowedRate(11, 1000)
    rate.record(20_000, now_ms=0)
    assert [rate.throttle_ms(1000, now_ms) for now_ms in (0, 10_000)] == [10_000, 10_000]
    assert rate.throttle_ms(1000, 11_000) == 0


def test_windows_older_than_all_together_are_forgotten() -> None:
    rate = WindowedRate(11, 1000)
    rate.record(500, now_ms=0)
    rate.record(500, now_ms=900)
    assert rate.per_second(11_899) == pytest.approx(1000 / 11.899)
    assert rate.per_second(11_900) == 0.0


def test_windows_begin_with_their_first_value() -> None:
    rate = WindowedRate(2, 1000)
    rate.record(100, now_ms=0)
    rate.record(100, now_ms=1500)
    rate.record(100, now_ms=2400)
    assert rate.per_second(2400) == pytest.approx(200 / 1.9), "0.9 s of the second window, and one full one"


def test_what_is_taken_back_does_not_count() -> None:
    rate = WindowedRate(11, 1000)
    rate.record(5000, now_ms=0)
    rate.record(-5000, now_ms=1)
    assert rate.throttle_ms(1, 1) == 0


@pytest.mark.parametrize("limit", [float("inf"), float("nan"), 2.0**63])
def test_a_limit_without_bound_throttles_nobody(limit) -> None:
    rate = WindowedRate(11, 1000)
    rate.record(1e12, now_ms=0)
    assert rate.throttle_ms(limit, 0) == 0


@pytest.mark.parametrize("limit", [0.001, 5e-324])
def test_a_throttle_fits_its_field(limit) -> None:
    rate = WindowedRate(11, 1000)
    rate.record(1e12, now_ms=0)
    assert rate.throttle_ms(limit, 0) == MAX_THROTTLE_MS
    bucket = TokenBucket(11, 1000)
    bucket.charge(10_000, limit, 0)
    assert bucket.throttle_ms(limit, 0) == MAX_THROTTLE_MS


class SampleRing:
    """What Apache Kafka keeps: one sample more than there are windows, each reset in its place when it is too old."""

    def __init__(self, window_count: int, window_ms: int) -> None:
        self.window_count, self.window_ms = window_count, window_ms
        self.samples: list[tuple[int, int, float]] = []
        self.current = 0

    def record(self, value: float, now_ms: int) -> None:
        if self.samples and now_ms - self.samples[self.current][0] >= self.window_ms:
            self.current = (self.current + 1) % (self.window_count + 1)
            self.samples[self.current : self.current + 1] = [(now_ms, now_ms, 0.0)]
        elif not self.samples:
            self.samples.append((now_ms, now_ms, 0.0))
        begun_ms, _, total = self.samples[self.current]
        self.samples[self.current] = (begun_ms, now_ms, total + value)

    def per_second(self, now_ms: int) -> float:
        oldest_ms = now_ms - self.window_count * self.window_ms
        self.samples = [(now_ms, now_ms, 0.0) if each[1] <= oldest_ms else each for each in self.samples]
        elapsed_ms = now_ms - min(begun_ms for begun_ms, _, _ in self.samples)
        missing = max(self.window_count - 1 - elapsed_ms // self.window_ms, 0)
        return sum(total for _, _, total in self.samples) * 1000 / max(elapsed_ms + missing * self.window_ms, 1)


@pytest.mark.parametrize("seed", range(40))
def test_rates_equal_those_of_a_ring_of_samples(seed) -> None:
    random = Random(seed)
    window_count, window_ms, now_ms = random.choice([1, 2, 3, 11]), random.choice([100, 1000]), 0
    rate, ring = WindowedRate(window_count, window_ms), SampleRing(window_count, window_ms)
    for _ in range(200):
        max_ms = random.choice([1, window_ms // 3, window_ms, window_ms + 1, 3 * window_ms, 13 * window_ms])
        now_ms += random.randint(0, max_ms)
        value = random.randrange(1, 1000)
        rate.record(value, now_ms)
        ring.record(value, now_ms)
        assert rate.per_second(now_ms) == pytest.approx(ring.per_second(now_ms))
