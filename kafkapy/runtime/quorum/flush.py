"""The fsyncs of the metadata log: one at a time, each for all appends so far (group commit).

Without room for the small files beside the log (its epochs), a flush is tried again until there is some.
"""

import asyncio
from collections.abc import Callable

from kafkapy.machine import Event
from kafkapy.raft.effects import FlushLog
from kafkapy.raft.events import LogFlushed, TimePassed
from kafkapy.runtime.quorum.room_wait import RoomWait
from kafkapy.seams import Clock, IoPool, failpoint
from kafkapy.storage.log.flush import Flush
from kafkapy.storage.metadata.metadata_log import MetadataLog


class QuorumFlushes:
    """Starts an fsync when the core wants one and none is in flight; then the next one covers it."""

    def __init__(
        self,
        io_pool: IoPool,
        clock: Clock,
        step: Callable[[Event], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """step(event) passes the end of an fsync to the core; on_failed(error) is called instead if it failed."""
        self._io_pool = io_pool
        self._clock = clock
        self._step = step
        self._on_failed = on_failed
        self._requested: FlushLog | None = None
        self._is_flushing = False
        self._ended = asyncio.Event()
        self._room = RoomWait("The flush of the metadata log")

    def request(self, effect: FlushLog) -> None:
        """Flush up to the offset of the effect, in the next fsync."""
        self._requested = effect

    def maybe_start(self, log: MetadataLog) -> None:
        """Start an fsync of everything appended so far, unless none is wanted or one is in flight."""
        wanted = self._requested
        if wanted is None or self._is_flushing:
            return
        self._requested = None
        self._is_flushing = True
        self._ended.clear()
        flush = log.prepare_flush()
        failpoint("quorum.log.before_flush")
        self._io_pool.submit(flush.run, lambda _, error: self._end(log, flush, wanted, error))

    async def end_of_flush(self) -> None:
        """Return once no fsync is in flight; none is tried again then."""
        self._room.cancel()
        if self._is_flushing:
            await self._ended.wait()

    def _end(self, log: MetadataLog, flush: Flush, wanted: FlushLog, error: BaseException | None) -> None:
        self._is_flushing = False
        self._ended.set()
        log.complete_flush(flush, self._clock.wall_ms())
        if flush.has_no_room:
            log.make_room()
            self._requested = self._requested or wanted
            self._room.try_later(lambda: self._step(TimePassed()), error)
        elif error is not None:
            self._on_failed(error)
        else:
            self._room.end()
            self._step(LogFlushed(wanted.end_offset, wanted.generation))
