import asyncio

import pytest

from kafkapy.runtime.expirer import Expirer
from kafkapy.timer.wheel import TimerEntry, TimingWheel
from tests.simulator.loop import SimClock, SimLoop, run


class Recorder(TimerEntry):
    def __init__(self, loop: SimLoop, fired_ms: list[int], *, fails: bool = False) -> None:
        super().__init__()
        self._loop, self._fired_ms, self._fails = loop, fired_ms, fails

    def on_timeout(self, now_ms: int) -> None:
        self._fired_ms.append(self._loop.now_ms())
        if self._fails:
            raise ValueError("broken entry")


async def test_entries_expire_to_the_millisecond_with_one_timer_on_the_loop(loop: SimLoop) -> None:
    wheel, fired_ms = TimingWheel(start_ms=0), list[int]()
    expirer = Expirer(wheel, SimClock(loop))
    expirer.start()
    timers_before = len(loop._scheduled)  # type: ignore[attr-defined]
    for deadline_ms in (500, 90, 5_000, 90):
        wheel.add(Recorder(loop, fired_ms), deadline_ms)
    live = [timer for timer in loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
    assert len(live) == timers_before + 1
    await asyncio.sleep(6)
    assert fired_ms == [90, 90, 500, 5_000]
    expirer.stop()


async def test_with_nothing_waiting_no_timer_is_set(loop: SimLoop) -> None:
    wheel = TimingWheel(start_ms=0)
    expirer = Expirer(wheel, SimClock(loop))
    expirer.start()
    entry = Recorder(loop, [])
    wheel.add(entry, 100)
    entry.cancel()
    await asyncio.sleep(1)
    assert expirer._timer is None
    expirer.stop()


def test_one_failing_entry_does_not_keep_the_others_waiting() -> None:
    async def main(loop: SimLoop) -> list[int]:
        reported: list[object] = []
        loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
        wheel, fired_ms = TimingWheel(start_ms=0), list[int]()
        Expirer(wheel, SimClock(loop)).start()
        wheel.add(Recorder(loop, fired_ms, fails=True), 10)
        wheel.add(Recorder(loop, fired_ms), 10)
        wheel.add(Recorder(loop, fired_ms), 20)
        await asyncio.sleep(1)
        assert [str(error) for error in reported] == ["time-outs that failed (1 sub-exception)"]
        return fired_ms

    assert run(main) == [10, 10, 20]


async def test_an_expirer_starts_once(loop: SimLoop) -> None:
    expirer = Expirer(TimingWheel(start_ms=0), SimClock(loop))
    expirer.start()
    with pytest.raises(AssertionError):
        expirer.start()
    expirer.stop()
