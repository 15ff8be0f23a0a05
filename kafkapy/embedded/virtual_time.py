"""`Broker(clock="virtual")`: a clock that a test advances, with all that the broker does by time; for clusters, too.

The time of the broker's event loop, and its clocks, are the system's plus an offset. So time passes by itself, too, and
clients are served as always. `advance` raises the offset in steps; after each it waits until the broker has done all
that is due by then: its timers, and the work of its workers and helper processes.
"""

import asyncio
import heapq
import re
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kafkapy.errors import KafkapyError, quoted
from kafkapy.seams import HelperProcess
from kafkapy.server.process.system_clock import SystemClock

if TYPE_CHECKING:
    from concurrent.futures import Future

    from kafkapy.server.broker import BrokerServer

Duration: TypeAlias = str | float | timedelta
"""As in "7d", "1h30m", "500ms"; a number of seconds; a timedelta."""
UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
PARTS: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
STEPS: Final = 50
"""A step is this fraction of the remaining time: timers near its end run almost at their time, those long before it
up to MAX_STEP_S late."""
MAX_STEP_S: Final = 600.0
"""The longest step. A periodic task of a shorter interval runs once in it. Far below a session (PROPERTIES)."""
QUIET_PASSES: Final = 3
"""After so many passes of the loop without a callback, the broker has done what is due."""
WORK_TIMEOUT_S: Final = 60.0
"""How long all that is due at one moment may take."""
BUSY: Final = "clients send so much that the broker was never idle: let them wait while the time moves on;"
MAX_TIMERS_KEPT: Final = 1_000
"""Beside those that wait: a broker whose time never moves on would keep all timers that it ever had."""
PROPERTIES: Final = {
    "broker.heartbeat.interval.ms": "60000",
    "broker.session.timeout.ms": "3600000",
    "connections.max.idle.ms": "-1",
}
"""With Kafka's defaults a broker would send and check heartbeats thousands of times in a virtual hour. Clients keep
their connections, because for them no time has passed."""
CLUSTER_PROPERTIES: Final = {
    **PROPERTIES,
    "controller.quorum.fetch.timeout.ms": "3600000",
    "controller.quorum.request.timeout.ms": "3600000",
    "controller.socket.timeout.ms": "3600000",
    "replica.lag.time.max.ms": "3600000",
    "replica.socket.timeout.ms": "3600000",
}
"""With Kafka's defaults each step would exceed the time-outs between nodes before they could send anything."""


class ClockError(KafkapyError, RuntimeError):
    """A clock that cannot be moved, or a duration that is none."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time can be advanced."""

    def __init__(self) -> None:
        self._offset_s = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timer_count = 0
        self._max_timers = MAX_TIMERS_KEPT
        self.call_count = 0
        """How many callbacks were scheduled so far."""
        super().__init__()

    @property
    def offset_s(self) -> float:
        return self._offset_s

    def time(self) -> float:
        return time.monotonic() + self._offset_s

    def move_to(self, when: float) -> None:
        """Advance the time to `when`, unless it is later already."""
        self._offset_s += max(0.0, when - self.time())

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = super().call_at(when, callback, *args, context=context)
        self._timer_count += 1
        heapq.heappush(self._timers, (when, self._timer_count, handle))
        if len(self._timers) > self._max_timers:
            self._forget_past_timers()
        return handle

    def _forget_past_timers(self) -> None:
        now = self.time()
        self._timers = [each for each in self._timers if each[0] > now and not each[2].cancelled()]
        heapq.heapify(self._timers)
        self._max_timers = 2 * len(self._timers) + MAX_TIMERS_KEPT

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        self.call_count += 1
        return super().call_soon(callback, *args, context=context)

    def next_timer(self) -> float | None:
        """Return when the next pending timer is due; None if there is none."""
        now = self.time()
        while self._timers and (self._timers[0][2].cancelled() or self._timers[0][0] <= now):
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None


class VirtualClock(SystemClock):
    """A seams.Clock in the time of a VirtualLoop."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def wall_ms(self) -> int:
        return (time.time_ns() + int(self._loop.offset_s * 1e9)) // 1_000_000

    def monotonic_ms(self) -> int:
        return self.monotonic_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        return time.monotonic_ns() + int(self._loop.offset_s * 1e9)


class WorkCount:
    """Counts what helper processes have not finished, for `advance` to wait for."""

    def __init__(self) -> None:
        self.unfinished = 0

    def new_helper(self, loop: asyncio.AbstractEventLoop) -> HelperProcess:
        """Return a helper process whose calls are counted."""
        from kafkapy.reactor.helper import SubprocessHelper

        return _CountedHelper(SubprocessHelper(loop), self)


class _CountedHelper:
    """A seams.HelperProcess whose calls are counted."""

    def __init__(self, helper: HelperProcess, count: WorkCount) -> None:
        self._helper = helper
        self._count = count

    def submit(self, function_path: str, arguments: dict[str, Any], on_done: Callable[[Any, str | None], None]) -> None:
        def done(result: Any, error: str | None) -> None:
            self._count.unfinished -= 1
            on_done(result, error)

        self._count.unfinished += 1
        self._helper.submit(function_path, arguments, done)

    def close(self) -> None:
        self._helper.close()


class BrokerClock:
    """`broker.clock`: the broker's time, which a test can advance."""

    def __init__(
        self, loop: VirtualLoop | None, unfinished: Callable[[], int], servers: "Callable[[], Sequence[BrokerServer]]"
    ) -> None:
        """loop: None for the system's clock. `unfinished`: returns how many calls of workers and helpers are not done.

        `servers`: returns the brokers that run.
        """
        self._loop = loop
        self._unfinished = unfinished
        self._servers = servers

    @property
    def is_virtual(self) -> bool:
        return self._loop is not None

    def now(self) -> datetime:
        """Return the broker's time (UTC)."""
        return datetime.fromtimestamp(time.time() + (self._loop.offset_s if self._loop is not None else 0.0), UTC)

    def advance(self, duration: Duration) -> None:
        """Advance the broker's time; return once it has done all that is due until then, in order.

        Timers may run late by two percent of the remaining time, and by ten minutes at most. Raises ClockError.
        """
        self._start_advance(duration).result()

    async def advance_async(self, duration: Duration) -> None:
        """Like `advance`, for `async with`: clients on the caller's loop go on meanwhile. Raises ClockError."""
        await asyncio.wrap_future(self._start_advance(duration))

    def _start_advance(self, duration: Duration) -> "Future[None]":
        loop = self._loop
        if loop is None:
            raise ClockError('the system\'s clock is not moved: Broker(clock="virtual") has one of its own')
        seconds = duration_ms(duration) / 1000
        return asyncio.run_coroutine_threadsafe(self._advance(loop, loop.time() + seconds), loop)

    async def _advance(self, loop: VirtualLoop, target: float) -> None:
        await self._run_due(loop)
        while (now := loop.time()) < target:
            step_end = now + min((target - now) / STEPS, MAX_STEP_S)
            next_timer = loop.next_timer()
            if next_timer is None or next_timer >= target:
                break
            self._move(loop, min(max(next_timer, step_end), target))
            await self._run_due(loop)
        self._move(loop, target)
        await self._run_due(loop)

    def _move(self, loop: VirtualLoop, when: float) -> None:
        """Advance the loop's time. Deadlines of parked fetches move with it: their clients wait in real time."""
        before = loop.offset_s
        loop.move_to(when)
        for server in self._servers():
            if server.services is not None:
                server.services.replica_manager.fetches.postpone(int((loop.offset_s - before) * 1000))

    async def _run_due(self, loop: VirtualLoop) -> None:
        """Return once the broker has done what is due now: its callbacks are run, workers and helpers have finished."""
        deadline = time.monotonic() + WORK_TIMEOUT_S
        quiet = 0
        while quiet < QUIET_PASSES:
            before = loop.call_count
            await asyncio.sleep(0)
            is_quiet = loop.call_count - before <= 1 and not self._unfinished()  # one: this coroutine's own
            quiet = quiet + 1 if is_quiet else 0
            unfinished = self._unfinished()
            if not is_quiet and time.monotonic() > deadline:
                reason = f"{unfinished} calls of workers were not finished" if unfinished else BUSY
                raise ClockError(f"{reason} after {WORK_TIMEOUT_S} s")
            if unfinished:
                await asyncio.sleep(0.001)


def duration_ms(duration: Duration) -> int:
    """Return a duration in milliseconds. Raises ClockError."""
    if isinstance(duration, timedelta):
        found: float = duration.total_seconds() * 1000
    elif isinstance(duration, str):
        text = duration.strip()
        if not text or PARTS.sub("", text):
            units = ", ".join(UNITS_MS)
            raise ClockError(f"{quoted(duration)} is no duration: 7d, 1h30m and 500ms are; the units are {units}")
        found = sum(float(number) * UNITS_MS[unit] for number, unit in PARTS.findall(text))
    else:
        found = duration * 1000
    if found < 0:
        raise ClockError(f"time does not go back: {quoted(str(duration))}")
    return int(found)
