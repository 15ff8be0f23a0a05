"""Closes connections whose partial frames stall while others wait for the request memory that they hold.

A frame must be complete within STALLED_FRAME_MS, or CROWDED_FRAME_MS if even the smallest request finds no room. The
time counts from when the partial frame was first seen here, however its bytes trickle in. A frame of which little has
arrived gets twice the time, as it may itself have waited for stalled ones. All overdue connections are closed together.
No time counts while started requests hold half of the request memory or more: then no peer is at fault.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from kafkapy.reactor.limits import CROWDED_FRAME_MS, LEASE_BYTES_PER_LOOK, STALL_LOOK_MS, STALLED_FRAME_MS
from kafkapy.reactor.request_memory import Reader, RequestMemory
from kafkapy.runtime.after_reads import AfterReads

if TYPE_CHECKING:
    from kafkapy.reactor.link import Link

LITTLE_SHARE: Final = 64
"""A frame that holds less than this fraction (1/64) of the request memory holds little: 4 MiB of the default 256."""

logger = logging.getLogger(__name__)


class StallWatch:
    """Checks partial frames every STALL_LOOK_MS while connections wait for room. Adds no cost per request."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, request_memory: RequestMemory, links: "Callable[[], Iterable[Link]]"
    ) -> None:
        self._loop = loop
        self._request_memory = request_memory
        self._links = links
        self._timer: AfterReads | None = None
        self._seen: dict[Link, tuple[int, float]] = {}
        """For each link with a partial frame: the frame's sequence number, and when it was first seen here."""
        self._lease: tuple[Reader | None, int] = (None, 0)
        """The lease holder at the last check, and how many bytes it had received then."""

    def begin(self) -> None:
        """Call when a connection has to wait for room: start the checks unless they run."""
        if self._timer is None:
            self._timer = AfterReads(self._loop, STALL_LOOK_MS / 1000, self._check)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        request_memory = self._request_memory
        if not request_memory.waiting:
            self._seen = {}
            return
        now = self._loop.time()
        begun = {link: frame for link in self._links() if (frame := link.begun_frame) is not None}
        bytes_at_work = request_memory.bytes - sum(link.unstarted_bytes for link in begun)
        if request_memory.waits_for_turns or 2 * bytes_at_work >= request_memory.max_bytes:
            self._seen = {}
        else:
            self._seen = {link: self._since(link, frame, now) for link, frame in begun.items()}
            self._close_stalled(now)
        self._judge_lease()
        self.begin()

    def _since(self, link: "Link", frame: int, now: float) -> tuple[int, float]:
        seen = self._seen.get(link)
        return seen if seen is not None and seen[0] == frame else (frame, now)

    def _close_stalled(self, now: float) -> None:
        is_full = self._request_memory.is_full
        for link, (_, since) in self._seen.items():
            max_ms = CROWDED_FRAME_MS if is_full else self._time_ms(link)
            if now - since >= max_ms / 1000:
                logger.warning(
                    "Closing connection %s: its request arrives too slowly while others wait for memory",
                    link.info.connection_id,
                )
                link.close()

    def _time_ms(self, link: "Link") -> int:
        holds_little = LITTLE_SHARE * link.unstarted_bytes < self._request_memory.max_bytes
        return 2 * STALLED_FRAME_MS if holds_little else STALLED_FRAME_MS

    def _judge_lease(self) -> None:
        from kafkapy.reactor.link import Link

        holder = self._request_memory.lease_holder
        byte_count = holder.unstarted_bytes if isinstance(holder, Link) else 0
        before, bytes_before = self._lease
        self._lease = (holder, byte_count)
        if holder is not None and holder is before and byte_count - bytes_before < LEASE_BYTES_PER_LOOK:
            self._request_memory.pass_lease_on()
