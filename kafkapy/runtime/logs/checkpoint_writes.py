"""Write offset checkpoints in the IO pool: collected in steps, between which other tasks run."""

import asyncio
import logging
from typing import TYPE_CHECKING

from kafkapy.errors import ApiError, StorageError
from kafkapy.runtime.pool import run_in_pool

if TYPE_CHECKING:
    from kafkapy.seams import IoPool
    from kafkapy.storage.manager.checkpoints import CheckpointSteps

logger = logging.getLogger("kafkapy.storage")


async def write_checkpoints(steps: "CheckpointSteps", io_pool: "IoPool") -> None:
    """Write each checkpoint. A full disk is logged; any other failure takes the directory offline.

    After a full disk the next write makes up for this one. Until then a restart does more than it needs to.
    """
    for writes in steps:
        if not writes:
            await asyncio.sleep(0)
        for write in writes:
            try:
                await run_in_pool(io_pool, write.run)
            except ApiError as error:
                logger.warning("%s", error.message)
            except StorageError as error:
                write.directory.state.go_offline(error.message)
