"""The logs' part of a clean stop: how many flushes run at a time; the clean-shutdown file never comes too early."""

import errno

import pytest

from kafkapy.config.log import LogConfig
from kafkapy.runtime.log_closing import close_logs
from kafkapy.storage import checkpoint
from kafkapy.storage.manager.log_manager import LogManager
from kafkapy.types import TopicPartition
from tests.simulator.crash_enumeration import Recorder, crashes
from tests.simulator.disk import SimDisk
from tests.simulator.io_pool import SimIoPool
from tests.simulator.loop import SimClock, SimLoop, run
from tests.support.chance import SeededRandom
from tests.support.logs import SMALL, append, load_logs

DIRECTORIES = ["/first", "/second"]
CONFIG = LogConfig(**SMALL)
LOG_COUNT = 12
BATCHES = 3


def manager_on(disk: SimDisk) -> LogManager:
    manager = LogManager(disk, DIRECTORIES, CONFIG, random=SeededRandom(1))
    manager.directories.lock()
    load_logs(manager)
    return manager


def written(disk: SimDisk) -> LogManager:
    """Return a manager of logs, evenly in both directories, with batches that are not durable."""
    for path in DIRECTORIES:
        disk.make_directory(path)
    manager = manager_on(disk)
    for number in range(LOG_COUNT):
        manager.get_or_create_log(TopicPartition("orders", number), b"\1" * 16, CONFIG, 0)
    for log in manager.logs.values():
        for sequence in range(BATCHES):
            append(log, value_bytes=10, producer_id=7, producer_epoch=0, base_sequence=sequence)
    return manager


def stop(manager: LogManager, *, threads_per_directory: int = 2) -> int:
    """Stop the logs; return after how many milliseconds, where a call of the pool takes ten."""

    async def main(loop: SimLoop) -> int:
        pool = SimIoPool(loop, call_ms=10)
        clock = SimClock(loop)
        started_ms = clock.monotonic_ms()
        await close_logs(
            manager, io_pool=pool, clock=clock, threads_per_directory=threads_per_directory, broker_epoch=5
        )
        return clock.monotonic_ms() - started_ms

    return run(main)


@pytest.mark.parametrize(("threads", "wanted_ms"), [(1, 60), (2, 30), (3, 20), (100, 20)])
def test_so_many_flushes_run_at_a_time_in_each_directory(threads: int, wanted_ms: int) -> None:
    """And no more than the pool, which the directories share, has workers: eight."""
    assert stop(written(SimDisk()), threads_per_directory=threads) == wanted_ms


def test_the_clean_shutdown_file_is_there_only_once_all_is_durable() -> None:
    disk = SimDisk()
    manager = written(disk)
    recorder = Recorder(disk, lambda: None)
    stop(manager)
    clean = 0
    for crash in crashes(recorder.finish()):
        taken = [f"{path}/" for path in DIRECTORIES if crash.disk.exists(f"{path}/{checkpoint.CLEAN_SHUTDOWN_FILE}")]
        found = manager_on(crash.disk).logs
        for partition, log in manager.logs.items():
            if log.directory.startswith(tuple(taken)):
                assert found[partition].log_end_offset == found[partition].recovery_point == BATCHES, str(crash)
                assert found[partition].producer_state.producers[7].last_sequence == BATCHES - 1
                clean += 1
    assert clean > LOG_COUNT


@pytest.mark.parametrize("operation", ["sync", "truncate"])
def test_a_directory_that_fails_keeps_the_other_from_nothing(operation: str) -> None:
    disk = SimDisk()
    manager = written(disk)
    failing = next(iter(manager.logs.values()))
    disk.fail(operation, errno.EIO, path=f"{failing.directory}/0000")
    stop(manager)
    clean = [path for path in DIRECTORIES if disk.exists(f"{path}/{checkpoint.CLEAN_SHUTDOWN_FILE}")]
    assert clean == [path for path in DIRECTORIES if path != failing.log_dir.path]
    assert not disk.locked


def test_a_disk_that_is_full_for_a_moment_still_stops_cleanly() -> None:
    disk = SimDisk()
    manager = written(disk)
    disk.fail("write", errno.ENOSPC, path="leader-epoch-checkpoint")
    stop(manager)
    assert all(disk.exists(f"{path}/{checkpoint.CLEAN_SHUTDOWN_FILE}") for path in DIRECTORIES)


def test_each_segment_file_is_synced_once() -> None:
    disk = SimDisk()
    manager = written(disk)
    synced: list[str] = []
    disk.hook = lambda operation, path: synced.append(path) if operation == "sync" else None
    stop(manager)
    files = [path for path in synced if path.endswith((".log", "index"))]
    assert len(files) == len(set(files)) == 3 * LOG_COUNT
