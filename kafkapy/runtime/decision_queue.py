"""One decision of the controller at a time: others wait for their turn while one is made, appended and replayed.

What is decided at once never waits here for itself: it is done when the next one comes. It may wait for one that goes
in steps, as events of Apache Kafka's controller wait in its queue.
"""

import asyncio
from collections import deque

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode


class DecisionQueue:
    """`take`, then `release`, whatever happens in between."""

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_taken(self) -> bool:
        return self._is_taken

    async def take(self, timeout_ms: int | None = None) -> None:
        """Return once it is the caller's turn, at once where nobody decides. Raises ApiError REQUEST_TIMED_OUT."""
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
                turn.cancel()  # a handler that is driven without a task is closed, its future is not
            elif not turn.cancelled() and turn.exception() is None:
                self.release()  # it was given to a caller that is gone
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def release(self) -> None:
        """Let the next one decide."""
        assert self._is_taken, "nobody decides"
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._is_taken = False


def _time_out(turn: "asyncio.Future[None]") -> None:
    if not turn.done():
        turn.set_exception(ApiError(ErrorCode.REQUEST_TIMED_OUT))
