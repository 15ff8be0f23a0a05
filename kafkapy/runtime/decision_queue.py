"""A lock with a FIFO queue: the controller makes, appends and replays one decision at a time.

A decision made in one call is complete before the next caller arrives, so it only ever waits for one that is made in
steps, as events of Apache Kafka's controller wait in its queue.
"""

import asyncio
from collections import deque

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode


class DecisionQueue:
    """Call `take`, then `release` in every case."""

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_taken(self) -> bool:
        return self._is_taken

    async def take(self, timeout_ms: int | None = None) -> None:
        """Return when it is the caller's turn, at once if the lock is free. Raises ApiError REQUEST_TIMED_OUT."""
        if not self._is_taken:
            self._is_taken = True
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        timer = None if timeout_ms is None else loop.call_later(timeout_ms / 1000, _time_out, turn)
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
        """Let the next caller decide."""
        assert self._is_taken, "released without being taken"
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._is_taken = False


def _time_out(turn: "asyncio.Future[None]") -> None:
    if not turn.done():
        turn.set_exception(ApiError(ErrorCode.REQUEST_TIMED_OUT))
