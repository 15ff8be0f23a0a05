"""An asyncio event loop in virtual time, and the clock that reads it.

When nothing is ready, time jumps to the next timer; when no timer is left either, the test hangs, and says so.
Callbacks run in the order asyncio promises, so a run repeats itself exactly. A call that would block the thread in
production says so through `SimLoop.block`: on the loop it moves time on for everybody, inside of a SimIoPool it delays
that call alone.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
START_WALL_MS = 1_700_000_000_000


class HungError(AssertionError):
    """Nothing is ready and no timer is set: the awaited thing can never happen."""


class _VirtualSelector:
    """What BaseEventLoop takes for its selector: no events ever come, waiting is moving the clock."""

    def __init__(self, loop: "SimLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise HungError("nothing is ready and no timer is set")
        if timeout > 0:
            self._loop.jump_to_next_timer()
        return []

    def close(self) -> None:
        return


class SimLoop(asyncio.BaseEventLoop):
    """Virtual time in seconds from 0; `rng` is the seeded random generator of all that this loop simulates."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.now = 0.0
        self.rng = random.Random(seed)
        self.blocked_ms_in_call: list[float] = []
        self._selector = _VirtualSelector(self)

    def time(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return round(self.now * 1000)

    def block(self, duration_ms: float) -> None:
        """Be a system call that takes so long: see the module's text."""
        if self.blocked_ms_in_call:
            self.blocked_ms_in_call[-1] += duration_ms
        else:
            self.now += duration_ms / 1000

    def jump_to_next_timer(self) -> None:
        scheduled = self._scheduled  # type: ignore[attr-defined]
        if scheduled:
            self.now = max(self.now, scheduled[0].when())

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, context: Any = None) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def _process_events(self, event_list: list[Any]) -> None:
        assert not event_list

    def _write_to_self(self) -> None:
        return


class SimClock:
    """seams.Clock of a SimLoop."""

    def __init__(self, loop: SimLoop, start_wall_ms: int = START_WALL_MS) -> None:
        self._loop = loop
        self._start_wall_ms = start_wall_ms

    def wall_ms(self) -> int:
        return self._start_wall_ms + self._loop.now_ms()

    def monotonic_ms(self) -> int:
        return self._loop.now_ms()

    def monotonic_ns(self) -> int:
        return self._loop.now_ms() * 1_000_000


def run(main: Callable[[SimLoop], Coroutine[Any, Any, T]], *, seed: int = 0, limit_seconds: float = 3600.0) -> T:
    """Run `main(loop)` on a new SimLoop to its end; AssertionError after `limit_seconds` of virtual time."""
    return run_on(SimLoop(seed), main, limit_seconds=limit_seconds)


def run_on(loop: SimLoop, main: Callable[[SimLoop], Coroutine[Any, Any, T]], *, limit_seconds: float = 3600.0) -> T:
    """Run `main(loop)` on a loop that has run nothing yet, as `run` does, and close it."""
    asyncio.set_event_loop(loop)
    try:
        task = loop.create_task(main(loop))
        limit = loop.call_later(limit_seconds, task.cancel)
        result = loop.run_until_complete(task)
        limit.cancel()
        return result
    except asyncio.CancelledError:
        raise AssertionError(f"still running after {limit_seconds} s of virtual time") from None
    finally:
        _cancel_all(loop)
        asyncio.set_event_loop(None)
        loop.close()


CANCEL_ROUNDS = 10
CANCEL_S = 1.0
"""Of virtual time in a round: a task that goes on though it was cancelled is cancelled again in the next one."""


def _cancel_all(loop: SimLoop) -> None:
    """Cancel all tasks, and those that they begin as they end, some rounds long."""
    for _ in range(CANCEL_ROUNDS):
        tasks = asyncio.all_tasks(loop)
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        ended, _ = loop.run_until_complete(asyncio.wait(tasks, timeout=CANCEL_S))
        for task in ended:
            if not task.cancelled():
                task.exception()  # retrieved, so that asyncio does not log it
