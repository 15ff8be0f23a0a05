"""The connections whose turn does not fit into the current pass of the event loop, in the order of their turns.

Requests between nodes (votes, fetches of the metadata, heartbeats) need a few passes, and have time-outs of seconds. So
a pass must be short however many connections have requests: with 600 requests of a millisecond each, a round trip
between two nodes took four passes of 600 ms, and elections followed.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkapy.reactor.limits import ACCEPT_SECONDS, PASS_SECONDS
from kafkapy.reactor.request_memory import RequestMemory

if TYPE_CHECKING:
    from kafkapy.reactor.link import Link

_LOOK_SECONDS = PASS_SECONDS / 2
"""After turns of so long the end of the pass is detected, by a callback of the loop, which costs a pass."""


class TurnQueue:
    """The queue of all connections of a reactor: their turns take PASS_SECONDS of a pass, or one turn more.

    While connections are being opened, `accept` is called every ACCEPT_SECONDS between the turns of a pass.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, request_memory: RequestMemory, accept: Callable[[], bool]
    ) -> None:
        """`accept` accepts connections and returns whether more are expected."""
        self._loop = loop
        self._accept = accept
        self._accept_at = math.inf
        self._request_memory = request_memory
        self._queue: deque[tuple[Link, bool]] = deque()
        """Links with whether they wait for their first turn since they became readable."""
        self._late_count = 0
        """The number of links that wait for their first turn."""
        self._will_run = False
        """Whether `_run` is scheduled or running: once a pass, also if a link is queued again while it runs."""
        self._is_looking = False
        self._over = loop.time() + _LOOK_SECONDS
        """While `_is_looking`: when the pass has no time left. Otherwise: when to begin looking for its end."""
        self.due = self._over
        """Before this time maybe_postpone need not be called when a link becomes readable."""

    def expect_connections(self, now: float) -> None:
        """Accept connections between turns, too, until `accept` returns False."""
        if self._accept_at == math.inf:
            self._accept_at = now + ACCEPT_SECONDS
            self._set_due()

    def enqueue(self, link: "Link") -> None:
        """Queue `link` for another turn, after the links that are already queued; it has requests."""
        if not link.is_queued:
            self._request_memory.requests += 1
            self._append(link, is_late=False)

    def maybe_postpone(self, link: "Link", now: float) -> bool:
        """Queue a link that has become readable, if the pass has no time for its turn or others wait for theirs."""
        if now >= self._accept_at:
            self._accept_between_turns(now)
        if not self._late_count and not self._is_pass_over(now):
            return False
        if not link.is_queued:
            self._late_count += 1
            self.due = 0.0
            self._append(link, is_late=True)
        return True

    def _append(self, link: "Link", *, is_late: bool) -> None:
        link.is_queued = True
        self._queue.append((link, is_late))
        if not self._will_run:
            self._will_run = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        """Give one turn to each queued link, while the pass has time; a link that needs another is queued again."""
        queue = self._queue
        assert queue, "it runs for a queued link"
        for _ in range(len(queue)):
            link, is_late = queue.popleft()
            link.is_queued = False
            if is_late:
                self._late_count -= 1
            else:
                self._request_memory.requests -= 1
            link.resume()
            now = self._loop.time()
            if now >= self._accept_at:
                self._accept_between_turns(now)
            if self._is_pass_over(now):
                break
        self._will_run = bool(queue)
        if queue:
            self._loop.call_soon(self._run)
        self._set_due()
        link.processor.maybe_resume_waiting()

    def _accept_between_turns(self, now: float) -> None:
        self._accept_at = now + ACCEPT_SECONDS if self._accept() else math.inf
        self._set_due()

    def _is_pass_over(self, now: float) -> bool:
        if now < self._over:
            return False
        if self._is_looking:
            return True
        self._is_looking = True
        self._set_over(now + PASS_SECONDS - _LOOK_SECONDS)
        self._loop.call_soon(self._set_next_pass)
        return False

    def _set_next_pass(self) -> None:
        self._is_looking = False
        self._set_over(self._loop.time() + _LOOK_SECONDS)

    def _set_over(self, over: float) -> None:
        self._over = over
        self._set_due()

    def _set_due(self) -> None:
        self.due = 0.0 if self._late_count else min(self._over, self._accept_at)
