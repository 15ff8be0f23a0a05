"""Logs for tests: on a simulated disk, with small segments, and batches in one line."""

from typing import Any

import pytest

from kafkapy.config.log import LogConfig
from kafkapy.errors import ApiError
from kafkapy.record.batches import batches
from kafkapy.record.validate import AppendOrigin
from kafkapy.storage.log.log import Log
from kafkapy.storage.log.opening import open_log
from kafkapy.storage.manager.loading import LogLoading, LogToLoad
from kafkapy.storage.manager.log_manager import LogManager
from kafkapy.storage.recovery.loader import LastStop
from kafkapy.types import TopicPartition
from tests.simulator.disk import SimDisk
from tests.support.batches import build_batch

PARTITION = TopicPartition("t", 0)
DIRECTORY = "/logs/t-0"
NOW_MS = 1_700_000_000_000
SMALL: dict[str, Any] = {"segment_bytes": 10_000, "index_interval_bytes": 200, "segment_index_bytes": 4096}


def open_small_log(disk: SimDisk, *, was_clean_shutdown: bool = True, recovery_point: int = 0, **config: Any) -> Log:
    """Open or make the log in DIRECTORY. A clean shutdown takes the recovery point at its end."""
    disk.make_directory("/logs")
    return open_log(
        disk,
        DIRECTORY,
        PARTITION,
        LogConfig(**{**SMALL, **config}),
        now_ms=NOW_MS,
        last_stop=LastStop(recovery_point=recovery_point, was_clean=was_clean_shutdown),
    )


def batch(count: int = 1, *, value_bytes: int = 0, timestamp_ms: int = NOW_MS, **fields: Any) -> bytearray:
    """Return a batch as a producer sends it: 61 bytes and 7 a record, plus the values."""
    return bytearray(build_batch([(timestamp_ms, None, bytes(value_bytes), ())] * count, **fields))


def append(log: Log, count: int = 1, *, leader_epoch: int = 0, now_ms: int = NOW_MS, **fields: Any) -> int:
    """Append a batch and move the high watermark to its end; return its first offset."""
    result = log.append_as_leader(batch(count, **fields), leader_epoch=leader_epoch, now_ms=now_ms)
    log.update_high_watermark(log.log_end_offset)
    return result.first_offset


def marker(*, is_abort: bool, producer_id: int = 8, producer_epoch: int = 0, coordinator_epoch: int = 0) -> bytearray:
    """Return an end-of-transaction marker as a coordinator writes it."""
    key = b"\0\0" + (0 if is_abort else 1).to_bytes(2, "big")
    return bytearray(
        build_batch(
            [(NOW_MS, key, b"\0\0" + coordinator_epoch.to_bytes(4, "big"), ())],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=True,
            is_control=True,
        )
    )


def load_logs(manager: LogManager, now_ms: int = NOW_MS, **options: Any) -> None:
    """Load all logs as a broker does at its start, here and now. The directories must be locked."""
    loading = LogLoading(manager, now_ms=now_ms, clock_ms=lambda: now_ms, **options)
    for item in planned(loading):
        loading.load(item)
    loading.finish()


def planned(loading: LogLoading) -> list[LogToLoad]:
    """Run the steps of a plan, without turns."""
    steps = loading.plan_steps()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            items: list[LogToLoad] = end.value
            return items


def delete_due_logs(manager: LogManager, now_ms: int) -> int:
    """Delete the directories that are due, as a worker does; return how many that were."""
    count = 0
    for deletion in manager.due_log_deletions(now_ms):
        deletion.run()
        count += 1
    return count


def refuses(code: int, call: Any, *arguments: Any, **keywords: Any) -> None:
    with pytest.raises(ApiError) as caught:
        call(*arguments, **keywords)
    assert caught.value.code == code


def ranges(log: Log, offset: int, max_bytes: int = 1 << 20, **options: Any) -> list[tuple[int, int]]:
    """Read, and return (base offset, last offset) of the batches."""
    read = log.read(offset, max_bytes, **options)
    if read.region is None:
        return []
    data = read.region.read()
    assert len(data) == read.size_bytes
    read.region.release()
    return [(found.base_offset, found.last_offset) for found in batches(data)]


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def transaction(log: Log, *, producer_id: int = 8, epoch: int = 0, count: int = 1, sequence: int = 0) -> int:
    result = log.append_as_leader(
        batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=True),
        leader_epoch=0,
        now_ms=NOW_MS,
        verification=log.producer_state.start_verification(
            producer_id, sequence, epoch, supports_epoch_bump=False, now_ms=NOW_MS
        ),
    )
    log.update_high_watermark(log.log_end_offset)
    return result.first_offset


def end_transaction(log: Log, *, is_abort: bool, producer_id: int = 8) -> None:
    log.append_as_leader(
        marker(is_abort=is_abort, producer_id=producer_id),
        leader_epoch=0,
        now_ms=NOW_MS,
        origin=AppendOrigin.COORDINATOR,
    )
    log.update_high_watermark(log.log_end_offset)
