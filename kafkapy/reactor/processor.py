"""A processor owns a share of the connections: it keeps their parked requests, and sends responses together.

There are num.network.threads processors, all on the one event loop; connections are assigned round-robin. Responses
that complete outside a turn are sent together at the end of the loop's pass.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkapy.dataclass import dataclass
from kafkapy.protocol.serving import ConnectionInfo, Serving
from kafkapy.reactor.byte_account import ByteAccount, UnsentResponses
from kafkapy.reactor.limits import ReactorLimits
from kafkapy.reactor.read_ahead import ReadAhead
from kafkapy.reactor.receiving import ANY_BYTES
from kafkapy.reactor.request_memory import RequestMemory
from kafkapy.reactor.turn_queue import TurnQueue
from kafkapy.runtime.after_reads import AfterReads
from kafkapy.seams import Channel

if TYPE_CHECKING:
    from kafkapy.reactor.link import Link
    from kafkapy.reactor.pending_request import PendingRequest

logger = logging.getLogger(__name__)

_SWEEPS_PER_IDLE_TIME = 10
_MAX_SWEEP_SECONDS = 30.0
"""The interval of checks for idle connections: one closes at most a tenth of its time, or half a minute, late."""


MAX_UNSENT = 16
"""At most so many links send their responses together, which bounds a response's wait to a few milliseconds."""


@dataclass(frozen=True, slots=True)
class Shared:
    """The shared state of a reactor's processors."""

    request_memory: RequestMemory
    read_ahead: ReadAhead
    turns: TurnQueue
    unsent: UnsentResponses
    logins: "ByteAccount[Link]"


class Processor:
    """Owner of a share of the connections."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        limits: ReactorLimits,
        serving: Serving,
        shared: Shared,
        on_closed: Callable[[ConnectionInfo], None],
    ) -> None:
        self.loop = loop
        self.limits = limits
        self.serving = serving
        self.shared = shared
        self.request_memory = shared.request_memory
        self.pending_requests: dict[PendingRequest, None] = {}
        self.links: dict[Link, None] = {}
        """In order of creation, so that simulations are deterministic."""
        self._on_closed = on_closed
        self._dirty: list[Link] = []
        self._yielded: deque[PendingRequest] = deque()
        self._unsent: list[Link] = []
        self._last_turn: Link | None = None
        self._last_turn_at = 0.0
        self._is_resuming = False
        self._idle_seconds = limits.connections_max_idle_ms / 1000
        self._sweeper: AfterReads | None = None
        self._swept_at = loop.time()

    def adopt(self, channel: Channel, info: ConnectionInfo) -> "Link":
        """Take over a new connection and start to read from it."""
        from kafkapy.reactor.link import Link  # not needed before the first connection

        link = Link(self, channel, info)
        self.links[link] = None
        link.open()
        if self._sweeper is None:
            self._schedule_sweep()
        return link

    def serve_by(self, serving: Serving) -> None:
        """Serve all connections by another router, existing ones too, except those whose login can expire."""
        self.serving = serving
        for link in self.links:
            link.use_router(serving)

    # ---- called by links

    def is_crowded(self, link: "Link") -> bool:
        """Record a turn of `link`; return whether another link had the previous turn in the same millisecond.

        If so, the caller defers sending until after those turns. A response sent alone may wake its client, which then
        takes the core for one response (measured on two cores, 200 connections of one client: 15,200 requests a second
        with deferring, 10,900 without). A link that is alone sends at once, which saves a pass of the loop.
        """
        is_crowded = self._last_turn_at == link.last_active and self._last_turn is not link
        self._last_turn = link
        self._last_turn_at = link.last_active
        return is_crowded

    def send_later(self, link: "Link") -> None:
        """Send the responses of `link` together with those of other links, in the loop's next pass at the latest."""
        if not self._unsent:
            self.loop.call_soon(self._send_all)
        self._unsent.append(link)
        if len(self._unsent) >= MAX_UNSENT:
            self._send_all()

    def mark_dirty(self, link: "Link") -> None:
        """Send the responses of `link` in the loop's next pass, with all others that complete in this pass."""
        link.is_dirty = True
        if not self._dirty:
            self.loop.call_soon(self._run_dirty)
        self._dirty.append(link)

    def resume_soon(self, pending: "PendingRequest") -> None:
        """Continue a handler in the loop's next pass, after what was scheduled before; send all responses after that.

        So a handler that needs only what this pass has scheduled is answered before the loop reads sockets again.
        """
        if not self._yielded:
            self.loop.call_soon(self._run_yielded)
        self._yielded.append(pending)

    def release(self, byte_count: int) -> None:
        """Free request memory, and resume links that wait for room."""
        self.request_memory.bytes -= byte_count
        self.maybe_resume_waiting()

    def maybe_resume_waiting(self) -> None:
        if self.request_memory.may_resume:
            self._resume_soon()

    def wake_waiting(self, link: "Link") -> None:
        """After a turn of `link`: resume waiting links if there is room, or if `link` has given up the lease."""
        if not link.is_mid_frame and self.request_memory.end_lease(link):
            self._resume_soon()
        else:
            self.maybe_resume_waiting()

    def _resume_soon(self) -> None:
        if not self._is_resuming:
            self._is_resuming = True
            self.loop.call_soon(self._resume_waiting)

    def forget(self, link: "Link", unstarted_bytes: int) -> None:
        """Remove `link`, which has closed."""
        self.links.pop(link, None)
        if self._last_turn is link:
            self._last_turn = None
        if self.request_memory.forget(link):
            self._resume_soon()
        self.release(unstarted_bytes)
        self.shared.unsent.update(link, (), 0, 0)
        self.shared.logins.count(link, 0)
        self._on_closed(link.info)

    # ---- callbacks of the loop

    def _run_dirty(self) -> None:
        dirty, self._dirty = self._dirty, []
        for link in dirty:
            link.progress()

    def _run_yielded(self) -> None:
        yielded, self._yielded = self._yielded, deque()
        try:
            while yielded:
                yielded.popleft().step()
        finally:
            for pending in yielded:  # a step has failed, which is a bug: the others continue
                self.resume_soon(pending)
        if self._dirty:
            self._run_dirty()

    def _send_all(self) -> None:
        unsent, self._unsent = self._unsent, []
        for link in unsent:
            link.send()

    def _resume_waiting(self) -> None:
        self._is_resuming = False
        self.request_memory.resume_waiting()

    # ---- time

    def _schedule_sweep(self) -> None:
        if self._idle_seconds > 0:
            seconds = min(self._idle_seconds / _SWEEPS_PER_IDLE_TIME, _MAX_SWEEP_SECONDS)
            self._sweeper = AfterReads(self.loop, seconds, self._sweep)

    def _sweep(self) -> None:
        """Close connections without traffic for connections.max.idle.ms. Runs ten times in that period, or more often.

        A connection may await more of a frame than arrives: a TLS peer that says goodbye amid a frame without closing
        sends only an alert. So what has arrived is received after two sweeps at the latest.
        """
        now = self.loop.time()
        idle_since = now - self._idle_seconds
        swept_at, self._swept_at = self._swept_at, now
        for link in [link for link in self.links if link.last_active <= swept_at]:
            if link.awaited_bytes != ANY_BYTES:
                link.await_any_bytes()
                continue
            if link.last_active > idle_since:
                continue
            logger.info("Closing connection %s: idle for %.0f s", link.info.connection_id, self._idle_seconds)
            link.close()
        self._sweeper = None
        if self.links:
            self._schedule_sweep()

    # ---- closing

    @property
    def is_quiet(self) -> bool:
        """True if no connection has unanswered requests or unsent responses."""
        return all(link.is_idle for link in self.links)

    def close(self) -> None:
        """Close every connection and cancel the handlers of parked requests."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for link in list(self.links):
            link.close()
        for pending in list(self.pending_requests):
            pending.cancel()
            self.request_memory.bytes -= pending.frame_bytes
        self.pending_requests.clear()
