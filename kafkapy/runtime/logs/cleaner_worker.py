"""A worker of the log cleaner: runs one cleaning pass at a time, in steps, in its helper process.

A step takes some tenths of a second, so that a pass ends soon after the broker stops, the log is truncated, its topic
is deleted, or the cleaner restarts with other settings.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from kafkapy.runtime.pool import run_in_pool
from kafkapy.seams import HELPER_NOT_STARTED

if TYPE_CHECKING:
    from kafkapy.seams import Clock, HelperProcess, IoPool
    from kafkapy.storage.cleaner.manager import CleanerManager, Cleaning, CleaningReport

STEPS: Final = "kafkapy.storage.cleaner.steps"
STEP_MS: Final = 250
STEP_BYTES: Final = 64 << 20
THROTTLE_WINDOW_S: Final = 0.3
"""A throttled step moves at most what the rate allows in this time, as in Kafka."""
MAX_PAUSE_MS: Final = 20_000.0
"""The longest pause: after a minute without a call the helper process ends, and the pass with it."""

logger = logging.getLogger("kafkapy.storage.cleaner.cleaning_pass")


class IoThrottle:
    """log.cleaner.io.max.bytes.per.second, shared by all passes as one sequence of transfers."""

    def __init__(self, bytes_per_second: float) -> None:
        """As in Kafka, a rate of 0 blocks everything after the first bytes, and a negative one means unlimited."""
        self._rate = bytes_per_second if bytes_per_second >= 0 else math.inf
        self._free_at_ms = 0.0

    @property
    def step_bytes(self) -> int:
        """The number of bytes to move before the next pause is computed."""
        return int(max(min(STEP_BYTES, self._rate * THROTTLE_WINDOW_S), 1))

    def end_ms(self, io_bytes: int, started_ms: int) -> float:
        """Return until when to pause (monotonic ms) after moving `io_bytes` since `started_ms`."""
        duration_ms = 1000 * io_bytes / self._rate if self._rate else math.inf
        self._free_at_ms = max(self._free_at_ms, started_ms) + duration_ms
        return self._free_at_ms


class Stop:
    """Signals passes to end after their current step."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def set(self) -> None:
        self._event.set()

    async def wait(self, duration_ms: float) -> None:
        """Return when it is set, or after duration_ms."""
        try:
            async with asyncio.timeout(duration_ms / 1000):
                await self._event.wait()
        except TimeoutError:
            return


class CleanerWorker:
    """Runs cleaning passes, one after another, in its helper process.

    `paused_until_ms`: after a failed pass, the worker begins no other one until this time.
    """

    def __init__(
        self,
        worker_id: int,
        manager: "CleanerManager",
        *,
        new_helper: "Callable[[asyncio.AbstractEventLoop], HelperProcess]",
        throttle: IoThrottle,
        stop: Stop,
        clock: "Clock",
        io_pool: "IoPool",
    ) -> None:
        self.worker_id = worker_id
        self.is_at_work = False
        self.paused_until_ms = 0
        self._manager = manager
        self._new_helper = new_helper
        self._helper: HelperProcess | None = None
        self._throttle = throttle
        self._stop = stop
        self._clock = clock
        self._io_pool = io_pool
        self._pass_count = 0

    def close(self) -> None:
        """End the helper process."""
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.close()

    async def clean(self, cleaning: "Cleaning") -> "CleaningReport | None":
        """Run a pass; return None if it did not complete. Raises ApiError, StorageError."""
        started_ms = self._clock.monotonic_ms()
        self._pass_count = pass_id = self._pass_count + 1
        is_over = False
        try:
            await self._call("begin", pass_id=pass_id, plan=asdict(cleaning.plan))
            facts = await self._steps(cleaning, pass_id)
            is_over = True
        except HelperError as error:
            is_over = True
            self._helper_failed(cleaning, str(error))
            return None
        finally:
            if not is_over:  # the broker stops, or the directory failed
                self._submit("abandon", {"pass_id": pass_id}, lambda result, error: None)
                self._manager.drop_leftovers(cleaning)
        if facts is None:
            return None
        return self._manager.finish(cleaning, facts, self._clock.monotonic_ms() - started_ms)

    def _helper_failed(self, cleaning: "Cleaning", message: str) -> None:
        if message.startswith(HELPER_NOT_STARTED):
            logger.warning("The cleaning of %s waits: %s", cleaning.log.topic_partition, message)
            self._manager.drop_leftovers(cleaning)
            self._manager.postpone(cleaning.log)
        else:
            self._manager.helper_lost(cleaning, message)

    async def _steps(self, cleaning: "Cleaning", pass_id: int) -> dict[str, Any] | None:
        while self._is_to_continue(cleaning):
            started_ms = self._clock.monotonic_ms()
            response = await self._call("advance", pass_id=pass_id, max_bytes=self._throttle.step_bytes, max_ms=STEP_MS)
            if "is_lost" in response:
                raise HelperError("the helper process was started again")
            self._manager.record_io(response.get("io_bytes", 0))
            if "failure" in response:
                failure = response["failure"]
                self._manager.fail(cleaning, failure["message"], failure["errno"])
                return None
            if response["cleaned"] is not None and not await self._swap_in(cleaning, response["cleaned"]):
                break
            if response["is_done"]:
                if not self._manager.is_current(cleaning):
                    break
                facts: dict[str, Any] = response["facts"]
                return facts
            await self._pause(cleaning, self._throttle.end_ms(response["io_bytes"], started_ms), pass_id)
        await self._call("abandon", pass_id=pass_id)
        self._manager.drop_leftovers(cleaning)
        return None

    def _is_to_continue(self, cleaning: "Cleaning") -> bool:
        return not self._stop.is_set and self._manager.is_current(cleaning)

    async def _swap_in(self, cleaning: "Cleaning", cleaned: dict[str, Any]) -> bool:
        """Swap a group of cleaned segments in and sync the directory; return False if the log has changed meanwhile."""
        from kafkapy.storage.cleaner.plan import CleanedSegment

        log = cleaning.log
        if not self._manager.swap_in(cleaning, CleanedSegment(**cleaned), self._clock.wall_ms()):
            return False
        try:
            await run_in_pool(self._io_pool, log.local_log.sync_names)
        except OSError as error:
            if self._manager.is_current(cleaning):
                raise log.log_dir.handle_os_error(error, f"cleaning {log.topic_partition}") from error
        return True

    async def _pause(self, cleaning: "Cleaning", until_ms: float, pass_id: int) -> None:
        """Wait until until_ms; call the helper process in between to keep it alive."""
        while (pause_ms := until_ms - self._clock.monotonic_ms()) > 0 and self._is_to_continue(cleaning):
            await self._stop.wait(min(pause_ms, MAX_PAUSE_MS))
            if pause_ms > MAX_PAUSE_MS:
                await self._call("advance", pass_id=pass_id, max_bytes=0, max_ms=0)

    async def _call(self, function: str, **arguments: Any) -> Any:
        """Call the helper process. Raises HelperError if it died or the call failed."""
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
    """The helper process died during a call, or the call raised an unexpected error."""
