"""What a start makes of replicas that are found twice, or only as a future one."""

import errno

import pytest

from kafkapy.config.log import LogConfig
from kafkapy.storage.checkpoint import (
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    MetaProperties,
)
from kafkapy.storage.file_names import FUTURE_DIRECTORY_SUFFIX
from kafkapy.storage.log.log import Log
from kafkapy.storage.manager.loading import LogLoading
from kafkapy.storage.manager.log_manager import LogManager
from kafkapy.types import TopicPartition, Uuid
from tests.simulator.disk import SimDisk
from tests.support.chance import SeededRandom
from tests.support.logs import NOW_MS, append, delete_due_logs, load_logs, planned

CONFIG = LogConfig(segment_bytes=500, segment_index_bytes=4096, retention_ms=-1)
PARTITION = TopicPartition("a", 0)
TOPIC_ID = b"\1" * 16
FIRST_ID, SECOND_ID = b"\1" * 15 + b"\x80", b"\2" * 15 + b"\x80"


def locked(disk: SimDisk) -> LogManager:
    manager = LogManager(disk, ["/first", "/second"], CONFIG, random=SeededRandom(1))
    manager.directories.lock()
    for directory, directory_id in zip(manager.directories, (FIRST_ID, SECOND_ID), strict=True):
        directory.write_meta(MetaProperties("cluster", 1, directory_id))
    return manager


def started(disk: SimDisk, assigned: Uuid | None = None) -> LogManager:
    manager = locked(disk)
    load_logs(manager, assigned_directory=lambda log: assigned)
    return manager


def moving(disk: SimDisk, *, records: int = 5, copied: int = 5, is_renamed: bool = False) -> None:
    """Leave a replica in /first that was on its way to /second when the process was killed."""
    manager = started(disk)
    current = manager.get_or_create_log(PARTITION, TOPIC_ID, CONFIG, NOW_MS, directory_id=FIRST_ID)
    second = manager.directories.at("/second")
    assert second is not None
    future = manager.create_future_log(PARTITION, second, TOPIC_ID, NOW_MS)
    for log, count in ((current, records), (future, copied)):
        for _ in range(count):
            append(log)
    if is_renamed:
        manager.replace_by_future_log(PARTITION)
    disk.crash("all")


def places(disk: SimDisk) -> list[str]:
    found = [f"{path}/{name}" for path in ("/first", "/second") for name in disk.list_directory(path)]
    return [path for path in found if "/a-0" in path and not path.endswith("-delete")]


def facts(log: Log) -> tuple[str, int]:
    return log.directory, log.log_end_offset


def test_a_future_replica_waits_for_its_move_to_go_on() -> None:
    disk = SimDisk()
    moving(disk, copied=2)
    manager = started(disk, FIRST_ID)
    assert facts(manager.logs[PARTITION]) == ("/first/a-0", 5)
    assert manager.future_logs[PARTITION].log_end_offset == 2
    assert manager.future_logs[PARTITION].directory.endswith(FUTURE_DIRECTORY_SUFFIX)


def test_a_whole_copy_that_the_controller_knows_of_takes_over() -> None:
    disk = SimDisk()
    moving(disk)
    manager = started(disk, SECOND_ID)
    assert facts(manager.logs[PARTITION]) == ("/second/a-0", 5)
    assert manager.future_logs == {}
    assert places(disk) == ["/second/a-0"]
    assert delete_due_logs(manager, NOW_MS + 60_000) == 1
    assert disk.list_directory("/first") == [".lock", "meta.properties"]


def test_a_copy_that_lags_does_not_take_over_though_the_controller_knows_of_it() -> None:
    """Apache Kafka lets it, and loses what was not copied."""
    disk = SimDisk()
    moving(disk, copied=4)
    manager = started(disk, SECOND_ID)
    assert facts(manager.logs[PARTITION]) == ("/first/a-0", 5)
    assert manager.future_logs[PARTITION].log_end_offset == 4


def test_of_two_replicas_the_one_that_the_controller_knows_of_stays() -> None:
    disk = SimDisk()
    moving(disk, is_renamed=True)
    assert places(disk) == ["/first/a-0", "/second/a-0"]
    manager = started(disk, SECOND_ID)
    assert facts(manager.logs[PARTITION]) == ("/second/a-0", 5)
    assert places(disk) == ["/second/a-0"]


def test_of_two_replicas_that_the_controller_places_elsewhere_neither_is_guessed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimDisk()
    moving(disk, is_renamed=True)
    manager = started(disk, b"\7" * 16)
    assert manager.directories.offline_paths == ["/second"]
    assert "Duplicate log directories for a-0 are found in both /first/a-0 and /second/a-0" in caplog.text
    assert places(disk) == ["/first/a-0", "/second/a-0"]


def test_a_future_replica_alone_is_better_than_none() -> None:
    disk = SimDisk()
    moving(disk, copied=3)
    disk.delete_tree("/first/a-0")
    manager = started(disk, FIRST_ID)
    assert facts(manager.logs[PARTITION]) == ("/second/a-0", 3)


def test_a_future_replica_does_not_stand_in_for_one_in_a_failed_directory() -> None:
    disk = SimDisk()
    moving(disk, copied=3)
    disk.fail("open", errno.EIO, path="/first/a-0", times=100)
    manager = started(disk, FIRST_ID)
    assert manager.directories.offline_paths == ["/first"]
    assert PARTITION not in manager.logs
    assert manager.future_logs[PARTITION].log_end_offset == 3


def test_a_directory_that_cannot_be_read_is_offline_and_the_others_serve(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimDisk()
    moving(disk)
    disk.fail("open", errno.EIO, path="/second/meta.properties", times=10)
    manager = LogManager(disk, ["/first", "/second"], CONFIG, random=SeededRandom(1))
    manager.directories.lock()
    load_logs(manager)
    assert manager.directories.offline_paths == ["/second"]
    assert facts(manager.logs[PARTITION]) == ("/first/a-0", 5)
    assert "Stopping serving logs in dir /second" in caplog.text


def test_a_directory_without_an_id_is_given_one_that_stays() -> None:
    disk = SimDisk()
    disk.make_directory("/first")
    disk.write_file_atomically("/first/meta.properties", b"version=1\nnode.id=1\ncluster.id=abc\n")
    manager = LogManager(disk, ["/first"], CONFIG, random=SeededRandom(1))
    manager.directories.lock()
    directory_id = manager.directories[0].directory_id
    assert directory_id is not None
    manager.directories.unlock()
    again = LogManager(disk, ["/first"], CONFIG, random=SeededRandom(2))
    again.directories.lock()
    assert again.directories[0].directory_id == directory_id
    assert b"cluster.id=abc" in disk.read_file("/first/meta.properties")


def test_new_replicas_keep_away_from_cordoned_directories_unless_all_are() -> None:
    manager = started(SimDisk())
    manager.directories.cordon(["/first"])
    logs = [manager.get_or_create_log(TopicPartition("b", number), None, CONFIG, NOW_MS) for number in range(3)]
    assert {log.log_dir.path for log in logs} == {"/second"}
    assert manager.directories.cordoned_ids == [FIRST_ID]
    manager.directories.cordon(["*"])
    assert manager.get_or_create_log(TopicPartition("b", 3), None, CONFIG, NOW_MS).log_dir.path == "/first"
    assert manager.directories.cordoned_ids == [FIRST_ID, SECOND_ID]


def test_a_new_replica_goes_to_the_next_directory_where_the_best_one_fails() -> None:
    disk = SimDisk()
    manager = started(disk)
    disk.fail("make_directory", errno.EIO, path="/first/b-0")
    assert (
        manager.get_or_create_log(TopicPartition("b", 0), None, CONFIG, NOW_MS, is_new=True).directory == "/second/b-0"
    )
    assert manager.directories.offline_paths == ["/first"]


@pytest.mark.parametrize(("is_clean", "word"), [(True, "loading"), (False, "recovering")])
def test_how_far_the_loading_is(is_clean: bool, word: str) -> None:
    disk = SimDisk()
    manager = started(disk)
    for partition in range(3):
        manager.get_or_create_log(TopicPartition("a", partition), TOPIC_ID, CONFIG, NOW_MS)
    if is_clean:
        for directory in manager.directories:
            directory.write_clean_shutdown(1)
    disk.crash("all")
    again = locked(disk)
    loading = LogLoading(again, now_ms=NOW_MS, clock_ms=lambda: NOW_MS)
    assert loading.missing == "loading 0 of 0 logs"
    reported = []
    for item in planned(loading):
        reported.append(loading.missing)
        loading.load(item)
    assert reported == [f"{word} {done} of 3 logs" for done in range(3)]
    loading.finish()
    assert loading.missing is None


def test_a_start_with_many_logs_is_planned_in_steps() -> None:
    """A thousand logs, with as many lines in each checkpoint, are no step's work."""
    disk = SimDisk()
    manager = locked(disk)
    count = 1_000
    lines = "".join(f"a {number} {number}\n" for number in range(count))
    for name in (RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, CLEANER_OFFSET_FILE, HIGH_WATERMARK_FILE):
        disk.write_file_atomically(f"/first/{name}", f"0\n{count}\n{lines}".encode())
    for number in range(count):
        disk.make_directory(f"/first/a-{number}")
    steps = LogLoading(manager, now_ms=NOW_MS, clock_ms=lambda: NOW_MS).plan_steps()
    step_count = 0
    items = None
    while items is None:
        try:
            next(steps)
            step_count += 1
        except StopIteration as end:
            items = end.value
    assert step_count >= 5 + 4 * 2 + 5
    assert {(each.name, each.log_start_offset, each.recovery_point, each.clean_to) for each in items} == {
        (f"a-{number}", number, number, number) for number in range(count)
    }
