"""The log cleaner: compacts the dirtiest logs first, log.cleaner.threads passes at a time.

Each worker has a helper process that reads and writes segments; decisions, throttling and swapping are done here. The
workers share log.cleaner.dedupe.buffer.size, log.cleaner.io.buffer.size and log.cleaner.io.max.bytes.per.second. The
first free worker cleans a log, so there are no more processes than needed, and none after an idle minute. When those
keys change, running passes end and all workers are replaced, as Apache Kafka replaces its threads.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkapy.errors import ApiError, StorageError, described
from kafkapy.runtime.logs.checkpoint_writes import write_checkpoints
from kafkapy.runtime.logs.cleaner_worker import CleanerWorker, IoThrottle, Stop
from kafkapy.runtime.logs.maintenance import LOGS_PER_SLICE, MAX_PERIOD_MS
from kafkapy.storage.log.maintenance import delete_old_segments

if TYPE_CHECKING:
    from kafkapy.config.log_defaults import LogDefaults
    from kafkapy.seams import Clock, HelperProcess, IoPool
    from kafkapy.storage.cleaner.manager import CleanerManager, Cleaning
    from kafkapy.storage.cleaner.plan import LogToClean
    from kafkapy.storage.log.log import Log
    from kafkapy.storage.manager.log_manager import LogManager
    from kafkapy.types import TopicPartition

STARTING_OVER: Final = (
    "log_cleaner_backoff_ms",
    "log_cleaner_dedupe_buffer_size",
    "log_cleaner_io_buffer_load_factor",
    "log_cleaner_io_buffer_size",
    "log_cleaner_io_max_bytes_per_second",
    "log_cleaner_threads",
)
"""Keys whose change replaces the workers. Kafka's list also has message.max.bytes, which no worker here uses."""

LOOKED_AT_ONCE: Final = 5_000
"""Logs looked at for those to compact before other tasks run, if there are more: a millisecond. 100,000 at once, and
what followed in the same turn of the loop, took up to 47 ms."""
MIN_BACKOFF_MS: Final = 10
"""Lower bound of log.cleaner.backoff.ms: at 0 the loop would do nothing but look for dirty logs."""

logger = logging.getLogger("kafkapy.storage.cleaner.cleaning_pass")


class LogCleaner:
    """Owns the cleaning tasks and the helper processes between start() and stop()."""

    def __init__(
        self,
        manager: "CleanerManager",
        log_manager: "LogManager",
        *,
        new_helper: "Callable[[asyncio.AbstractEventLoop], HelperProcess]",
        clock: "Clock",
        io_pool: "IoPool",
    ) -> None:
        """new_helper is called when a worker first has something to clean."""
        self.manager = manager
        self._log_manager = log_manager
        self._new_helper = new_helper
        self._settings: LogDefaults
        self._clock = clock
        self._io_pool = io_pool
        self._task: asyncio.Task[None] | None = None
        self._workers: list[CleanerWorker] = []
        self._at_work: dict[TopicPartition, asyncio.Task[None]] = {}
        self._stop = Stop()
        self._wakeup = asyncio.Event()

    def start(self, settings: "LogDefaults") -> None:
        """Start cleaning with the log.cleaner.* keys, unless log.cleaner.enable is false."""
        self._settings = settings
        if not settings.log_cleaner_enable:
            return
        self.manager.last_check_ms = self._clock.wall_ms()
        self._start_workers()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def reconfigure(self, settings: "LogDefaults") -> None:
        """Apply other settings; if the workers depend on them, running passes end and start again."""
        before, self._settings = self._settings, settings
        if any(getattr(before, name) != getattr(settings, name) for name in STARTING_OVER):
            self._stop.set()
            self._wakeup.set()

    async def stop(self) -> None:
        """Stop at once; unfinished passes leave the log unchanged."""
        task, self._task = self._task, None
        if task is None:
            return
        tasks = [task, *self._at_work.values()]
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._close_workers()

    def _start_workers(self) -> None:
        settings = self._settings
        logger.info("Starting the log cleaner")
        self._stop = Stop()
        throttle = IoThrottle(settings.log_cleaner_io_max_bytes_per_second)
        self._workers = [
            CleanerWorker(
                worker_id,
                self.manager,
                new_helper=self._new_helper,
                throttle=throttle,
                stop=self._stop,
                clock=self._clock,
                io_pool=self._io_pool,
            )
            for worker_id in range(settings.log_cleaner_threads)
        ]

    def _close_workers(self) -> None:
        for worker in self._workers:
            worker.close()
        self._workers.clear()

    async def _start_over(self) -> None:
        """Wait for the running passes to end, which is soon, and create workers with the current settings."""
        logger.info("Shutting down the log cleaner.")
        await asyncio.gather(*self._at_work.values(), return_exceptions=True)
        self._close_workers()
        self.manager.forget_reports()
        self._start_workers()

    async def _run(self) -> None:
        while True:
            self._wakeup.clear()
            if self._stop.is_set:
                await self._start_over()
            has_begun = False
            try:
                has_begun = await self.begin_dirtiest()
            except Exception:
                logger.exception("The log cleaner failed unexpectedly, trying again")
            if not has_begun:
                await self._wait_for_wakeup()

    async def _wait_for_wakeup(self) -> None:
        """Return when a pass has ended, settings have changed, or the back-off is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._backoff_ms / 1000):
                await self._wakeup.wait()

    @property
    def _backoff_ms(self) -> int:
        return min(max(self._settings.log_cleaner_backoff_ms, MIN_BACKOFF_MS), MAX_PERIOD_MS)

    async def begin_dirtiest(self) -> bool:
        """Start to clean the dirtiest log if one is dirty enough and a worker is free; return whether a pass began."""
        now_ms = self._clock.monotonic_ms()
        free = [each for each in self._workers if not each.is_at_work and each.paused_until_ms <= now_ms]
        if not free:
            return False
        worker = free[0]
        assessed = await self._assess_all()
        await self._write_checkpoints()
        chosen = self.manager.choose(assessed, worker.worker_id)
        if chosen is None:
            return False
        log, _ = chosen
        worker.is_at_work = True
        task = asyncio.get_running_loop().create_task(self._clean(worker, log))
        self._at_work[log.topic_partition] = task
        task.add_done_callback(partial(self._on_pass_over, worker, log.topic_partition))
        return True

    def _on_pass_over(self, worker: CleanerWorker, partition: "TopicPartition", task: "asyncio.Task[None]") -> None:
        worker.is_at_work = False
        del self._at_work[partition]
        self._wakeup.set()
        if not task.cancelled() and task.exception() is not None:
            logger.error("Finishing the cleaning of %s failed", partition, exc_info=task.exception())

    async def _assess_all(self) -> "list[tuple[Log, LogToClean]]":
        """Apply retention to each compacted log that is not being cleaned, then assess how dirty it is."""
        self.manager.last_check_ms = self._clock.wall_ms()
        assessed = []
        logs = list(self._log_manager.logs.values())
        for start in range(0, len(logs), LOOKED_AT_ONCE):
            compacted = self.manager.compacted_logs(self._at_work, logs[start : start + LOOKED_AT_ONCE])
            for count, log in enumerate(compacted, 1):
                is_there = self._is_in_service(log)  # may be gone, as other tasks have run
                to_clean = self._assess(log) if is_there else None
                if to_clean is not None:
                    assessed.append((log, to_clean))
                if count % LOGS_PER_SLICE == 0:
                    await asyncio.sleep(0)
            if len(logs) > LOOKED_AT_ONCE:
                await asyncio.sleep(0)
        return assessed

    def _is_in_service(self, log: "Log") -> bool:
        return self._log_manager.get_log(log.topic_partition) is log

    def _assess(self, log: "Log") -> "LogToClean | None":
        now_ms = self._clock.wall_ms()
        try:
            delete_old_segments(log, now_ms)  # as Kafka's cleaner: between passes, not during one
            return self.manager.assess(log, now_ms)
        except (ApiError, StorageError, MemoryError):
            return None  # offline by now, or out of some resource
        except (OSError, ImportError) as error:  # without a descriptor, the module of plans cannot be imported
            logger.warning(
                "Could not determine whether %s needs cleaning, trying again: %s", log.topic_partition, error
            )
            return None
        except Exception as error:
            logger.exception(
                "Could not determine whether %s needs cleaning; not cleaning it until the next start",
                log.topic_partition,
            )
            self.manager.set_aside(log, described(error))
            return None

    async def _clean(self, worker: CleanerWorker, log: "Log") -> None:
        """Clean a log, unless it has changed since it was chosen; a worker whose pass fails pauses."""
        report = None
        try:
            cleaning = self._begin(log, worker.worker_id)
            if cleaning is not None and await self._checkpoint_recovery_point(log, cleaning.plan.end_offset):
                report = await worker.clean(cleaning)
        except (ApiError, StorageError, MemoryError) as error:
            logger.warning(
                "Could not clean %s, trying again later: %s", log.topic_partition, str(error) or type(error).__name__
            )
            self.manager.postpone(log)
        except Exception as error:
            logger.exception(
                "Cleaning %s failed unexpectedly; not cleaning it until the next start", log.topic_partition
            )
            self.manager.set_aside(log, described(error))
        if report is None:
            worker.paused_until_ms = self._clock.monotonic_ms() + self._backoff_ms
            return
        await self._write_checkpoints()
        logger.info("Log cleaner thread %d %s", worker.worker_id, report)
        if report.records_without_key:
            logger.warning(
                "Found %d records without a key in %s; they were dropped",
                report.records_without_key,
                log.topic_partition,
            )

    def _begin(self, log: "Log", worker_id: int) -> "Cleaning | None":
        now_ms = self._clock.wall_ms()
        may_be_cleaned = self._is_in_service(log) and bool(self.manager.compacted_logs(among=[log]))
        to_clean = self.manager.assess(log, now_ms) if may_be_cleaned else None
        if to_clean is None or not to_clean.is_due(log.config.min_cleanable_dirty_ratio):
            return None
        return self.manager.begin(log, to_clean, self._settings, now_ms, worker_id)

    async def _checkpoint_recovery_point(self, log: "Log", end_offset: int) -> bool:
        """Return whether a log's recovery point on disk is at or above the end of a pass. If not, write it first.

        So no cleaned segment is above the recovery point, and recovery treats records that are missing there as lost.
        """
        directory, partition = self._log_manager.directory_of(log), log.topic_partition
        if directory.durable_recovery_point(partition) < end_offset:
            await write_checkpoints(self._log_manager.checkpoints.recovery_points(), self._io_pool)
        return directory.durable_recovery_point(partition) >= end_offset

    async def _write_checkpoints(self) -> None:
        await write_checkpoints(self._log_manager.checkpoints.cleaner_offsets(), self._io_pool)
