"""When to take a snapshot of the metadata log, and writing it, one slice per turn of the loop."""

import asyncio
from collections.abc import Callable, Iterable

from kafkapy.raft.voters import VoterSet
from kafkapy.seams import Disk, IoPool
from kafkapy.storage.metadata.snapshot import SnapshotWriter
from kafkapy.types import OffsetAndEpoch


class SnapshotSchedule:
    """Due after max_bytes of committed records, or max_interval_ms after the last one if anything was committed since.

    metadata.log.max.record.bytes.between.snapshots, metadata.log.max.snapshot.interval.ms (0: never by time).
    `committed_bytes` counts up from the start of the process.
    """

    def __init__(self, *, max_bytes: int, max_interval_ms: int, started_ms: int) -> None:
        self._max_bytes = max_bytes
        self._max_interval_ms = max_interval_ms
        self._last_ms = started_ms
        self._last_bytes = 0

    def is_due(self, committed_bytes: int, now_ms: int) -> bool:
        new_bytes = committed_bytes - self._last_bytes
        if new_bytes >= self._max_bytes:
            return True
        return new_bytes > 0 and 0 < self._max_interval_ms <= now_ms - self._last_ms

    def reset(self, committed_bytes: int, now_ms: int) -> None:
        self._last_bytes = committed_bytes
        self._last_ms = now_ms


class SnapshotJob:
    """A snapshot being written. Calls on_done(snapshot id, error) when it is durable under its name, or has failed."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        io_pool: IoPool,
        *,
        snapshot_id: OffsetAndEpoch,
        last_contained_log_timestamp_ms: int,
        now_ms: int,
        kraft_version: int,
        voters: VoterSet,
        slices: Iterable[list[bytes]],
        on_done: Callable[[OffsetAndEpoch, BaseException | None], None],
    ) -> None:
        self.snapshot_id = snapshot_id
        self._io_pool = io_pool
        self._on_done = on_done
        self._task = asyncio.get_running_loop().create_task(
            self._run(
                lambda: SnapshotWriter(
                    disk,
                    directory,
                    snapshot_id,
                    last_contained_log_timestamp_ms=last_contained_log_timestamp_ms,
                    now_ms=now_ms,
                    kraft_version=kraft_version,
                    voters=voters if kraft_version > 0 else None,
                ),
                slices,
            )
        )

    async def cancel(self) -> None:
        """Stop and wait for the end; a partial file is deleted."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, open_writer: Callable[[], SnapshotWriter], slices: Iterable[list[bytes]]) -> None:
        error: BaseException | None = None
        try:
            await self._write(open_writer(), slices)
        except OSError as raised:
            error = raised
        self._on_done(self.snapshot_id, error)

    async def _write(self, writer: SnapshotWriter, slices: Iterable[list[bytes]]) -> None:
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
