"""A loop that stood still reads what waits in its sockets before it judges by the clock, on every loop we run on."""

import asyncio
import socket
import time
from collections.abc import Callable

import pytest
import uvloop

from kafkapy.runtime.after_reads import AfterReads
from kafkapy.runtime.expirer import Expirer
from kafkapy.server.process.system_clock import SystemClock
from kafkapy.timer.wheel import TimerEntry, TimingWheel
from tests.simulator.loop import SimLoop, run

LOOPS = [uvloop.new_event_loop, asyncio.new_event_loop]


class Session(TimerEntry):
    """What ends unless somebody is heard of."""

    def __init__(self) -> None:
        super().__init__()
        self.is_over = False

    def on_timeout(self, now_ms: int) -> None:
        self.is_over = True


@pytest.mark.parametrize("new_loop", LOOPS)
def test_who_was_heard_of_in_time_has_not_fallen_silent(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    ours, theirs = socket.socketpair()
    busy, trigger = socket.socketpair()
    silent, alive = Session(), Session()

    def stand_still() -> None:
        """Hold the loop beyond both deadlines; meanwhile one is heard of."""
        busy.recv(1)
        theirs.send(b"x")
        time.sleep(0.4)

    async def main() -> None:
        clock = SystemClock()
        wheel = TimingWheel(start_ms=clock.monotonic_ms())
        expirer = Expirer(wheel, clock)
        expirer.start()
        loop = asyncio.get_running_loop()
        loop.add_reader(ours, lambda: (ours.recv(1), alive.cancel()))
        loop.add_reader(busy, stand_still)
        trigger.send(b"x")
        for session in (silent, alive):
            wheel.add(session, clock.monotonic_ms() + 300)
        while not silent.is_over:
            await asyncio.sleep(0.005)
        loop.remove_reader(ours)
        loop.remove_reader(busy)
        expirer.stop()

    loop = new_loop()
    try:
        loop.run_until_complete(asyncio.wait_for(main(), 60))
    finally:
        loop.close()
        for each in (ours, theirs, busy, trigger):
            each.close()
    assert not alive.is_over


def test_cancelled_is_cancelled_also_while_it_lets_reads_happen() -> None:
    async def main(loop: SimLoop) -> list[str]:
        done: list[str] = []
        early, late = AfterReads(loop, 1, done.append, "early"), AfterReads(loop, 1, done.append, "late")
        AfterReads(loop, 1, done.append, "kept")
        early.cancel()
        await asyncio.sleep(1)
        late.cancel()
        await asyncio.sleep(1)
        return done

    assert run(main) == ["kept"]
