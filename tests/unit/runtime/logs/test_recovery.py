"""Recovery by helper processes: real ones, on a real disk."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kafkapy.config.log import LogConfig
from kafkapy.reactor.helper import SubprocessHelper
from kafkapy.runtime.logs.recovery import LogRecovery
from kafkapy.server.process.system_clock import SystemClock, SystemRandom
from kafkapy.storage.log.flush import flush_log
from kafkapy.storage.log.log import Log
from kafkapy.storage.log.reader import FetchIsolation
from kafkapy.storage.manager.loading import LogLoading
from kafkapy.storage.manager.log_manager import LogManager
from kafkapy.storage.system_disk import SystemDisk
from kafkapy.types import TopicPartition
from tests.support.logs import NOW_MS, append, planned

CONFIG = LogConfig(segment_bytes=10_000, index_interval_bytes=200, segment_index_bytes=4096, retention_ms=-1)
PARTITIONS = [TopicPartition("orders", number) for number in range(3)]


def locked(directory: Path) -> LogManager:
    manager = LogManager(SystemDisk(), [str(directory)], CONFIG, random=SystemRandom())
    manager.directories.lock()
    return manager


def killed(directory: Path) -> None:
    """Leave a directory as a killed broker does: logs of five segments, the last producer in epoch 3."""
    manager = locked(directory)
    loading = LogLoading(manager, now_ms=NOW_MS, clock_ms=lambda: 0)
    assert planned(loading) == []
    loading.finish()
    for partition in PARTITIONS:
        log = manager.get_or_create_log(partition, b"\1" * 16, CONFIG, NOW_MS)
        for sequence in range(45):
            append(log, value_bytes=1000, leader_epoch=3, producer_id=7, producer_epoch=0, base_sequence=sequence)
        flush_log(log, 20)
        log.local_log.close_files()
    manager.checkpoints.write_now(manager.checkpoints.recovery_points())
    manager.directories.unlock()


async def recovered(
    directory: Path, *, min_helper_bytes: int = 1, on_loaded: Callable[[int], None] = lambda count: None
) -> LogManager:
    manager = locked(directory)
    recovery = LogRecovery(
        LogLoading(manager, now_ms=NOW_MS, clock_ms=SystemClock().monotonic_ms),
        new_helper=SubprocessHelper,
        threads_per_directory=2,
        producer_id_expiration_ms=86_400_000,
        clock=SystemClock(),
        on_loaded=on_loaded,
        min_helper_bytes=min_helper_bytes,
    )
    await recovery.load_all()
    return manager


def facts(log: Log) -> tuple[object, ...]:
    producers = [
        (each.producer_id, each.last_sequence, each.last_offset) for each in log.producer_state.producers.values()
    ]
    return log.log_end_offset, len(log.segments), log.recovery_point, log.leader_epochs.entries, producers


@pytest.mark.parametrize("min_helper_bytes", [1, 1 << 30], ids=["helper", "in place"])
async def test_a_killed_log_is_the_same_whoever_recovers_it(tmp_path: Path, min_helper_bytes: int) -> None:
    killed(tmp_path)
    loaded: list[int] = []
    manager = await recovered(tmp_path, min_helper_bytes=min_helper_bytes, on_loaded=loaded.append)
    assert sorted(manager.logs) == PARTITIONS
    assert loaded == [1, 1, 1]
    for log in manager.logs.values():
        assert facts(log) == (45, 5, 20, [(3, 0)], [(7, 44, 44)])
        log.update_high_watermark(45)
        region = log.read(44, 1 << 20, wait=True).region
        assert region is not None
        region.release()
        append(log, leader_epoch=4)
    manager.close()


async def test_damage_is_cut_by_the_helper_and_logged(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    killed(tmp_path)
    damaged = sorted((tmp_path / "orders-1").glob("*.log"))[-2]
    content = bytearray(damaged.read_bytes())
    content[3000] ^= 1
    damaged.write_bytes(content)
    manager = await recovered(tmp_path)
    log = manager.logs[PARTITIONS[1]]
    assert int(damaged.stem) + 2 == log.log_end_offset
    assert log.read(log.log_end_offset - 1, 100, isolation=FetchIsolation.LOG_END, wait=True).region is not None
    assert {manager.logs[each].log_end_offset for each in (PARTITIONS[0], PARTITIONS[2])} == {45}
    assert "Corruption found in segment" in capfd.readouterr().err
    manager.close()


async def test_what_was_recovered_is_not_taken_for_durable(tmp_path: Path) -> None:
    """The recovery point stays where it was until the next flush: a power cut then is no worse than before."""
    killed(tmp_path)
    manager = await recovered(tmp_path)
    flushes = list(manager.flush_due(NOW_MS))
    assert {flush.end_offset for flush in flushes} == {manager.logs[PARTITIONS[0]].segments.active.base_offset}
    for flush in flushes:
        flush.run()
        flush.complete(NOW_MS)
        assert flush.log.recovery_point == flush.end_offset
    manager.close()
