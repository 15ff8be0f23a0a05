"""Logs pending deletion, and strays: the names of their directories, and when their files go."""

import errno
import gc

import pytest

from kafkapy.errors import ApiError, StorageError
from kafkapy.storage.errors import KAFKA_STORAGE_ERROR
from kafkapy.storage.log.log import Log
from kafkapy.storage.manager.pending_logs import NAMES_AT_ONCE
from kafkapy.types import TopicPartition
from tests.simulator.disk import SimDisk
from tests.support.log_managers import A0, A1, B0, CONFIG, TOPIC_A, TOPIC_B, create, flushed_log, locked, started
from tests.support.logs import NOW_MS, append, delete_due_logs, load_logs


def test_a_deleted_log_goes_aside_and_later_away() -> None:
    disk = SimDisk()
    manager = started(disk)
    [log] = create(manager, A0)
    append(log, 3)
    region = log.read(0, 1000).region
    assert region is not None
    assert manager.delete_log(A0, NOW_MS)
    assert not manager.delete_log(A0, NOW_MS)
    names = [name for name in disk.list_directory("/d") if name.startswith("a-")]
    assert len(names) == 1
    assert names[0].startswith("a-0.")
    assert names[0].endswith("-delete")
    [again] = create(manager, A0)
    assert again.log_end_offset == 0
    assert delete_due_logs(manager, NOW_MS + 59_999) == 0
    assert delete_due_logs(manager, NOW_MS + 60_000) == 1
    assert [name for name in disk.list_directory("/d") if name.startswith("a-")] == ["a-0"]
    assert len(region.read()) == region.length
    region.release()


def test_logs_that_fall_due_together_are_let_go_of_one_by_one() -> None:
    manager = started(SimDisk())
    create(manager, A0, A1, B0)
    for partition in (A0, A1, B0):
        manager.delete_log(partition, NOW_MS)
    waiting_counts = [len(manager.pending_log_deletions) for _ in manager.due_log_deletions(NOW_MS + 60_000)]
    assert waiting_counts == [2, 1, 0]


def test_logs_are_freed_one_by_one_when_their_files_go() -> None:
    manager = started(SimDisk())
    gc.collect()
    others = log_count()
    create(manager, A0, A1, B0)
    for partition in (A0, A1, B0):
        manager.delete_log(partition, NOW_MS)
    alive_counts = [log_count() - others for _ in manager.due_log_deletions(NOW_MS + 60_000)]
    assert alive_counts == [3, 2, 1]  # the one whose step it is, and those after it


def log_count() -> int:
    return sum(type(each) is Log for each in gc.get_objects())


def test_a_stop_closes_the_files_of_deleted_logs_one_by_one() -> None:
    manager = started(SimDisk())
    logs = create(manager, A0, A1, B0)
    for partition in (A0, A1, B0):
        manager.delete_log(partition, NOW_MS)
    handles = [handle for log in logs for handle in log.segments.active.handles()]
    open_counts = [sum(h.is_open for h in handles) for _ in manager.pending_log_deletions.close_steps()]
    assert open_counts == [6, 3, 0]
    assert len(manager.pending_log_deletions) == len(logs)
    assert list(manager.pending_log_deletions.close_steps()) == []


def test_a_deletion_that_was_cut_short_is_finished() -> None:
    disk = SimDisk()
    manager = started(disk)
    create(manager, A0)
    manager.delete_log(A0, NOW_MS)
    disk.crash("all")
    manager = started(disk)
    assert manager.logs == {}
    delete_due_logs(manager, NOW_MS + 60_000)
    assert not any(name.startswith("a-") for name in disk.list_directory("/d"))


def test_a_log_is_deleted_where_the_directory_of_its_copy_fails() -> None:
    disk = SimDisk()
    manager = started(disk, "/d", "/other")
    create(manager, A0)
    manager.create_future_log(A0, manager.directories[1], TOPIC_A, NOW_MS)
    disk.fail("rename", errno.EIO, path="-future")
    with pytest.raises(StorageError):
        manager.delete_log(A0, NOW_MS)
    assert manager.directories.offline_paths == ["/other"]
    assert (dict(manager.logs), directories_of(disk, "a")) == ({}, ["-delete"])


def directories_of(disk: SimDisk, topic: str) -> list[str]:
    """Return the markers of a topic's directories: "" of one in service."""
    names = [name for name in disk.list_directory("/d") if name.startswith(f"{topic}-")]
    return [name[name.rindex("-") :] if "." in name else "" for name in names]


def test_a_log_that_finds_no_room_for_its_longer_name_gets_it_later_and_goes() -> None:
    disk = SimDisk()
    manager = started(disk)
    [log] = create(manager, A0)
    append(log, 3)
    disk.fail("rename", errno.ENOSPC, path="/d/a-0", times=1000)
    assert manager.delete_log(A0, NOW_MS)
    assert manager.logs == {}
    assert list(manager.due_log_deletions(NOW_MS + 59_999)) == []
    assert (directories_of(disk, "a"), log.size_bytes > 0) == ([""], True)
    disk.heal()
    assert list(manager.due_log_deletions(NOW_MS + 59_999)) == []
    assert directories_of(disk, "a") == ["-delete"]
    assert [sync.log_dir.path for sync in manager.due_syncs()] == ["/d"]
    assert delete_due_logs(manager, NOW_MS + 60_000) == 1
    assert directories_of(disk, "a") == []
    assert manager.directories.offline_paths == []


def test_a_log_that_is_due_makes_room_for_its_longer_name_itself() -> None:
    disk = SimDisk()
    manager = started(disk)
    log = flushed_log(manager, 10)
    region = log.read(0, 1000).region
    assert region is not None
    first, second = log.segments.all()[:2]
    disk.fail("rename", errno.ENOSPC, path="/d/a-0", times=3)
    manager.delete_log(A0, NOW_MS)
    assert list(manager.due_log_deletions(NOW_MS + 60_000)) == []
    assert [disk.exists(segment.log.path) for segment in (first, second)] == [False, True]
    assert len(region.read()) == region.length
    region.release()
    assert delete_due_logs(manager, NOW_MS + 61_000) == 1
    assert directories_of(disk, "a") == []


def test_many_logs_get_their_longer_names_some_at_a_time() -> None:
    disk = SimDisk()
    manager = started(disk)
    partitions = [TopicPartition("a", number) for number in range(NAMES_AT_ONCE + 1)]
    create(manager, *partitions)
    disk.fail("rename", errno.ENOSPC, path="/d/a-", times=len(partitions) + 1)
    for partition in partitions:
        manager.delete_log(partition, NOW_MS)
    for nameless in (2, 0):  # the first of all finds no room again, and is tried behind the others
        assert list(manager.due_log_deletions(NOW_MS)) == []
        assert directories_of(disk, "a").count("") == nameless


def test_a_new_log_never_takes_the_name_of_a_deleted_one_that_still_has_it() -> None:
    disk = SimDisk()
    manager = started(disk)
    append(create(manager, A0)[0], 3)
    disk.fail("rename", errno.ENOSPC, path="/d/a-0", times=1000)
    manager.delete_log(A0, NOW_MS)
    with pytest.raises(ApiError, match="a deleted log's") as caught:
        manager.get_or_create_log(A0, TOPIC_B, CONFIG, NOW_MS)
    assert caught.value.code == KAFKA_STORAGE_ERROR
    disk.heal()
    log = manager.get_or_create_log(A0, TOPIC_B, CONFIG, NOW_MS)
    assert (log.topic_id, log.log_end_offset, log.directory) == (TOPIC_B, 0, "/d/a-0")
    assert delete_due_logs(manager, NOW_MS + 60_000) == 1
    assert directories_of(disk, "a") == [""]


def test_a_stop_gives_a_deleted_log_its_name_where_there_is_room_by_then() -> None:
    disk = SimDisk()
    manager = started(disk)
    create(manager, A0)
    disk.fail("rename", errno.ENOSPC, path="/d/a-0")
    manager.delete_log(A0, NOW_MS)
    manager.close()
    assert directories_of(disk, "a") == ["-delete"]


def test_a_stray_for_whose_name_there_is_no_room_is_called_so_later() -> None:
    disk = SimDisk()
    manager = started(disk)
    create(manager, A0, B0)
    manager.close()
    manager = locked(disk)
    disk.fail("rename", errno.ENOSPC, path="/d/a-0")
    load_logs(manager, NOW_MS, is_stray=lambda log: log.topic_partition == A0)
    assert (list(manager.logs), manager.directories.offline_paths) == ([B0], [])
    assert directories_of(disk, "a") == [""]
    assert list(manager.due_log_deletions(NOW_MS)) == []
    assert directories_of(disk, "a") == ["-stray"]


def test_strays_are_moved_aside_and_kept() -> None:
    disk = SimDisk()
    manager = started(disk)
    create(manager, A0, B0)
    manager.close()
    manager = locked(disk)
    load_logs(manager, NOW_MS, is_stray=lambda log: log.topic_partition == A0)
    assert list(manager.logs) == [B0]
    assert any(name.endswith("-stray") for name in disk.list_directory("/d"))
    manager.close()
    assert list(started(disk).logs) == [B0]
