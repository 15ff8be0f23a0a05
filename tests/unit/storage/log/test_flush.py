"""What changes under a flush while a worker is at it: snapshots go, directories are renamed, names go to other logs."""

import errno

import pytest

from kafkapy.errors import ApiError
from kafkapy.storage.errors import KAFKA_STORAGE_ERROR
from kafkapy.storage.log.flush import flush_log, prepare_flush
from kafkapy.storage.log.opening import open_log
from kafkapy.storage.log.truncation import truncate_to
from kafkapy.storage.manager.log_manager import LogManager
from kafkapy.storage.recovery.loader import LastStop
from kafkapy.types import TopicPartition
from tests.simulator.disk import SimDisk
from tests.support.chance import SeededRandom
from tests.support.logs import DIRECTORY, NOW_MS, append, bases, load_logs, open_small_log
from tests.unit.storage.manager.test_log_manager import CONFIG

PARTITION = TopicPartition("a", 0)
OLD_TOPIC, NEW_TOPIC = b"\1" * 16, b"\2" * 16
SNAPSHOT = "00000000000000000001.snapshot"


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


def started(disk: SimDisk) -> LogManager:
    manager = LogManager(disk, ("/d",), CONFIG, random=SeededRandom(1))
    manager.directories.lock()
    load_logs(manager)
    return manager


def test_a_snapshot_may_go_while_a_flush_is_about_to_sync_it(disk: SimDisk) -> None:
    log = open_small_log(disk)
    append(log)
    log.roll(NOW_MS)
    flush = prepare_flush(log)

    def delete_snapshot(operation: str, path: str) -> None:
        if operation == "open" and path.endswith(SNAPSHOT):
            log.local_log.snapshots.mark_deleted(1)

    disk.hook = delete_snapshot
    flush.run()
    flush.complete(NOW_MS)
    assert not disk.exists(f"{DIRECTORY}/{SNAPSHOT}")
    assert (log.is_offline, log.recovery_point) == (False, 1)


def test_a_flush_whose_directory_was_lost_takes_the_log_directory_offline(disk: SimDisk) -> None:
    log = open_small_log(disk)
    append(log)
    flush = prepare_flush(log)
    disk.rename(DIRECTORY, "/elsewhere")
    with pytest.raises(ApiError, match="No such file"):
        flush.run()
    flush.complete(NOW_MS)
    assert (log.is_offline, log.recovery_point) == (True, 0)


def test_a_flush_of_a_deleted_topic_writes_nothing_into_the_one_of_its_name(disk: SimDisk) -> None:
    manager = started(disk)
    old = manager.get_or_create_log(PARTITION, OLD_TOPIC, CONFIG, NOW_MS)
    append(old, leader_epoch=7)
    flush = prepare_flush(old)

    def recreate(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".log"):
            disk.hook = None
            manager.delete_log(PARTITION, NOW_MS)
            manager.get_or_create_log(PARTITION, NEW_TOPIC, CONFIG, NOW_MS)

    disk.hook = recreate
    with pytest.raises(ApiError, match="renamed to"):
        flush.run()
    flush.complete(NOW_MS)
    assert not [name for name in disk.list_directory("/d/a-0") if name.startswith("leader-epoch-checkpoint")]
    assert not manager.directories.offline_paths
    with pytest.raises(ApiError) as refused:
        flush_log(old)
    assert refused.value.code == KAFKA_STORAGE_ERROR


def test_too_many_open_files_leave_what_a_flush_writes_to_the_next(disk: SimDisk) -> None:
    log = open_small_log(disk)
    append(log, leader_epoch=7)
    disk.fail("open", errno.EMFILE, path="leader-epoch-checkpoint")
    with pytest.raises(ApiError, match="Too many open files"):
        flush_log(log)
    assert (log.is_offline, log.recovery_point) == (False, 0)
    flush_log(log)
    assert log.recovery_point == 1
    assert disk.read_file("/logs/t-0/leader-epoch-checkpoint") == b"0\n1\n7 0\n"


@pytest.mark.parametrize("is_full", [True, False])
def test_what_a_flush_left_undone_is_done_under_the_directorys_new_name(disk: SimDisk, *, is_full: bool) -> None:
    log = open_small_log(disk)
    append(log, leader_epoch=7)
    log.roll(NOW_MS)
    if is_full:
        disk.fail("write", errno.ENOSPC, path="leader-epoch-checkpoint")
        with pytest.raises(ApiError, match="No space"):
            flush_log(log)
    log.local_log.rename_directory("/logs/other-0")
    assert not log.is_offline
    disk.sync_all()
    synced = []
    disk.hook = lambda operation, path: synced.append(path) if operation == "sync" else None
    flush_log(log)
    assert disk.read_file("/logs/other-0/leader-epoch-checkpoint") == b"0\n1\n7 0\n"
    assert f"/logs/other-0/{SNAPSHOT}" in synced
    assert (log.is_offline, log.recovery_point) == (False, 1)


def test_a_flush_of_appended_records_syncs_what_they_changed(disk: SimDisk) -> None:
    log = open_small_log(disk, index_interval_bytes=200)
    append(log)
    flush_log(log)
    synced: list[str] = []
    disk.hook = lambda operation, path: synced.append(path) if operation.startswith("sync") else None
    append(log)
    flush_log(log)
    assert synced == [f"{DIRECTORY}/{0:020d}.log"]
    synced.clear()
    for count in range(3):  # one of which has entries in the indexes
        append(log, timestamp_ms=NOW_MS + count)
    flush_log(log)
    assert synced == [f"{DIRECTORY}/{0:020d}{suffix}" for suffix in (".index", ".timeindex", ".log")]


def test_index_entries_of_flushed_records_outlive_a_crash_after_the_roll(disk: SimDisk) -> None:
    log = open_small_log(disk, index_interval_bytes=0)
    disk.sync_all()
    for count in range(5):
        append(log, timestamp_ms=NOW_MS + count)
    flush_log(log)
    log.roll(NOW_MS)
    disk.crash()
    found = open_small_log(disk, was_clean_shutdown=False, recovery_point=5, index_interval_bytes=0)
    assert found.segments.first.offset_index.entry_count == 4


def test_a_segment_that_was_rolled_and_cut_open_again_is_synced_once(disk: SimDisk) -> None:
    log = open_small_log(disk, index_interval_bytes=0)
    for _ in range(5):
        append(log)
    flush_log(log)
    log.roll(NOW_MS)
    append(log)
    truncate_to(log, 4)
    flush_log(log)
    assert (bases(log), log.recovery_point) == ([0], 4)
    log.close()


def test_a_full_disk_keeps_no_flush_from_syncing_records(disk: SimDisk) -> None:
    log = open_small_log(disk, index_interval_bytes=0)
    append(log)
    flush_log(log)
    append(log)
    disk.fail("write", errno.ENOSPC, path=".index")
    flush_log(log)
    assert log.recovery_point == 2


def test_a_file_whose_sync_had_to_be_given_up_is_synced_by_the_next_flush(disk: SimDisk) -> None:
    log = open_small_log(disk)
    append(log, leader_epoch=7)
    flush_log(log)
    append(log, leader_epoch=8)
    log.segments.active.become_inactive()
    disk.fail("write", errno.ENOSPC, path="leader-epoch-checkpoint")
    with pytest.raises(ApiError, match="No space"):
        flush_log(log)
    synced: list[str] = []
    disk.hook = lambda operation, path: synced.append(path) if operation == "sync" else None
    flush_log(log)
    assert f"{DIRECTORY}/{0:020d}.timeindex" in synced


@pytest.mark.parametrize("is_recovered", [False, True])
def test_what_a_recovery_wrote_is_synced_by_the_flush_at_the_next_stop(disk: SimDisk, is_recovered: bool) -> None:
    log = open_small_log(disk)
    append(log)
    flush_log(log)
    log.local_log.close_files()
    last_stop = LastStop(0, 1, was_clean=False, is_recovered=is_recovered)
    log = open_log(disk, DIRECTORY, PARTITION, log.config, now_ms=NOW_MS, last_stop=last_stop)
    synced: list[str] = []
    disk.hook = lambda operation, path: synced.append(path) if operation.startswith("sync") else None
    log.close()
    assert {f"{DIRECTORY}/{0:020d}{suffix}" for suffix in (".index", ".timeindex", ".log")} <= set(synced)
    assert DIRECTORY in synced


def test_indexes_that_a_recovery_process_wrote_are_synced_with_their_records(disk: SimDisk) -> None:
    """Of all segments from the recovery point on; behind it the next start would believe them."""
    log = open_small_log(disk)
    for _ in range(2):
        append(log)
        log.roll(NOW_MS)
    log.local_log.close_files()
    last_stop = LastStop(0, 0, was_clean=False, is_recovered=True)
    log = open_log(disk, DIRECTORY, PARTITION, log.config, now_ms=NOW_MS, last_stop=last_stop)
    synced: list[str] = []
    disk.hook = lambda operation, path: synced.append(path) if operation == "sync" else None
    flush_log(log)
    suffixes = (".index", ".timeindex", ".log")
    assert {f"{DIRECTORY}/{base:020d}{suffix}" for base in range(3) for suffix in suffixes} <= set(synced)


def test_an_index_that_was_closed_is_synced_by_the_flush_behind_one_that_could_not_begin(disk: SimDisk) -> None:
    log = open_small_log(disk)
    append(log)
    flush_log(log)
    log.roll(NOW_MS)  # which trims the index, of a segment that is durable
    log.local_log.close_files()
    disk.fail("open", errno.EMFILE)
    with pytest.raises(ApiError):
        flush_log(log)
    synced = []
    disk.hook = lambda operation, path: synced.append(path) if operation == "sync" else None
    flush_log(log)
    assert f"{DIRECTORY}/00000000000000000000.timeindex" in synced
