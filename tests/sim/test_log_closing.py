"""The logs' part of a clean stop: how many flushes run at a time; the clean-shutdown file never comes too early."""

import errno
from itertools import pairwise

import pytest

from kafkapy.config.log import LogConfig
from kafkapy.runtime.logs.closing import close_logs
from kafkapy.storage import checkpoint
from kafkapy.storage.manager.checkpoints import LogCheckpoints
from kafkapy.storage.manager.closing import LOGS_PER_STEP, closing_steps
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
CALL_MS = 10
AFTERWARDS_MS = len(DIRECTORIES) * 5 * CALL_MS
"""Three checkpoints, the names and the clean-shutdown file of each directory, one after the other."""


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
        pool = SimIoPool(loop, call_ms=CALL_MS)
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
    assert stop(written(SimDisk()), threads_per_directory=threads) == wanted_ms + AFTERWARDS_MS


def test_the_clean_shutdown_file_is_there_only_once_all_is_durable() -> None:
    disk = SimDisk()
    check_all_crashes_of_a_stop(disk, written(disk))


def test_logs_that_did_not_change_since_a_clean_start_outlive_a_crash_during_the_next_stop() -> None:
    disk = SimDisk()
    stop(written(disk))
    manager = manager_on(disk)
    append_to_new_logs(manager)
    check_all_crashes_of_a_stop(disk, manager)


def append_to_new_logs(manager: LogManager) -> None:
    """Create logs beside those there are: one stays empty in each directory, one gets records."""
    for number in range(LOG_COUNT, LOG_COUNT + 4):
        manager.get_or_create_log(TopicPartition("orders", number), b"\1" * 16, CONFIG, 0)
    for number in range(LOG_COUNT, LOG_COUNT + 2):
        for sequence in range(BATCHES):
            log = manager.logs[TopicPartition("orders", number)]
            append(log, value_bytes=10, producer_id=7, producer_epoch=0, base_sequence=sequence)


def check_all_crashes_of_a_stop(disk: SimDisk, manager: LogManager) -> None:
    """Stop the logs; after a crash at any point, a directory with a clean-shutdown file has everything."""
    recorder = Recorder(disk, lambda: None)
    stop(manager)
    clean = 0
    for crash in crashes(recorder.finish()):
        taken = [f"{path}/" for path in DIRECTORIES if crash.disk.exists(f"{path}/{checkpoint.CLEAN_SHUTDOWN_FILE}")]
        found = manager_on(crash.disk).logs
        for partition, log in manager.logs.items():
            if log.directory.startswith(tuple(taken)):
                here = found[partition]
                assert here.log_end_offset == here.recovery_point == log.log_end_offset, str(crash)
                assert here.topic_id == log.topic_id, str(crash)
                if log.log_end_offset:
                    assert here.producer_state.producers[7].last_sequence == BATCHES - 1
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
    """The offset indexes have no entry, and did not change."""
    disk = SimDisk()
    files = [path for path in synced_by_a_stop(disk, written(disk)) if path.endswith((".log", "index"))]
    assert len(files) == len(set(files)) == 2 * LOG_COUNT


def test_a_log_that_did_not_change_since_a_clean_start_is_not_synced() -> None:
    disk = SimDisk()
    stop(written(disk))
    manager = manager_on(disk)
    append(manager.logs[TopicPartition("orders", 0)], value_bytes=10)
    synced = [path for path in synced_by_a_stop(disk, manager) if "/orders-" in path]
    changed = manager.logs[TopicPartition("orders", 0)].directory
    assert {path for path in synced if not path.startswith(f"{changed}/")} <= {changed}
    assert f"{changed}/{0:020d}.log" in synced


def test_a_new_log_without_records_costs_a_sync_of_its_topic_id_and_one_of_its_names() -> None:
    disk = SimDisk()
    stop(written(disk))
    manager = manager_on(disk)
    log = manager.get_or_create_log(TopicPartition("orders", LOG_COUNT), b"\1" * 16, CONFIG, 0)
    synced = [path for path in synced_by_a_stop(disk, manager) if "/orders-" in path]
    assert synced == [f"{log.directory}/{checkpoint.PARTITION_METADATA_FILE}", log.directory]


def synced_by_a_stop(disk: SimDisk, manager: LogManager) -> list[str]:
    synced: list[str] = []
    disk.hook = lambda operation, path: synced.append(path) if operation.startswith("sync") else None
    stop(manager)
    return synced


def test_a_step_closes_few_logs_however_many_there_are() -> None:
    disk = SimDisk()
    disk.make_directory(DIRECTORIES[0])
    manager = LogManager(disk, DIRECTORIES[:1], CONFIG, random=SeededRandom(1))
    manager.directories.lock()
    load_logs(manager)
    for number in range(3 * LOGS_PER_STEP):
        manager.get_or_create_log(TopicPartition("orders", number), b"\1" * 16, CONFIG, 0)
    open_counts = [len(manager.files)]
    assert open_counts[0] >= 3 * len(manager.logs)
    manager.checkpoints = LogCheckpoints(manager.directories, (manager.logs, manager.future_logs), logs_per_step=8)
    for step in closing_steps(manager, 5):
        open_counts.append(len(manager.files))
        if step is not None:
            step.run()
    assert max(before - after for before, after in pairwise(open_counts)) <= 3 * LOGS_PER_STEP
    assert open_counts[-1] == 0
    assert len(open_counts) > 3 * len(manager.logs) // 8  # each of three checkpoints is collected in steps, too
    assert disk.exists(f"{DIRECTORIES[0]}/{checkpoint.CLEAN_SHUTDOWN_FILE}")
