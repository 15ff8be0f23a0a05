"""Closes all logs at a clean stop: fsyncs them, several at a time, then writes the clean-shutdown file.

After writes to thousands of partitions most of the stop is fsyncs, some three per log; a log that has not changed since
the start needs none. As in Apache Kafka, num.recovery.threads.per.data.dir workers per directory make them.
storage/manager/closing.py follows: it closes the logs that they left and the files of the others, then writes the
checkpoints and last the clean-shutdown file. Others have the loop in between: the listener of metrics and health, and
the other nodes of a cluster in one process.
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkapy.errors import ApiError, StorageError
from kafkapy.runtime.pool import run_in_pool
from kafkapy.storage.log.flush import prepare_closing_flush
from kafkapy.storage.manager.closing import closing_steps

if TYPE_CHECKING:
    from kafkapy.seams import Clock, IoPool
    from kafkapy.storage.log.log import Log
    from kafkapy.storage.manager.log_manager import LogManager

LOGS_PER_SLICE: Final = 64
"""Logs prepared before other tasks run: one or two milliseconds."""

logger = logging.getLogger("kafkapy.storage")


async def close_logs(
    manager: "LogManager", *, io_pool: "IoPool", clock: "Clock", threads_per_directory: int, broker_epoch: int
) -> None:
    """Close the logs cleanly. A directory that fails goes offline and gets no clean-shutdown file."""
    queues = manager.logs_to_close()
    await asyncio.gather(*(_flush_all(queue, io_pool, clock) for queue in queues for _ in range(threads_per_directory)))
    for count, _ in enumerate(manager.pending_log_deletions.close_steps(), 1):
        if count % LOGS_PER_SLICE == 0:
            await asyncio.sleep(0)
    for step in closing_steps(manager, broker_epoch):
        if step is None:
            await asyncio.sleep(0)
        else:
            await run_in_pool(io_pool, step.run)


async def _flush_all(queue: Iterator["Log"], io_pool: "IoPool", clock: "Clock") -> None:
    for count, log in enumerate(queue):
        if count % LOGS_PER_SLICE == 0:
            await asyncio.sleep(0)
        if log.is_offline:
            continue
        try:
            flush = prepare_closing_flush(log)
            try:
                if flush.has_work:
                    await run_in_pool(io_pool, flush.run)
                else:
                    flush.run()
            finally:
                flush.complete(clock.wall_ms())
            if flush.is_done:
                log.on_ready_to_close(flush.end_offset)
        except (ApiError, StorageError):
            continue  # already logged, or tried again by closing_steps
        except Exception:  # tried again by closing_steps
            logger.exception("Could not close the log of %s; the next start recovers it", log.topic_partition)
