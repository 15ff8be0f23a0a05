"""Drives the timing wheel: one event-loop timer, set to the wheel's next deadline.

Deadlines are judged after the sockets have been read (after_reads.py), so that an event that arrived in time counts.
"""

import asyncio

from kafkapy.runtime.after_reads import AfterReads
from kafkapy.seams import Clock
from kafkapy.timer.wheel import TimingWheel


class Expirer:
    """Owns the loop's timer between start() and stop(). While the wheel is empty, no timer is set."""

    def __init__(self, wheel: TimingWheel, clock: Clock) -> None:
        self._wheel = wheel
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: AfterReads | None = None

    def start(self) -> None:
        """Start; to be called on the loop."""
        assert self._loop is None, "started twice"
        self._loop = asyncio.get_running_loop()
        self._wheel.on_earlier_deadline = self._arm
        self._rearm()

    def stop(self) -> None:
        self._wheel.on_earlier_deadline = None
        self._loop = None
        self._cancel_timer()

    def _arm(self, deadline_ms: int) -> None:
        if self._loop is None:
            return
        self._cancel_timer()
        delay_ms = max(deadline_ms - self._clock.monotonic_ms(), 0)
        self._timer = AfterReads(self._loop, delay_ms / 1000, self._turn)

    def _turn(self) -> None:
        """Expire the due entries. If some of them raise, the others run first; then the loop reports the errors."""
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        failures: list[Exception] = []
        for entry in self._wheel.advance(now_ms):
            try:
                entry.on_timeout(now_ms)
            except Exception as failure:
                failures.append(failure)
        self._rearm()
        if failures:
            raise ExceptionGroup("time-outs that failed", failures)

    def _rearm(self) -> None:
        deadline_ms = self._wheel.next_deadline_ms()
        if deadline_ms is not None:
            self._arm(deadline_ms)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
