"""A log is flushed by one worker at a time, whoever asks for it: the producers that wait, or the periodic work."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from kafkapy.config.log import LogConfig
from kafkapy.errors import ApiError
from kafkapy.runtime.logs.flusher import LogFlusher
from kafkapy.runtime.pool import run_in_pool
from kafkapy.storage.log.log import Log
from kafkapy.storage.manager.log_manager import LogManager
from kafkapy.types import TopicPartition
from tests.simulator.disk import SimDisk
from tests.simulator.io_pool import SimIoPool
from tests.simulator.loop import START_WALL_MS, SimClock, SimLoop, run
from tests.support.chance import SeededRandom
from tests.support.logs import append, delete_due_logs, load_logs

PARTITION = TopicPartition("orders", 0)
CONFIG = LogConfig(flush_messages=1, segment_index_bytes=4096, file_delete_delay_ms=0)
FSYNC_MS = 3000


class World:
    """One log on a disk whose fsyncs take FSYNC_MS; `synced_ms`: when those of the log's file began."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.disk = SimDisk()
        self.manager = LogManager(self.disk, ("/d",), CONFIG, random=SeededRandom(1))
        self.manager.directories.lock()
        load_logs(self.manager, START_WALL_MS)
        self.log: Log = self.manager.get_or_create_log(PARTITION, b"\1" * 16, CONFIG, START_WALL_MS)
        self.io_pool = SimIoPool(loop)
        self.flusher = LogFlusher(self.io_pool, SimClock(loop))
        self.synced_ms: list[int] = []
        self.disk.hook = self._stall

    def _stall(self, operation: str, path: str) -> None:
        if operation == "sync" and path.endswith("0.log"):
            self.synced_ms.append(self.loop.now_ms())
            self.loop.block(FSYNC_MS)

    async def flush_due(self) -> int:
        """Do as LogMaintenance; return how many flushes were due."""
        count = 0
        for flush in self.manager.flush_due(START_WALL_MS + self.loop.now_ms()):
            count += 1
            await run_in_pool(self.io_pool, flush.run)
            flush.complete(START_WALL_MS + self.loop.now_ms())
        return count


def in_world(test: Callable[[World], Coroutine[None, None, None]]) -> Callable[[], None]:
    def call() -> None:
        run(lambda loop: test(World(loop)))

    call.__name__ = test.__name__
    return call


@in_world
async def test_periodic_work_leaves_a_log_alone_that_is_being_flushed(world: World) -> None:
    append(world.log)
    waiting = asyncio.create_task(world.flusher.flush(world.log))
    await asyncio.sleep(1)
    world.log.maybe_increment_log_start_offset(1)  # the leader epochs have to be written again
    assert world.log.recovery_point < world.log.log_end_offset
    assert await world.flush_due() == 0
    await waiting
    assert world.log.recovery_point == world.log.log_end_offset == 1
    append(world.log)
    assert await world.flush_due() == 1
    assert world.synced_ms == [0, FSYNC_MS]
    assert world.disk.read_file("/d/orders-0/leader-epoch-checkpoint") == b"0\n1\n0 1\n"


@in_world
async def test_who_waits_for_a_flush_comes_behind_that_of_the_periodic_work(world: World) -> None:
    append(world.log)
    periodic = asyncio.create_task(world.flush_due())
    await asyncio.sleep(1)
    append(world.log)
    early = asyncio.create_task(world.flusher.flush(world.log))
    await asyncio.sleep(1)
    append(world.log)
    await world.flusher.flush(world.log)
    assert await periodic == 1
    assert early.done()
    assert world.synced_ms == [0, FSYNC_MS]
    assert world.log.recovery_point == 3


@in_world
async def test_requests_waiting_for_a_deleted_log_fail_and_its_files_wait_for_the_worker(world: World) -> None:
    append(world.log)
    first = asyncio.create_task(world.flusher.flush(world.log))
    await asyncio.sleep(1)
    append(world.log)
    second = asyncio.create_task(world.flusher.flush(world.log))
    await asyncio.sleep(1)
    world.manager.delete_log(PARTITION, START_WALL_MS)
    assert delete_due_logs(world.manager, START_WALL_MS) == 0
    await first
    with pytest.raises(ApiError, match=r"orders-0 is no longer in /d"):
        await second
    assert delete_due_logs(world.manager, START_WALL_MS) == 1
    with pytest.raises(ApiError, match=r"orders-0 is no longer in /d"):
        await world.flusher.flush(world.log)
    assert not world.manager.directories.offline_paths
    assert len(world.synced_ms) == 1
