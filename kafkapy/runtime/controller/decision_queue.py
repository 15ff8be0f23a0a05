"""A lock with a FIFO queue: the controller makes, appends and replays one decision at a time.

A decision made in one call is complete before the next caller arrives, so it only ever waits for one that is made in
steps, as events of Apache Kafka's controller wait in its queue.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode

if TYPE_CHECKING:
    from kafkapy.metrics.operations import OperationCounts


class DecisionQueue:
    """Call `take`, then `release` in every case."""

    def __init__(self, counts: "OperationCounts | None" = None) -> None:
        self._counts = counts
        self._began_ns = 0
        """When the decision under way began, if that is counted."""
        self._is_taken = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_taken(self) -> bool:
        return self._is_taken

    async def acquire(self, timeout_ms: int | None = None) -> None:
        """Return when it is the caller's turn, at once if the lock is free. Raises ApiError REQUEST_TIMED_OUT."""
        counts = self._counts
        requested_ns = 0 if counts is None else counts.now_ns()
        if self._is_taken:
            await self._turn(timeout_ms)
        self._is_taken = True
        if counts is not None:
            self._began_ns = counts.record_start(requested_ns)

    async def _turn(self, timeout_ms: int | None) -> None:
        """Wait until the lock is handed to the caller. Raises ApiError REQUEST_TIMED_OUT."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        timer = None if timeout_ms is None else loop.call_later(timeout_ms / 1000, self._time_out, turn)
        try:
            await turn
        except BaseException:
            if not turn.done():
                turn.cancel()  # a handler run without a task is closed, its future is not
            elif not turn.cancelled() and turn.exception() is None:
                self.release()  # the turn was given to a caller that is gone
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def release(self) -> None:
        """Hand the lock to the next caller."""
        assert self._is_taken, "released without being taken"
        if self._counts is not None and self._began_ns:
            self._counts.record_done(self._began_ns)
            self._began_ns = 0
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._is_taken = False

    def on_timed_out(self) -> None:
        """A decision was refused because its time was over before it began."""
        if self._counts is not None:
            self._counts.timed_out += 1

    def _time_out(self, turn: "asyncio.Future[None]") -> None:
        if not turn.done():
            self.on_timed_out()
            turn.set_exception(ApiError(ErrorCode.REQUEST_TIMED_OUT))
