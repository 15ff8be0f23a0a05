import random

import pytest

from kafkapy.timer.wheel import TimerEntry, TimingWheel
from tests.support.wheel_steps import count_steps


class Entry(TimerEntry):
    __slots__ = ("name",)

    def __init__(self, name: object = None) -> None:
        super().__init__()
        self.name = name


def names(entries: list[TimerEntry]) -> list[object]:
    return [entry.name for entry in entries]  # type: ignore[attr-defined]


def test_expires_at_the_deadline_and_not_before() -> None:
    wheel = TimingWheel(start_ms=1_000)
    wheel.add(Entry("a"), 1_005)
    assert wheel.advance(1_004) == []
    assert names(wheel.advance(1_005)) == ["a"]
    assert wheel.advance(9_999) == []


def test_a_tick_of_several_milliseconds_is_late_by_less_than_a_tick() -> None:
    wheel = TimingWheel(start_ms=0, tick_ms=10)
    wheel.add(Entry("a"), 11)
    assert wheel.advance(19) == []
    assert names(wheel.advance(20)) == ["a"]


def test_a_deadline_in_the_past_expires_with_the_next_advance() -> None:
    wheel = TimingWheel(start_ms=500)
    wheel.add(Entry("late"), 100)
    assert wheel.next_deadline_ms() == 500
    assert names(wheel.advance(500)) == ["late"]


@pytest.mark.parametrize("deadline_ms", [63, 64, 65, 4_095, 4_096, 262_144, (1 << 31) + 17, 1 << 45])
def test_every_level_expires_to_the_millisecond(deadline_ms: int) -> None:
    wheel = TimingWheel(start_ms=0)
    wheel.add(Entry("a"), deadline_ms)
    assert wheel.advance(deadline_ms - 1) == []
    assert names(wheel.advance(deadline_ms)) == ["a"]


def test_one_advance_over_a_long_time_expires_all_in_order() -> None:
    wheel = TimingWheel(start_ms=0)
    for deadline_ms in (70_000, 5, 300, 70_001, 5):
        wheel.add(Entry(deadline_ms), deadline_ms)
    assert names(wheel.advance(100_000)) == [5, 5, 300, 70_000, 70_001]


def test_a_cancelled_entry_never_expires_and_may_be_added_again() -> None:
    wheel = TimingWheel(start_ms=0)
    entry = Entry("a")
    wheel.add(entry, 10)
    assert entry.cancel()
    assert not entry.cancel()
    assert wheel.next_deadline_ms() is None
    assert wheel.advance(50) == []
    wheel.add(entry, 60)
    assert names(wheel.advance(60)) == ["a"]
    assert not entry.is_scheduled


def test_next_deadline_is_never_later_than_the_first_entry() -> None:
    wheel = TimingWheel(start_ms=7)
    wheel.add(Entry(), 100_000)
    wakes = 0
    now_ms = 7
    while not (expired := wheel.advance(now_ms)):
        deadline_ms = wheel.next_deadline_ms()
        assert deadline_ms is not None
        assert now_ms < deadline_ms <= 100_000
        now_ms, wakes = deadline_ms, wakes + 1
    assert len(expired) == 1
    assert now_ms == 100_000
    assert wakes <= 4


def test_an_earlier_deadline_is_announced_and_a_later_one_is_not() -> None:
    announced: list[int] = []
    wheel = TimingWheel(start_ms=0, on_earlier_deadline=announced.append)
    for deadline_ms in (500, 501, 499, 700):
        wheel.add(Entry(), deadline_ms)
    assert announced == [500, 499]
    wheel.advance(600)
    wheel.next_deadline_ms()
    wheel.add(Entry(), 630)
    assert announced == [500, 499, 630]


def test_agrees_with_a_sorted_list() -> None:
    rng = random.Random(7)
    wheel, waiting, now_ms = TimingWheel(start_ms=0, wheel_size=8), {}, 0
    for number in range(3_000):
        entry = Entry(number)
        deadline_ms = now_ms + rng.choice((0, 1, 7, 8, 9, 60, 500, 4_000, 70_000))
        wheel.add(entry, deadline_ms)
        waiting[entry] = deadline_ms
        if rng.random() < 0.3:
            cancelled = rng.choice(list(waiting))
            del waiting[cancelled]
            assert cancelled.cancel()
        if rng.random() < 0.3:
            now_ms += rng.choice((1, 3, 20, 600))
            due = {entry for entry, deadline_ms in waiting.items() if deadline_ms <= now_ms}
            assert set(wheel.advance(now_ms)) == due
            for entry in due:
                del waiting[entry]
            first_ms = min(waiting.values(), default=None)
            next_ms = wheel.next_deadline_ms()
            assert (next_ms is None) == (first_ms is None)
            assert next_ms is None or first_ms is None or now_ms < next_ms <= first_ms


@pytest.mark.parametrize("deadline_ms", [20, 500, 30_000, 2_000_000])
def test_add_and_cancel_take_the_same_steps_with_a_hundred_thousand_waiting(deadline_ms: int) -> None:
    def steps_with(waiting_count: int) -> tuple[int, int]:
        wheel = TimingWheel(start_ms=0)
        rng = random.Random(3)
        for _ in range(waiting_count):
            wheel.add(Entry(), rng.randrange(1, 1_000_000))
        wheel.add(Entry(), 1)
        wheel.add(Entry(), 3_000_000)
        entry = Entry()
        return count_steps(lambda: wheel.add(entry, deadline_ms)), count_steps(entry.cancel)

    assert steps_with(100) == steps_with(100_000)


def test_expiry_takes_a_bounded_number_of_steps_for_each() -> None:
    def steps_for_each(waiting_count: int) -> float:
        wheel = TimingWheel(start_ms=0)
        for number in range(waiting_count):
            wheel.add(Entry(), 500 + number % 50)
        return count_steps(lambda: wheel.advance(1_000)) / waiting_count

    assert steps_for_each(100_000) <= steps_for_each(100)
