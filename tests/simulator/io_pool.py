"""An IO pool in virtual time: workers without threads."""

import errno
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from tests.simulator.disk import SimCrash
from tests.simulator.loop import SimLoop

T = TypeVar("T")


class SimIoPool:
    """seams.IoPool: a call runs when a worker takes it, and ends after `call_ms` and what it told `loop.block`."""

    def __init__(self, loop: SimLoop, *, worker_count: int = 8, call_ms: float = 0.05) -> None:
        self._loop = loop
        self.worker_count = worker_count
        self._idle_count = worker_count
        self._call_ms = call_ms
        self._queue: deque[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = deque()
        self.finished_count = 0

    def submit(self, call: Callable[[], T], on_done: Callable[[T | None, BaseException | None], None]) -> None:
        self._queue.append((call, on_done))
        self._loop.call_soon(self._work)

    def close(self) -> None:
        """Run what still waits, in no time; as the threads' pool, a last time on the loop."""
        while self._queue:
            call, on_done = self._queue.popleft()
            self._loop.call_soon(on_done, *_outcome(call))

    def resize(self, worker_count: int) -> None:
        self._idle_count += worker_count - self.worker_count
        self.worker_count = worker_count

    @property
    def unfinished_count(self) -> int:
        return len(self._queue)

    def _work(self) -> None:
        if not self._queue or self._idle_count <= 0:
            return
        self._idle_count -= 1
        call, on_done = self._queue.popleft()
        self._loop.blocked_ms_in_call.append(self._call_ms)
        result, error = _outcome(call)
        duration_ms = self._loop.blocked_ms_in_call.pop()
        self._loop.call_later(duration_ms / 1000, self._finish, on_done, result, error)

    def _finish(self, on_done: Callable[[Any, BaseException | None], None], result: Any, error: Any) -> None:
        self._idle_count += 1
        self.finished_count += 1
        self._loop.call_soon(self._work)
        on_done(result, error)


def _outcome(call: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    """Return result and error. A worker that dies with the process answers, too: nobody must wait for it for ever."""
    try:
        return call(), None
    except Exception as error:
        return None, error
    except SimCrash as crash:
        return None, OSError(errno.EIO, str(crash))
