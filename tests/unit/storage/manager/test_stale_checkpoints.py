"""Offsets that the checkpoints still have of a deleted log, when another of its name is created."""

import errno

import pytest

from kafkapy.errors import ApiError
from kafkapy.storage.checkpoint import (
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    RECOVERY_POINT_FILE,
    encode_offsets,
)
from kafkapy.storage.log.flush import flush_log
from kafkapy.storage.log.reader import FetchIsolation
from kafkapy.storage.manager.checkpoints import LogCheckpoints
from kafkapy.storage.manager.log_manager import LogManager
from tests.simulator.disk import SimDisk
from tests.support.log_managers import A0, B0, TOPIC_A, TOPIC_B, create, flushed_log, started
from tests.support.logs import NOW_MS, append


def with_a_deleted_log(disk: SimDisk) -> LogManager:
    """A0 began at 6, was durable and clean up to 10, and is deleted; the checkpoints have all of that."""
    manager = started(disk)
    log = flushed_log(manager, 10)
    create(manager, B0)
    log.update_high_watermark(10)
    log.maybe_increment_log_start_offset(6)
    log.on_cleaned(8)
    for steps in (manager.checkpoints.all_at_the_end(), manager.checkpoints.cleaner_offsets()):
        manager.checkpoints.write_now(steps)
    manager.delete_log(A0, NOW_MS)
    return manager


@pytest.mark.parametrize("is_restarted_before", [False, True])
@pytest.mark.parametrize("count", [3, 12])
def test_a_log_of_the_same_name_is_loaded_from_its_beginning_after_a_kill(
    count: int, is_restarted_before: bool
) -> None:
    disk = SimDisk()
    manager = with_a_deleted_log(disk)
    if is_restarted_before:
        disk.crash("all")
        manager = started(disk)
    [log] = create(manager, A0)
    for _ in range(count):
        append(log)
    disk.crash("all")
    manager = started(disk)
    log = manager.logs[A0]
    assert (log.log_start_offset, log.log_end_offset, log.clean_to) == (0, count, None)


def test_records_of_a_log_of_the_same_name_are_not_taken_for_durable_after_a_power_cut() -> None:
    disk = SimDisk()
    [log] = create(with_a_deleted_log(disk), A0)
    disk.sync_all()
    for _ in range(12):
        append(log, value_bytes=100)
    disk.sync_directory("/d/a-0")
    disk.crash("none")
    log = started(disk).logs[A0]
    assert (log.log_start_offset, log.recovery_point) == (0, 0)
    for offset in range(log.log_end_offset):
        assert log.read(offset, 1, isolation=FetchIsolation.LOG_END).region is not None


def test_checkpoints_are_not_written_for_a_log_that_they_do_not_name() -> None:
    disk = SimDisk()
    manager = with_a_deleted_log(disk)
    create(manager, A0)
    manager.delete_log(A0, NOW_MS)
    written: list[str] = []
    disk.hook = lambda operation, path: written.append(path) if operation == "write" and "offset" in path else None
    create(manager, A0)
    assert not [path for path in written if path.startswith("/d/") and path.count("/") == 2]


def test_a_log_is_not_created_while_its_namesakes_offsets_cannot_be_removed() -> None:
    disk = SimDisk()
    manager = with_a_deleted_log(disk)
    for _ in range(2):
        disk.fail("open", errno.EMFILE, path="checkpoint.tmp")
        with pytest.raises(ApiError):
            create(manager, A0)
        assert A0 not in manager.logs
        assert not disk.exists("/d/a-0")
    create(manager, A0)
    assert disk.read_file("/d/recovery-point-offset-checkpoint") == b"0\n1\nb 0 0\n"
    assert disk.read_file(f"/d/{CLEANER_OFFSET_FILE}") == encode_offsets({})


def test_a_truncation_whose_checkpoint_found_no_room_writes_it_when_tried_again() -> None:
    disk = SimDisk()
    manager = started(disk)
    flushed_log(manager, 10)
    manager.checkpoints.write_now(manager.checkpoints.recovery_points())
    disk.fail("write", errno.ENOSPC, path="recovery-point-offset-checkpoint")
    with pytest.raises(ApiError):
        manager.truncate_to({A0: 4})
    manager.truncate_to({A0: 4})
    assert disk.read_file("/d/recovery-point-offset-checkpoint") == b"0\n1\na 0 4\n"


def test_other_logs_keep_their_offsets_if_the_name_comes_back_at_a_start() -> None:
    """A broker creates the log while it applies the metadata: before it serves them, and before its cleaner starts."""
    disk = SimDisk()
    manager = started(disk)
    for log in create(manager, A0, B0):
        for _ in range(10):
            append(log)
        flush_log(log)
        log.update_high_watermark(9)
        log.on_cleaned(8)
    for steps in (manager.checkpoints.all_at_the_end(), manager.checkpoints.cleaner_offsets()):
        manager.checkpoints.write_now(steps)
    manager.delete_log(A0, NOW_MS)
    disk.crash("all")
    manager = started(disk)
    create(manager, A0)
    assert disk.read_file(f"/d/{HIGH_WATERMARK_FILE}") == encode_offsets({B0: 9})
    assert disk.read_file(f"/d/{CLEANER_OFFSET_FILE}") == encode_offsets({B0: 8})
    assert (manager.logs[B0].high_watermark, manager.logs[B0].clean_to) == (9, 8)


def test_what_is_appended_after_a_truncation_at_the_start_is_dirty() -> None:
    """A follower may truncate before the cleaner starts."""
    disk = SimDisk()
    manager = started(disk)
    log = flushed_log(manager, 10)
    log.on_cleaned(8)
    for steps in (manager.checkpoints.all_at_the_end(), manager.checkpoints.cleaner_offsets()):
        manager.checkpoints.write_now(steps)
    disk.crash("all")
    manager = started(disk)
    assert manager.logs[A0].clean_to == 8
    manager.truncate_to({A0: 4})
    assert manager.logs[A0].clean_to == 4


def test_offsets_that_are_not_written_are_not_kept() -> None:
    """A truncation in one directory collects those of the other one, too."""
    disk = SimDisk()
    manager = started(disk, "/d", "/e")
    logs = create(manager, A0, B0)
    for log in logs:
        for _ in range(10):
            append(log)
        flush_log(log)
    manager.truncate_to({A0: 4})
    written, other = (manager.directory_of(log) for log in logs)
    assert written is not other
    assert (written.offset_on_disk(RECOVERY_POINT_FILE, A0), other.offset_on_disk(RECOVERY_POINT_FILE, B0)) == (4, 0)


def test_a_replica_that_moves_while_offsets_are_collected_has_them_in_its_new_directory_alone() -> None:
    disk = SimDisk()
    manager = started(disk, "/d1", "/d2")
    flushed_log(manager, 3)
    create(manager, B0)
    copy = manager.create_future_log(A0, manager.directories[1], TOPIC_A, NOW_MS)
    for _ in range(3):
        append(copy, value_bytes=100)
    flush_log(copy)
    manager.create_future_log(B0, manager.directories[0], TOPIC_B, NOW_MS)
    checkpoints = LogCheckpoints(manager.directories, (manager.logs, manager.future_logs), logs_per_step=1)
    collected = checkpoints.recovery_points()
    assert [next(collected) for _ in range(3)] == [[], [], []]  # both logs of a-0 are among these three
    manager.replace_by_future_log(A0)
    checkpoints.write_now(collected)
    assert disk.read_file(f"/d1/{RECOVERY_POINT_FILE}") == encode_offsets({B0: 0})
    assert disk.read_file(f"/d2/{RECOVERY_POINT_FILE}") == encode_offsets({B0: 0, A0: 3})


def test_a_collection_that_is_given_up_watches_no_log_any_more() -> None:
    manager = started(SimDisk())
    create(manager, A0, B0)
    checkpoints = LogCheckpoints(manager.directories, (manager.logs, manager.future_logs), logs_per_step=1)
    collected = checkpoints.recovery_points()
    next(collected)
    del collected
    assert not manager.logs._watchers
    assert not manager.future_logs._watchers
