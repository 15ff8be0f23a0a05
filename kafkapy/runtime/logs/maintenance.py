"""Periodic work on logs: due flushes, checkpoints, retention, deletion of files.

The intervals are Kafka's keys. Fsyncs run in the IO pool; loops over all logs yield to other tasks every few logs.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Final

from kafkapy.errors import ApiError, StorageError
from kafkapy.runtime.logs.checkpoint_writes import write_checkpoints
from kafkapy.runtime.pool import run_in_pool

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.seams import Clock, IoPool
    from kafkapy.storage.log.flush import Flush
    from kafkapy.storage.log.pending_files import FileDeletion
    from kafkapy.storage.manager.checkpoints import CheckpointSteps
    from kafkapy.storage.manager.log_manager import LogManager
    from kafkapy.storage.manager.pending_logs import Deletion, DirectorySync
    from kafkapy.storage.manager.space_reserve import SpaceReserve

FLUSH_CHECK_MS: Final = 1000
"""How often rolled segments are checked for a due flush; Kafka schedules a flush when it rolls a segment."""
DELETION_CHECK_MS: Final = 1000
RESERVE_CHECK_MS: Final = 1000
MAX_PERIOD_MS: Final = 24 * 3_600_000
"""An interval of Long.MAX_VALUE means never; loop timers are set to one day at most."""
LOGS_PER_SLICE: Final = 16
"""Logs processed before other tasks run: well under a millisecond."""

logger = logging.getLogger("kafkapy.storage")


class LogMaintenance:
    """Owns the periodic tasks between start() and stop()."""

    def __init__(
        self,
        log_manager: "LogManager",
        config: "BrokerConfig",
        *,
        clock: "Clock",
        io_pool: "IoPool",
        reserve: "SpaceReserve",
    ) -> None:
        self._reserve = reserve
        self._log_manager = log_manager
        self._config = config
        self._clock = clock
        self._io_pool = io_pool
        self._tasks: list[asyncio.Task[None]] = []
        self._at_work: set[asyncio.Task[None]] = set()
        """Calls that run in the pool. A stop waits for them: two must not write the same file."""

    def start(self) -> None:
        log, checkpoints = self._config.log, self._log_manager.checkpoints
        flush_ms = min(FLUSH_CHECK_MS, log.log_flush_scheduler_interval_ms)
        recovery_ms = log.log_flush_offset_checkpoint_interval_ms
        start_ms = log.log_flush_start_offset_checkpoint_interval_ms
        high_watermark_ms = self._config.replication.replica_high_watermark_checkpoint_interval_ms
        producers_ms = self._config.transaction.producer_id_expiration_check_interval_ms
        first_ms = log.log_initial_task_delay_ms
        for delay_ms, period_ms, step in (
            (flush_ms, flush_ms, self.flush_due),
            (first_ms, recovery_ms, lambda: self._write(checkpoints.recovery_points())),
            (first_ms, start_ms, lambda: self._write(checkpoints.log_start_offsets())),
            (high_watermark_ms, high_watermark_ms, lambda: self._write(checkpoints.high_watermarks())),
            (first_ms, log.log_retention_check_interval_ms, self.clean_up),
            (producers_ms, producers_ms, self.expire_producers),
            (DELETION_CHECK_MS, DELETION_CHECK_MS, self._delete_due_logs_and_files),
            (0, RESERVE_CHECK_MS, self._renew_reserve),
        ):
            self._tasks.append(asyncio.get_running_loop().create_task(self._every(delay_ms, period_ms, step)))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._at_work, return_exceptions=True)
        self._tasks.clear()

    async def flush_due(self) -> None:
        """Flush the logs that are due by flush.messages, flush.ms or a rolled segment."""
        for flush in self._log_manager.flush_due(self._clock.wall_ms()):
            await (asyncio.sleep(0) if flush is None else self._to_the_end(self._flush(flush)))

    async def clean_up(self) -> None:
        """Apply retention to every log."""
        for count, _ in enumerate(self._log_manager.cleanup_steps(self._clock.wall_ms()), 1):
            if count % LOGS_PER_SLICE == 0:
                await asyncio.sleep(0)

    async def expire_producers(self) -> None:
        """Remove the expired producers of every log."""
        for count, _ in enumerate(producer_expiry_steps(self._log_manager, self._clock.wall_ms()), 1):
            if count % LOGS_PER_SLICE == 0:
                await asyncio.sleep(0)

    async def _delete_due_logs_and_files(self) -> None:
        """Sync directories after renames, then delete the log directories and segment files whose delay is over."""
        for sync in self._log_manager.due_syncs():
            await self._to_the_end(self._sync_names(sync))
        for deletion in self._log_manager.due_log_deletions(self._clock.wall_ms()):
            await self._to_the_end(self._delete(deletion))
        for files in self._log_manager.due_file_deletions(self._clock.wall_ms()):
            await (asyncio.sleep(0) if files is None else self._to_the_end(self._delete(files)))

    async def _renew_reserve(self) -> None:
        try:
            await run_in_pool(self._io_pool, self._reserve.renew)
        except OSError as error:
            logger.warning("Could not write the file that reserves disk space for metadata: %s", error)

    async def _sync_names(self, sync: "DirectorySync") -> None:
        try:
            await run_in_pool(self._io_pool, sync.run)
        except OSError as error:
            sync.log_dir.handle_os_error(error, f"syncing the names in {sync.log_dir.path}")

    async def _delete(self, deletion: "Deletion | FileDeletion") -> None:
        try:
            await run_in_pool(self._io_pool, deletion.run)
        except OSError as error:
            deletion.log_dir.handle_os_error(error, f"deleting {deletion.path}")
            if not deletion.log_dir.is_offline:
                deletion.put_back(self._clock.wall_ms())
        else:
            logger.info("Deleted %s", deletion.describe())

    async def _flush(self, flush: "Flush") -> None:
        try:
            await run_in_pool(self._io_pool, flush.run)
        except (ApiError, StorageError) as error:
            logger.warning("%s", error.message)
        finally:
            flush.complete(self._clock.wall_ms())

    async def _write(self, steps: "CheckpointSteps") -> None:
        await self._to_the_end(write_checkpoints(steps, self._io_pool))

    async def _to_the_end(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine to its end, even if the caller is cancelled."""
        task = asyncio.get_running_loop().create_task(work)
        self._at_work.add(task)
        task.add_done_callback(self._at_work.discard)
        await asyncio.shield(task)

    async def _every(self, delay_ms: int, period_ms: int, step: Callable[[], Awaitable[None]]) -> None:
        """Run `step` periodically, first after delay_ms. Log errors; a failed directory is already offline."""
        while True:
            await asyncio.sleep(min(delay_ms, MAX_PERIOD_MS) / 1000)
            delay_ms = period_ms
            try:
                await step()
            except (ApiError, StorageError) as error:
                logger.warning("Periodic log maintenance failed, trying again at the next interval: %s", error)
            except Exception:
                logger.exception("Periodic log maintenance failed unexpectedly, trying again at the next interval")


def producer_expiry_steps(log_manager: "LogManager", now_ms: int) -> Iterator[None]:
    """Remove the expired producers of each log, and count the others again."""
    counts = log_manager.producer_counts
    counts.start_recount()
    for log in log_manager.all_logs():
        log.producer_state.remove_expired(now_ms)
        counts.recount(log.producer_state.producers)
        yield
    counts.finish_recount()
