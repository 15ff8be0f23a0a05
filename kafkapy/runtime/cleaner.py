"""The log cleaner: compacted logs one after another, the dirtiest first, a pass at a time in the helper process.

The helper reads and writes; here is decided, throttled and swapped in. A pass goes on in steps of some tenths of a
second, so that it ends soon when the broker stops, the log is truncated or its topic deleted. One pass at a time,
whatever log.cleaner.threads says above 0: a deviation from Apache Kafka, whose threads share the buffer that a single
pass has for itself here.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from kafkapy.errors import StorageError
from kafkapy.runtime.log_maintenance import LOGS_PER_SLICE, MAX_PERIOD_MS
from kafkapy.runtime.pool import run_in_pool
from kafkapy.storage.cleaner_plan import CleanedSegment
from kafkapy.storage.log_upkeep import delete_old_segments

if TYPE_CHECKING:
    from kafkapy.config.log_defaults import LogDefaults
    from kafkapy.seams import Clock, HelperProcess, IoPool
    from kafkapy.storage.cleaner_manager import CleanerManager, Cleaning
    from kafkapy.storage.log import Log
    from kafkapy.storage.log_manager import LogManager

STEPS: Final = "kafkapy.storage.cleaner_steps"
STEP_MS: Final = 250
STEP_BYTES: Final = 64 << 20
THROTTLE_WINDOW_S: Final = 0.3
"""A throttled pass moves what the rate allows in so long at once, as in Kafka."""
MAX_PAUSE_S: Final = 20.0
"""The helper process ends after a minute without a call, and the pass with it."""

logger = logging.getLogger("kafkapy.storage.cleaner")


class LogCleaner:
    """Owns the cleaning task and the helper process between start() and stop()."""

    def __init__(
        self,
        manager: "CleanerManager",
        log_manager: "LogManager",
        *,
        new_helper: "Callable[[asyncio.AbstractEventLoop], HelperProcess]",
        settings: "Callable[[], LogDefaults]",
        clock: "Clock",
        io_pool: "IoPool",
    ) -> None:
        """new_helper is called once there is something to clean; settings(): the log.cleaner.* keys as they are now."""
        self.manager = manager
        self._log_manager = log_manager
        self._new_helper = new_helper
        self._helper: HelperProcess | None = None
        self._settings = settings
        self._clock = clock
        self._io_pool = io_pool
        self._pass_count = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Go to work, unless log.cleaner.enable is false."""
        if not self._settings().log_cleaner_enable:
            return
        self._log_manager.checkpoints.read_cleaner_offsets()
        self.manager.looked_at_ms = self._clock.wall_ms()
        logger.info("Starting the log cleaner")
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop at once; a pass that was under way leaves the log as it is."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.close()

    async def _run(self) -> None:
        while True:
            has_cleaned = False
            try:
                has_cleaned = self._settings().log_cleaner_threads > 0 and await self.clean_dirtiest()
            except StorageError as error:
                logger.warning("A pass of the log cleaner was not finished: %s", error)
            except Exception:
                logger.exception("The log cleaner goes on after an unexpected error")
            if not has_cleaned:
                await asyncio.sleep(min(self._settings().log_cleaner_backoff_ms, MAX_PERIOD_MS) / 1000)

    async def clean_dirtiest(self) -> bool:
        """Clean the dirtiest log, if one is dirty enough; return whether a pass was done to its end."""
        chosen = await self._choose()
        await self._write_checkpoints()
        if chosen is None:
            return False
        log, to_clean = chosen
        cleaning = self.manager.begin(log, to_clean, self._settings(), self._clock.wall_ms())
        started_ms = self._clock.monotonic_ms()
        facts = await self._pass(cleaning)
        if facts is None:
            return False
        report = self.manager.finish(cleaning, facts, self._clock.monotonic_ms() - started_ms)
        await self._write_checkpoints()
        logger.info("Log cleaner thread 0 %s", report)
        if report.records_without_key:
            logger.warning(
                "Found %d records without a key in %s; they were dropped",
                report.records_without_key,
                log.topic_partition,
            )
        return True

    async def _choose(self) -> "tuple[Log, Any] | None":
        self.manager.looked_at_ms = self._clock.wall_ms()
        assessed = []
        for count, log in enumerate(self.manager.compacted_logs(), 1):
            now_ms = self._clock.wall_ms()
            with contextlib.suppress(StorageError):  # offline by now
                delete_old_segments(log, now_ms)  # between two passes, as Kafka's cleaner does; not in the midst of one
                to_clean = self.manager.assess(log, now_ms)
                if to_clean is not None:
                    assessed.append((log, to_clean))
            if count % LOGS_PER_SLICE == 0:
                await asyncio.sleep(0)
        return self.manager.choose(assessed)

    async def _write_checkpoints(self) -> None:
        for write in self._log_manager.checkpoints.cleaner_offsets():
            try:
                await run_in_pool(self._io_pool, write.run)
            except StorageError as error:
                write.directory.state.go_offline(error.message)

    async def _pass(self, cleaning: "Cleaning") -> dict[str, Any] | None:
        """Take a pass through; return its facts, None where it did not come to its end."""
        self._pass_count = pass_id = self._pass_count + 1
        is_over = False
        try:
            await self._call("begin", pass_id=pass_id, plan=asdict(cleaning.plan))
            facts = await self._steps(cleaning, pass_id)
            is_over = True
            return facts
        except HelperError as error:
            is_over = True
            self.manager.helper_lost(cleaning, str(error))
            return None
        finally:
            if not is_over:  # the broker stops, or the directory failed
                self._submit("abandon", {"pass_id": pass_id}, lambda result, error: None)
                self.manager.drop_leftovers(cleaning)

    async def _steps(self, cleaning: "Cleaning", pass_id: int) -> dict[str, Any] | None:
        while self.manager.is_current(cleaning):
            rate = self._settings().log_cleaner_io_max_bytes_per_second
            max_bytes = int(max(min(STEP_BYTES, rate * THROTTLE_WINDOW_S), 1))
            started_ms = self._clock.monotonic_ms()
            answer = await self._call("advance", pass_id=pass_id, max_bytes=max_bytes, max_ms=STEP_MS)
            if "is_lost" in answer:
                raise HelperError("the helper process was started anew")
            if "failure" in answer:
                failure = answer["failure"]
                self.manager.fail(cleaning, failure["message"], failure["errno"])
                return None
            if answer["cleaned"] is not None and not await self._swap_in(cleaning, answer["cleaned"]):
                break
            if answer["is_done"]:
                facts: dict[str, Any] = answer["facts"]
                return facts
            await self._throttle(answer["io_bytes"], rate, started_ms, pass_id)
        await self._call("abandon", pass_id=pass_id)
        self.manager.drop_leftovers(cleaning)
        return None

    async def _swap_in(self, cleaning: "Cleaning", cleaned: dict[str, Any]) -> bool:
        """Swap a group in and make that durable; return False where the log has changed under the pass."""
        log = cleaning.log
        if not self.manager.swap_in(cleaning, CleanedSegment(**cleaned), self._clock.wall_ms()):
            return False
        try:
            await run_in_pool(self._io_pool, log.local_log.sync_names)
        except OSError as error:
            if self.manager.is_current(cleaning):
                raise log.log_dir.failure(error, f"cleaning {log.topic_partition}") from error
        return True

    async def _throttle(self, io_bytes: int, rate: float, started_ms: int, pass_id: int) -> None:
        """Wait until the step has lasted as long as its bytes may at log.cleaner.io.max.bytes.per.second."""
        pause_s = io_bytes / rate - (self._clock.monotonic_ms() - started_ms) / 1000 if math.isfinite(rate) else 0.0
        while pause_s > 0:
            await asyncio.sleep(min(pause_s, MAX_PAUSE_S))
            pause_s -= MAX_PAUSE_S
            if pause_s > 0:
                await self._call("advance", pass_id=pass_id, max_bytes=0, max_ms=0)

    async def _call(self, function: str, **arguments: Any) -> Any:
        """Call the helper process. Raises HelperError where it died, or cannot do it."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def on_done(result: Any, error: str | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(HelperError(error))
            else:
                future.set_result(result)

        self._submit(function, arguments, on_done)
        return await future

    def _submit(self, function: str, arguments: dict[str, Any], on_done: "Callable[[Any, str | None], None]") -> None:
        if self._helper is None:
            self._helper = self._new_helper(asyncio.get_running_loop())
        self._helper.submit(f"{STEPS}:{function}", arguments, on_done)


class HelperError(Exception):
    """The helper process died in a call, or the call raised what a pass should not raise."""
