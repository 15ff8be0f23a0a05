"""The IO pool: num.io.threads workers for calls that block and release the GIL.

A worker starts when there are more unfinished calls than workers. Completions reach the loop in batches: the loop is
woken once for all calls that end before it runs.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
_Call: TypeAlias = tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]

logger = logging.getLogger(__name__)


class ThreadIoPool:
    """seams.IoPool on threads. `submit` is called on the loop's thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread_count: int) -> None:
        assert thread_count > 0
        self._loop = loop
        self._max_threads = thread_count
        self._threads: list[threading.Thread] = []
        self._leaving: list[threading.Thread] = []
        """Threads removed by resize. Any thread may take the end marker of one of these, so close() joins all."""
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._done: deque[tuple[Callable[[Any, BaseException | None], None], Any, BaseException | None]] = deque()
        self._wake_lock = threading.Lock()
        self._is_woken = False
        self._is_closed = False
        self.unfinished_count = 0

    @property
    def thread_count(self) -> int:
        """How many workers have been started."""
        return len(self._threads)

    def submit(self, call: Callable[[], T], on_done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run `call` on a worker, then `on_done(result, error)` on the loop; a RuntimeError after close."""
        if self._is_closed:
            self._loop.call_soon(on_done, None, RuntimeError("the IO pool is closed"))
            return
        self.unfinished_count += 1
        if self.unfinished_count > len(self._threads) < self._max_threads:
            self._start_thread()
        self._calls.put((call, on_done))
        if not self._threads:
            self._calls.put(None)
            self._work()

    def resize(self, worker_count: int) -> None:
        """Change the maximum number of workers; surplus ones end after their current call."""
        assert worker_count > 0
        self._max_threads = worker_count
        self._leaving = [thread for thread in self._leaving if thread.is_alive()]
        while len(self._threads) > worker_count:
            self._leaving.append(self._threads.pop())
            self._calls.put(None)

    def close(self) -> None:
        """Wait until the workers have finished all submitted calls; the loop still delivers their completions."""
        self._is_closed = True
        for _ in self._threads:
            self._calls.put(None)
        for thread in (*self._threads, *self._leaving):
            thread.join()
        self._threads.clear()
        self._leaving.clear()

    def _start_thread(self) -> None:
        """Start a worker if the process can: Python 3.12 refuses at the program's end, when `Broker` is stopped.

        The workers that there are do its part then; if there are none, the caller of `submit` does.
        """
        thread = threading.Thread(target=self._work, name=f"kafkapy-io-{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return
        self._threads.append(thread)

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            call, on_done = item
            try:
                self._done.append((on_done, call(), None))
            except BaseException as error:
                self._done.append((on_done, None, error))
            del item, call, on_done  # an idle worker keeps nothing alive
            self._wake()

    def _wake(self) -> None:
        with self._wake_lock:
            if self._is_woken:
                return
            self._is_woken = True
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:  # the loop is closed: the completion is dropped
            return

    def _deliver(self) -> None:
        with self._wake_lock:
            self._is_woken = False
        while self._done:
            on_done, result, error = self._done.popleft()
            self.unfinished_count -= 1
            try:
                on_done(result, error)
            except Exception:
                logger.exception("Handling the result of a call that ran in the IO pool failed")
