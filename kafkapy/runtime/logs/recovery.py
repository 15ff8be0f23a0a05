"""Loads the logs when a broker starts, with helper processes for logs that need much recovery.

After an unclean stop, everything after the recovery point is read before the log is served. Small logs are recovered
here, large ones by num.recovery.threads.per.data.dir processes per directory, so that several processors are used and
the event loop stays responsive. Log lines are Kafka's.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kafkapy.runtime.turns import in_turns
from kafkapy.storage.manager import recovery_process

if TYPE_CHECKING:
    from kafkapy.seams import Clock, HelperProcess
    from kafkapy.storage.manager.loading import LogLoading, LogToLoad

MIN_HELPER_BYTES: Final = 64 << 20
"""A log with less to read is recovered in this process: that is faster than starting another one."""
LOGS_PER_SLICE: Final = 64
"""Logs looked at before other tasks run: a millisecond, if each has to be recovered."""
STEPS_PER_TURN: Final = 8
"""Steps of a turn, half a millisecond each."""
CONFIGURE_LOGGING: Final = "kafkapy.server.process.logs:configure"

logger = logging.getLogger("kafkapy.storage")


class LogRecovery:
    """Loads all logs at the start, small ones here and large ones in helper processes.

    threads_per_directory: num.recovery.threads.per.data.dir. on_loaded(count): called after each log.
    """

    def __init__(
        self,
        loading: "LogLoading",
        *,
        new_helper: "Callable[[asyncio.AbstractEventLoop], HelperProcess]",
        threads_per_directory: int,
        producer_id_expiration_ms: int,
        clock: "Clock",
        on_loaded: Callable[[int], None] = lambda count: None,
        min_helper_bytes: int = MIN_HELPER_BYTES,
    ) -> None:
        self._loading = loading
        self._new_helper = new_helper
        self._threads_per_directory = threads_per_directory
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._clock = clock
        self._on_loaded = on_loaded
        self._min_helper_bytes = min_helper_bytes

    async def load_all(self) -> None:
        """Load every log; a directory that fails goes offline."""
        items = await in_turns(self._loading.plan_steps(), self._clock, STEPS_PER_TURN)
        large = await self._large_ones(items)
        workers = [
            asyncio.get_running_loop().create_task(self._work(queue))
            for queue in large.values()
            for _ in range(min(self._threads_per_directory, len(queue)))
        ]
        is_large = {id(item) for queue in large.values() for item in queue}
        try:
            for item in items:
                if id(item) not in is_large:
                    self._load(item)
                    await asyncio.sleep(0)
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        self._loading.finish()

    async def _large_ones(self, items: "list[LogToLoad]") -> "dict[str, list[LogToLoad]]":
        """Return the logs worth a helper process, by directory, sorted by size; the largest is taken first."""
        sized = []
        for count, item in enumerate(items, 1):
            sized.append((self._unflushed_bytes(item), item))
            if count % LOGS_PER_SLICE == 0:
                await asyncio.sleep(0)
        large: dict[str, list[LogToLoad]] = {}
        for size_bytes, item in sorted(sized, key=lambda each: each[0]):
            if size_bytes >= self._min_helper_bytes:
                large.setdefault(item.directory.path, []).append(item)
        return large

    def _unflushed_bytes(self, item: "LogToLoad") -> int:
        try:
            return self._loading.unflushed_bytes(item)
        except OSError:
            return 0  # loading it will report the error

    def _load(self, item: "LogToLoad") -> None:
        self._loading.load(item)
        self._on_loaded(1)

    async def _work(self, queue: "list[LogToLoad]") -> None:
        """Recover and load the queued logs of one directory, one after another, in one helper process."""
        helper = self._new_helper(asyncio.get_running_loop())
        try:
            helper.submit(CONFIGURE_LOGGING, {"level": logging.getLogger().getEffectiveLevel()}, _ignore)
            while queue:
                item = queue.pop()
                started_ms = self._clock.monotonic_ms()
                failure = await self._recover(helper, item)
                item.recovery_ms = self._clock.monotonic_ms() - started_ms
                if failure is not None:
                    logger.warning(
                        "Recovering %s in the main process, because its helper process failed: %s", item.path, failure
                    )
                item.is_recovered = failure is None
                self._load(item)
        finally:
            helper.close()

    async def _recover(self, helper: "HelperProcess", item: "LogToLoad") -> str | None:
        """Recover a log in the helper process; return None, or why that failed."""
        future: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

        def on_done(result: Any, error: str | None) -> None:
            if not future.done():
                future.set_result(error if error is not None else result)

        call = recovery_process.arguments(
            item, now_ms=self._clock.wall_ms(), producer_id_expiration_ms=self._producer_id_expiration_ms
        )
        helper.submit(recovery_process.FUNCTION, call, on_done)
        return await future


def _ignore(result: Any, error: str | None) -> None:
    """The result of configuring the helper's log does not matter."""
