"""Decides when to take a snapshot of the metadata log, and writes it, one slice per turn of the loop."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from kafkapy.config.quorum import QuorumConfig
from kafkapy.named_tuple import NamedTuple
from kafkapy.raft.log_view import LogView
from kafkapy.raft.voters import VoterHistory, VoterSet
from kafkapy.runtime.quorum.listeners import Delivery
from kafkapy.seams import System
from kafkapy.storage.metadata.snapshot import SnapshotWriter
from kafkapy.types import OffsetAndEpoch

REPLAYED_BYTES: Final = 1 << 20
"""A start replays so much in 0.2 s. A log longer than this, and than its snapshot, gets a new snapshot soon."""
AFTER_START_MS: Final = 5_000
"""The delay after the start, which is complete by then or has other work."""

logger = logging.getLogger("kafkapy.runtime.quorum")


class SnapshotSchedule:
    """Due after max_bytes of committed records, or max_interval_ms after the last one if anything was committed since.

    metadata.log.max.record.bytes.between.snapshots, metadata.log.max.snapshot.interval.ms (0: never by time).
    `committed_bytes` counts up from the start of the process, with what it replayed after the latest snapshot.

    Deviation: Apache Kafka takes no snapshot before one of these limits, and both count from the start of the process.
    Here one is also due soon after a start that had to replay more than `snapshot_bytes`, the size of the snapshot
    before, because each restart elects all leaders again. With restarts within the hour each took longer than the one
    before, up to 20 MiB of log.
    """

    def __init__(self, *, max_bytes: int, max_interval_ms: int, started_ms: int, snapshot_bytes: int = 0) -> None:
        self._max_bytes = max_bytes
        self._max_interval_ms = max_interval_ms
        self._replayed_limit: int | None = max(snapshot_bytes, REPLAYED_BYTES)
        """None once the start is over."""
        self._last_ms = started_ms
        self._last_bytes = 0

    def is_due(self, committed_bytes: int, now_ms: int) -> bool:
        new_bytes = committed_bytes - self._last_bytes
        if new_bytes >= self._max_bytes or self._has_replayed_much(new_bytes, now_ms):
            return True
        return new_bytes > 0 and 0 < self._max_interval_ms <= now_ms - self._last_ms

    def _has_replayed_much(self, new_bytes: int, now_ms: int) -> bool:
        """Return whether the start took long because of the log. Answered once, AFTER_START_MS after it began.

        What was committed in these seconds counts, too.
        """
        limit = self._replayed_limit
        if limit is None or now_ms - self._last_ms < AFTER_START_MS:
            return False
        self._replayed_limit = None
        return new_bytes >= limit

    def reset(self, committed_bytes: int, now_ms: int) -> None:
        self._replayed_limit = None
        self._last_bytes = committed_bytes
        self._last_ms = now_ms


class SnapshotContent(NamedTuple):
    """The content of a snapshot. snapshot_id: the end of a committed batch. slices: framed records, a batch each."""

    snapshot_id: OffsetAndEpoch
    last_contained_log_timestamp_ms: int
    kraft_version: int
    voters: VoterSet
    slices: Iterable[list[bytes]]


ImageSource: TypeAlias = Callable[[], tuple[OffsetAndEpoch, int, Iterable[list[bytes]]]]
"""Returns (snapshot id: end offset and epoch of the committed image, timestamp of its last record in ms, slices)."""


class OwnSnapshots:
    """Takes the snapshots of this node's own image when they are due, one at a time."""

    def __init__(self, directory: str, system: System, on_written: Callable[[OffsetAndEpoch], None]) -> None:
        """on_written(snapshot id) is called when a snapshot is durable; one that fails is logged, and tried later."""
        self._directory = directory
        self._system = system
        self._on_written = on_written
        self._source: ImageSource | None = None
        self._schedule: SnapshotSchedule
        self._job: SnapshotJob | None = None
        self.latest_bytes = 0
        """The size of the last snapshot taken; 0 before the first."""
        self._latest_ms = system.clock.monotonic_ms()

    @property
    def latest_age_ms(self) -> int:
        """The time since the last snapshot; before the first one, since the start of this node."""
        return self._system.clock.monotonic_ms() - self._latest_ms

    def set_source(self, source: ImageSource) -> None:
        self._source = source

    def begin(self, config: QuorumConfig, snapshot_bytes: int) -> None:
        """Start to count, after the log was recovered. snapshot_bytes: the size of its latest snapshot, 0 without."""
        self._schedule = SnapshotSchedule(
            max_bytes=config.metadata_log_max_record_bytes_between_snapshots,
            max_interval_ms=config.metadata_log_max_snapshot_interval_ms,
            started_ms=self._system.clock.monotonic_ms(),
            snapshot_bytes=snapshot_bytes,
        )

    def maybe_take(self, delivery: Delivery, log: LogView, voters: VoterHistory) -> None:
        """Start a snapshot if one is due, of more than the latest one has. voters: those in the log."""
        if self._source is None or self._job is not None:
            return
        committed_bytes, now_ms = delivery.delivered_bytes, self._system.clock.monotonic_ms()
        if not self._schedule.is_due(committed_bytes, now_ms):
            return
        self._schedule.reset(committed_bytes, now_ms)
        snapshot_id, timestamp_ms, slices = self._source()
        latest = log.latest_snapshot
        if (latest is not None and snapshot_id <= latest) or snapshot_id.offset > delivery.delivered_offset:
            return
        kraft_version = voters.kraft_version_before(snapshot_id.offset)
        content = SnapshotContent(snapshot_id, timestamp_ms, kraft_version, voters.before(snapshot_id.offset), slices)
        self._job = SnapshotJob(self._system, self._directory, content, self._on_job_done)

    async def cancel(self) -> None:
        """Stop the snapshot being written, if any."""
        if self._job is not None:
            await self._job.cancel()

    def _on_job_done(self, snapshot_id: OffsetAndEpoch, size_bytes: int, error: BaseException | None) -> None:
        self._job = None
        if error is not None:
            logger.warning("Could not write metadata snapshot %s: %s", snapshot_id, error)
        else:
            self.latest_bytes, self._latest_ms = size_bytes, self._system.clock.monotonic_ms()
            self._on_written(snapshot_id)


class SnapshotJob:
    """A snapshot being written.

    Calls on_done(snapshot id, size in bytes, error) when it is durable under its name, or has failed.
    """

    def __init__(
        self,
        system: System,
        directory: str,
        content: SnapshotContent,
        on_done: Callable[[OffsetAndEpoch, int, BaseException | None], None],
    ) -> None:
        self._content = content
        self._io_pool = system.io_pool
        self._on_done = on_done
        now_ms = system.clock.wall_ms()
        self._task = asyncio.get_running_loop().create_task(self._run(lambda: self._open(system, directory, now_ms)))

    def _open(self, system: System, directory: str, now_ms: int) -> SnapshotWriter:
        content = self._content
        return SnapshotWriter(
            system.disk,
            directory,
            content.snapshot_id,
            last_contained_log_timestamp_ms=content.last_contained_log_timestamp_ms,
            now_ms=now_ms,
            kraft_version=content.kraft_version,
            voters=content.voters if content.kraft_version > 0 else None,
        )

    async def cancel(self) -> None:
        """Stop and wait for the end; a partial file is deleted."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, open_writer: Callable[[], SnapshotWriter]) -> None:
        error: BaseException | None = None
        size_bytes = 0
        try:
            size_bytes = await self._write(open_writer(), self._content.slices)
        except OSError as raised:
            error = raised
        except Exception as raised:  # a bug costs this snapshot only: without on_done no other would be taken
            logger.exception("Failed to write metadata snapshot %s", self._content.snapshot_id)
            error = raised
        self._on_done(self._content.snapshot_id, size_bytes, error)

    async def _write(self, writer: SnapshotWriter, slices: Iterable[list[bytes]]) -> int:
        """Return the size of the snapshot."""
        is_frozen = False
        try:
            for values in slices:
                writer.append(values)
                await asyncio.sleep(0)
            writer.finish()
            await self._in_pool(writer.sync)
            writer.freeze()
            is_frozen = True
        finally:
            if not is_frozen:
                writer.abort()
        return writer.size_bytes

    async def _in_pool(self, call: Callable[[], None]) -> None:
        """Run an fsync in the pool. A cancellation waits for its end, as the file must stay open until then."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_done(_: None, error: BaseException | None) -> None:
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(None)

        self._io_pool.submit(call, on_done)
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.gather(future, return_exceptions=True)
            raise
