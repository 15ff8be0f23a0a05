"""Truncating a log, deleting its old segments, and the offsets that bound it."""

import errno

import pytest

from kafkapy.errors import StorageError
from kafkapy.storage.errors import (
    KAFKA_STORAGE_ERROR,
    OFFSET_OUT_OF_RANGE,
)
from kafkapy.storage.log.lookup import (
    aborted_transactions,
)
from kafkapy.storage.log.maintenance import delete_due_files, delete_old_segments
from kafkapy.storage.log.reader import FetchIsolation
from kafkapy.storage.log.truncation import truncate_fully_and_start_at, truncate_to
from kafkapy.types import OffsetAndEpoch
from tests.simulator.disk import SimDisk
from tests.support.logs import (
    DIRECTORY,
    NOW_MS,
    append,
    bases,
    batch,
    end_transaction,
    open_small_log,
    ranges,
    refuses,
    transaction,
)

LOG_END, TXN_COMMITTED = FetchIsolation.LOG_END, FetchIsolation.TXN_COMMITTED


def test_truncation_drops_the_batch_that_holds_the_offset(disk: SimDisk) -> None:
    log = open_small_log(disk)
    for epoch in range(4):
        append(log, 3, leader_epoch=epoch)
    assert truncate_to(log, 7)
    assert ranges(log, 0, isolation=LOG_END) == [(0, 2), (3, 5)]
    assert (log.log_end_offset, log.high_watermark) == (7, 7)
    assert log.leader_epochs.entries == [(0, 0), (1, 3), (2, 6)]
    assert not truncate_to(log, 7)


def test_truncation_across_segments_and_appending_on(disk: SimDisk) -> None:
    log = open_small_log(disk, segment_bytes=500)
    for _ in range(20):
        append(log, value_bytes=100)
    truncate_to(log, 4)
    assert log.log_end_offset == 4
    assert append(log, leader_epoch=3) == 4
    assert ranges(log, 4) == [(4, 4)]
    log.close()
    assert open_small_log(disk, segment_bytes=500).log_end_offset == 5


def test_truncation_takes_back_producers_and_aborts(disk: SimDisk) -> None:
    log = open_small_log(disk)
    append(log, producer_id=7, producer_epoch=0, base_sequence=0)
    append(log, producer_id=7, producer_epoch=0, base_sequence=1)
    transaction(log)
    end_transaction(log, is_abort=True)
    truncate_to(log, 1)
    assert log.producer_state.producers[7].last_sequence == 0
    assert aborted_transactions(log, 0, 100) == []
    append(log, producer_id=7, producer_epoch=0, base_sequence=1)


def test_a_full_truncation_goes_on_elsewhere(disk: SimDisk) -> None:
    log = open_small_log(disk, segment_bytes=500)
    for _ in range(10):
        append(log, value_bytes=100, producer_id=7, producer_epoch=0, base_sequence=log.log_end_offset)
    truncate_fully_and_start_at(log, 100)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark, log.recovery_point) == (100, 100, 100, 0)
    assert (bases(log), log.leader_epochs.entries, log.producer_state.producers) == ([100], [], {})
    assert append(log) == 100
    truncate_to(log, 50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)


def test_a_truncation_that_cannot_be_synced_takes_the_directory_offline(disk: SimDisk) -> None:
    """Also for lack of space: if it were tried again, nothing would be left to truncate, and nothing be synced."""
    log = open_small_log(disk)
    for _ in range(4):
        append(log)
    disk.fail("sync", errno.ENOSPC, path=".log")
    with pytest.raises(StorageError):
        truncate_to(log, 2)
    assert log.log_dir.is_offline


def test_a_truncation_that_is_repeated_syncs_the_removals_that_could_not_be_synced(disk: SimDisk) -> None:
    """Else a power failure brings segments back that follow one which was truncated, and written to again."""
    log = open_small_log(disk, segment_bytes=500)
    for _ in range(20):
        append(log, value_bytes=100)
    disk.sync_all()
    disk.fail("sync_directory", errno.ENOSPC)
    refuses(KAFKA_STORAGE_ERROR, truncate_to, log, 4)
    truncate_to(log, 4)
    disk.crash("none")
    found = [int(name[:20]) for name in disk.list_directory(DIRECTORY) if name.endswith(".log")]
    assert sorted(found) == bases(log)


def test_old_segments_go_and_their_files_later(disk: SimDisk) -> None:
    log = open_small_log(disk, segment_bytes=500, retention_ms=1000, file_delete_delay_ms=60_000)
    for _ in range(9):
        append(log, value_bytes=100)
    count = len(log.segments)
    assert delete_old_segments(log, NOW_MS + 1000) == 0
    assert delete_old_segments(log, NOW_MS + 1001) == count
    assert (bases(log), log.log_start_offset, log.size_bytes) == ([9], 9, 0)
    assert any(name.endswith(".log.deleted") for name in disk.list_directory(DIRECTORY))
    assert delete_due_files(log, NOW_MS + 2000) == NOW_MS + 62_000
    assert delete_due_files(log, NOW_MS + 62_000) is None
    assert not any(name.endswith(".deleted") for name in disk.list_directory(DIRECTORY))


@pytest.mark.parametrize("part", [".index", ".log", ".snapshot"])
def test_old_segments_without_room_for_other_names_stay_until_there_is_some(disk: SimDisk, part: str) -> None:
    log = open_small_log(disk, segment_bytes=500, retention_ms=1000, file_delete_delay_ms=60_000)
    for _ in range(9):
        append(log, value_bytes=100)
    second = bases(log)[1]
    disk.fail("rename", errno.ENOSPC, path=f"{second:020d}{part}")
    refuses(KAFKA_STORAGE_ERROR, delete_old_segments, log, NOW_MS + 1001)
    assert (bases(log)[0], log.is_offline) == (second, False)
    disk.sync_all()
    crashed = disk.fork(1)
    crashed.crash("all")
    recovered = open_small_log(crashed, segment_bytes=500, retention_ms=-1, was_clean_shutdown=False)
    is_renamed = part == ".snapshot"
    assert (bases(recovered), recovered.log_end_offset) == (bases(log)[is_renamed:], 9)
    assert delete_old_segments(log, NOW_MS + 1001) > 0
    delete_due_files(log, NOW_MS + 1001)
    assert delete_due_files(log, NOW_MS + 61_001) is None
    kept = {f"{9:020d}{suffix}" for suffix in (".log", ".index", ".timeindex", ".snapshot")}
    assert {name for name in disk.list_directory(DIRECTORY) if name[0] == "0"} == kept
    assert append(log) == 9


def test_old_segments_go_where_there_is_no_room_for_a_new_one(disk: SimDisk) -> None:
    log = open_small_log(disk, segment_bytes=500, retention_ms=1000)
    for _ in range(9):
        append(log, value_bytes=100)
    *old, last = bases(log)
    disk.fail("create", errno.ENOSPC)
    assert delete_old_segments(log, NOW_MS + 1001) == len(old)
    assert bases(log) == [last]
    disk.fail("create", errno.ENOSPC)
    refuses(KAFKA_STORAGE_ERROR, delete_old_segments, log, NOW_MS + 1001)
    assert bases(log) == [last]


def test_a_region_of_a_deleted_segment_can_still_be_sent(disk: SimDisk) -> None:
    log = open_small_log(disk, segment_bytes=500, retention_ms=1000, file_delete_delay_ms=0)
    append(log, value_bytes=100)
    region = log.read(0, 1000).region
    assert region is not None
    delete_old_segments(log, NOW_MS + 5000)
    delete_due_files(log, NOW_MS + 5000)
    assert len(region.read()) == region.length
    region.release()
    with pytest.raises(OSError, match="Bad file"):
        region.read()


def test_a_region_beyond_a_truncation_is_empty_not_wrong(disk: SimDisk) -> None:
    log = open_small_log(disk)
    for _ in range(3):
        append(log, value_bytes=100)
    kept, cut = log.read(0, 200).region, log.read(1, 1 << 20).region
    assert kept is not None
    assert cut is not None
    truncate_to(log, 1)
    append(log, value_bytes=100)
    assert len(kept.read()) == kept.length
    assert (cut.read(), cut.file.fileno()) == (b"", -1)
    kept.release()
    cut.release()


def test_the_start_offset_rises_up_to_the_high_watermark(disk: SimDisk) -> None:
    log = open_small_log(disk)
    append(log, 5)
    log.append_as_leader(batch(5), leader_epoch=0, now_ms=NOW_MS)
    refuses(OFFSET_OUT_OF_RANGE, log.maybe_increment_log_start_offset, 6)
    assert log.maybe_increment_log_start_offset(5)
    assert not log.maybe_increment_log_start_offset(4)
    assert log.log_start_offset == 5


def test_the_high_watermark_stays_within_the_log(disk: SimDisk) -> None:
    log = open_small_log(disk)
    append(log, 5)
    log.maybe_increment_log_start_offset(2)
    assert [log.update_high_watermark(offset) for offset in (0, 3, 9)] == [2, 3, 5]


def test_epochs_answer_where_they_end(disk: SimDisk) -> None:
    log = open_small_log(disk)
    append(log, 5, leader_epoch=1)
    log.leader_epochs.assign(3, 5)
    assert log.end_offset_for_epoch(1) == OffsetAndEpoch(5, 1)
    assert log.end_offset_for_epoch(3) == OffsetAndEpoch(5, 3)
    assert log.latest_epoch == 3
