"""The clock of a node, which tests may shift."""

import time

import pytest

from kafkapy.server.process.system_clock import CLOCK_OFFSET, SystemClock, clock_of_environment


@pytest.mark.parametrize("offset_ms", [-60_000, 60_000])
def test_a_shifted_clock_is_off_by_the_wall_only(monkeypatch: pytest.MonkeyPatch, offset_ms: int) -> None:
    monkeypatch.setenv(CLOCK_OFFSET, str(offset_ms))
    clock = clock_of_environment()
    before_ms = time.time_ns() // 1_000_000
    assert clock.wall_ms() - offset_ms >= before_ms
    assert clock.wall_ms() - offset_ms <= time.time_ns() // 1_000_000
    assert clock.monotonic_ms() <= time.monotonic_ns() // 1_000_000


def test_the_clock_is_the_systems_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CLOCK_OFFSET, raising=False)
    assert type(clock_of_environment()) is SystemClock
