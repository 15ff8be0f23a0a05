"""The share of time without CPU."""

from kafkapy.metrics.idle import IdleShare


def test_it_is_that_since_the_last_reading() -> None:
    idle = IdleShare()
    assert idle.read(100.0, 5.0) == 1.0
    assert idle.read(110.0, 7.5) == 0.75
    assert idle.read(120.0, 17.5) == 0.0
    assert idle.idle_ns == 7_500_000_000


def test_readings_that_follow_at_once_change_nothing() -> None:
    idle = IdleShare()
    idle.read(100.0, 5.0)
    idle.read(110.0, 7.5)
    assert idle.read(110.5, 8.0) == 0.75
