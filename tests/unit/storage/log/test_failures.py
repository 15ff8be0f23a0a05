"""What a log does if its disk is full, or fails."""

import errno

import pytest

from kafkapy.errors import StorageError
from kafkapy.storage.errors import (
    KAFKA_STORAGE_ERROR,
)
from kafkapy.storage.log.flush import flush_log
from kafkapy.storage.log.lookup import aborted_transactions
from kafkapy.storage.segment.sparse_index import BUFFERED_ENTRIES
from tests.simulator.disk import SimDisk
from tests.support.logs import (
    DIRECTORY,
    NOW_MS,
    append,
    bases,
    end_transaction,
    open_small_log,
    ranges,
    refuses,
    transaction,
)


def test_a_full_disk_takes_the_append_back_and_stays_online(disk: SimDisk) -> None:
    log = open_small_log(disk)
    append(log, value_bytes=100)
    data = disk.read_file(f"{DIRECTORY}/00000000000000000000.log")
    disk.capacity_bytes = len(data) + 50
    refuses(KAFKA_STORAGE_ERROR, append, log, value_bytes=100)
    assert disk.read_file(f"{DIRECTORY}/00000000000000000000.log") == data
    assert not log.is_offline
    assert ranges(log, 0) == [(0, 0)]
    disk.heal()
    assert append(log) == 1


def test_a_full_disk_while_indexing_takes_the_append_back(disk: SimDisk) -> None:
    log = open_small_log(disk, index_interval_bytes=0)
    for count in range(BUFFERED_ENTRIES):  # the next entries are written, with those before
        append(log, timestamp_ms=NOW_MS + count)
    for path in (".index", ".timeindex"):
        disk.fail("write", errno.ENOSPC, path=path)
        refuses(KAFKA_STORAGE_ERROR, append, log, timestamp_ms=NOW_MS + 99)
    assert append(log, timestamp_ms=NOW_MS + 100) == BUFFERED_ENTRIES
    assert log.segments.active.offset_index.entry_count == BUFFERED_ENTRIES
    log.close()
    assert open_small_log(disk, was_clean_shutdown=False).log_end_offset == BUFFERED_ENTRIES + 1


def test_a_full_disk_while_rolling_leaves_the_old_segment_active(disk: SimDisk) -> None:
    log = open_small_log(disk, segment_bytes=200)
    append(log, value_bytes=100)
    disk.fail("create", errno.ENOSPC)
    refuses(KAFKA_STORAGE_ERROR, append, log, value_bytes=100)
    disk.fail("write", errno.ENOSPC, path=".timeindex")
    refuses(KAFKA_STORAGE_ERROR, append, log, value_bytes=100)
    assert (bases(log), log.log_end_offset) == ([0], 1)
    assert append(log, value_bytes=100) == 1
    assert bases(log) == [0, 1]


def test_a_failing_disk_takes_the_directory_offline(disk: SimDisk) -> None:
    log = open_small_log(disk)
    append(log)
    disk.fail("write", errno.EIO)
    for _ in range(2):
        with pytest.raises(StorageError):
            append(log)
    assert log.is_offline
    with pytest.raises(StorageError):
        log.read(0, 100)


def test_a_failed_fsync_is_not_tried_again(disk: SimDisk) -> None:
    log = open_small_log(disk)
    append(log)
    disk.fail("sync", errno.EIO, path=".log")
    with pytest.raises(StorageError):
        flush_log(log)
    assert (log.is_offline, log.recovery_point) == (True, 0)
    with pytest.raises(StorageError):
        flush_log(log)


def test_a_producers_state_is_untouched_by_a_failed_append(disk: SimDisk) -> None:
    log = open_small_log(disk)
    disk.fail("write", errno.ENOSPC, path=".log")
    fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    refuses(KAFKA_STORAGE_ERROR, append, log, **fields)
    assert append(log, **fields) == 0


def test_an_index_that_breaks_under_way_fails_the_read_not_the_directory(disk: SimDisk) -> None:
    log = open_small_log(disk, index_interval_bytes=0)
    for _ in range(BUFFERED_ENTRIES + 1):
        append(log)
    disk.open(f"{DIRECTORY}/00000000000000000000.index").truncate(3)
    refuses(KAFKA_STORAGE_ERROR, log.read, 1, 100)
    assert not log.is_offline
    restarted = open_small_log(disk, index_interval_bytes=0)
    assert restarted.segments.active.offset_index.entry_count == BUFFERED_ENTRIES


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_shortage_is_no_failure_of_the_disk(disk: SimDisk, code: int) -> None:
    log = open_small_log(disk)
    append(log)
    log.local_log.close_files()
    disk.fail("open", code)
    refuses(KAFKA_STORAGE_ERROR, append, log)
    assert append(log) == 1


@pytest.mark.parametrize(("operation", "code"), [("create", errno.EMFILE), ("write", errno.ENOSPC)])
def test_an_abort_marker_that_cannot_be_indexed_is_taken_back(disk: SimDisk, operation: str, code: int) -> None:
    """Without the entry, its transaction would stay open here, and after a restart its records would be committed."""
    log = open_small_log(disk)
    transaction(log)
    data = disk.read_file(f"{DIRECTORY}/00000000000000000000.log")
    disk.fail(operation, code, path=".txnindex")
    refuses(KAFKA_STORAGE_ERROR, end_transaction, log, is_abort=True)
    assert disk.read_file(f"{DIRECTORY}/00000000000000000000.log") == data
    assert (log.log_end_offset, log.last_stable_offset, log.is_offline) == (1, 0, False)
    end_transaction(log, is_abort=True)
    assert log.last_stable_offset == 2
    assert [each.first_offset for each in aborted_transactions(log, 0, 2)] == [0]
