import errno
import shutil
from pathlib import Path

import pytest

from kafkapy.config.log import LogConfig
from kafkapy.errors import ApiError, StorageError
from kafkapy.storage.checkpoint import MetaProperties
from kafkapy.storage.errors import INCONSISTENT_TOPIC_ID, KAFKA_STORAGE_ERROR
from kafkapy.storage.log.flush import flush_log
from kafkapy.storage.log.log import Log
from kafkapy.storage.log.reader import FetchIsolation
from kafkapy.storage.manager import log_manager
from kafkapy.storage.manager.checkpoints import LogCheckpoints
from kafkapy.storage.manager.log_manager import DirectoryWatcher, LogManager
from kafkapy.storage.system_disk import SystemDisk
from kafkapy.types import METADATA_PARTITION, TopicPartition
from tests.simulator.disk import SimDisk
from tests.support.chance import SeededRandom
from tests.support.log_managers import A0, A1, B0, CONFIG, TOPIC_A, TOPIC_B, create, flushed_log, locked, started
from tests.support.logs import NOW_MS, append, batch, delete_due_logs, load_logs


def test_logs_are_there_again_after_a_clean_stop() -> None:
    disk = SimDisk()
    manager = started(disk)
    for count, log in enumerate(create(manager, A0, A1, B0), 1):
        append(log, count, leader_epoch=3)
    manager.close(broker_epoch=17)
    assert disk.read_file("/d/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":17}'
    assert disk.read_file("/d/recovery-point-offset-checkpoint") == b"0\n3\na 0 1\na 1 2\nb 0 3\n"
    assert disk.read_file("/d/replication-offset-checkpoint") == b"0\n3\na 0 1\na 1 2\nb 0 3\n"
    assert disk.read_file("/d/log-start-offset-checkpoint") == b"0\n0\n"
    manager = locked(disk)
    assert manager.directories.last_broker_epoch() == 17
    load_logs(manager, NOW_MS)
    assert not disk.exists("/d/.kafka_cleanshutdown")
    assert {partition: log.log_end_offset for partition, log in manager.logs.items()} == {A0: 1, A1: 2, B0: 3}
    assert manager.logs[A1].topic_id == TOPIC_A
    assert {partition: log.high_watermark for partition, log in manager.logs.items()} == {A0: 1, A1: 2, B0: 3}


def test_a_killed_broker_loses_nothing_that_the_page_cache_has(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimDisk()
    [log] = create(started(disk), A0)
    for _ in range(20):
        append(log, value_bytes=100)
    disk.crash("all")
    manager = locked(disk)
    with caplog.at_level("INFO"):
        load_logs(manager)
    assert manager.logs[A0].log_end_offset == 20
    for line in ("Recovering 1 logs from /d since no clean shutdown file was found", "(1/1 completed in /d)"):
        assert line in caplog.text


def test_a_directory_serves_one_process() -> None:
    disk = SimDisk()
    manager = started(disk)
    with pytest.raises(StorageError, match=r"Failed to acquire lock on file \.lock in /d\."):
        started(disk)
    manager.close()
    started(disk)


def test_damaged_meta_properties_stop_the_start_and_let_go_of_the_lock() -> None:
    disk = SimDisk()
    disk.make_directory("/d")
    disk.write_file_atomically("/d/meta.properties", b"nonsense")
    with pytest.raises(StorageError, match=r"none of the log dirs can be used: /d: .*malformed"):
        started(disk)
    assert not disk.locked


def test_the_identity_of_a_directory_is_read() -> None:
    disk = SimDisk()
    manager = started(disk)
    manager.directories[0].write_meta(MetaProperties("cluster", 4, b"\7" * 16))
    manager.close()
    assert started(disk).directories[0].directory_id == b"\7" * 16


def test_new_logs_go_to_the_requested_directory_or_to_that_with_the_fewest() -> None:
    disk = SimDisk()
    manager = started(disk, "/d1", "/d2")
    manager.directories[1].write_meta(MetaProperties("cluster", 4, b"\7" * 16))
    first = manager.get_or_create_log(A0, TOPIC_A, CONFIG, NOW_MS, directory_id=b"\7" * 16)
    second, third = create(manager, A1, B0)
    assert [log.directory for log in (first, second, third)] == ["/d2/a-0", "/d1/a-1", "/d1/b-0"]
    assert manager.get_or_create_log(A0, TOPIC_A, CONFIG, NOW_MS) is first


def test_where_there_are_fewest_is_known_whatever_became_of_the_logs_before() -> None:
    manager = started(SimDisk(), "/d1", "/d2", "/d3")
    by_path = {log.log_dir.path: log for log in create(manager, A0, A1, B0)}
    assert set(by_path) == {"/d1", "/d2", "/d3"}

    manager.delete_log(by_path["/d2"].topic_partition, NOW_MS)
    moved = manager.create_future_log(by_path["/d3"].topic_partition, manager.directories[0], None, NOW_MS)
    manager.replace_by_future_log(moved.topic_partition)
    other = [TopicPartition("b", number) for number in range(1, 5)]
    assert [log.log_dir.path for log in create(manager, *other)] == ["/d2", "/d3", "/d2", "/d3"]

    manager.directories[0].state.go_offline("broken")
    assert manager.logs.counts + manager.future_logs.counts == {"/d2": 2, "/d3": 2}
    assert len(manager.logs) == 4


class CountingDisk(SystemDisk):
    """A disk that counts how often directories are listed."""

    list_count = 0

    def list_directory(self, path: str) -> list[str]:
        self.list_count += 1
        return super().list_directory(path)


def test_a_new_directory_is_not_listed_but_one_that_is_there_is(tmp_path: Path) -> None:
    disk = CountingDisk()
    manager = LogManager(disk, [str(tmp_path)], CONFIG, random=SeededRandom(1))
    manager.directories.lock()
    load_logs(manager, NOW_MS)
    before = disk.list_count
    create(manager, A0)
    assert disk.list_count == before
    (tmp_path / str(A1)).mkdir()
    (log,) = create(manager, A1)
    assert disk.list_count == before + 1
    assert (log.log_end_offset, log.topic_id) == (0, TOPIC_A)
    manager.close()


def test_a_log_of_another_topic_of_that_name_is_refused() -> None:
    manager = started(SimDisk())
    create(manager, A0)
    with pytest.raises(ApiError) as caught:
        manager.get_or_create_log(A0, TOPIC_B, CONFIG, NOW_MS)
    assert caught.value.code == INCONSISTENT_TOPIC_ID


def test_a_directory_that_is_gone_is_described_as_offline(tmp_path: Path) -> None:
    first, second = (str(tmp_path / name) for name in ("first", "second"))
    manager = LogManager(SystemDisk(), [first, second], CONFIG, random=SeededRandom(1))
    manager.directories.lock()
    load_logs(manager, NOW_MS)
    shutil.rmtree(second)
    codes = {facts.path: facts.error_code for facts in manager.describe_log_dirs()}
    assert codes == {first: 0, second: KAFKA_STORAGE_ERROR}
    assert manager.directories.offline_paths == [second]
    manager.close()


def test_what_is_no_partition_is_left_alone() -> None:
    disk = SimDisk()
    for name in ("lost+found", str(METADATA_PARTITION)):
        disk.make_directory(f"/d/{name}")
    manager = started(disk)
    assert manager.logs == {}
    manager.close()
    assert disk.exists("/d/lost+found")


def test_a_partition_in_two_directories_takes_the_second_offline() -> None:
    disk = SimDisk()
    for directory in ("/d1", "/d2"):
        manager = started(disk, directory)
        create(manager, A0)
        manager.close()
    manager = started(disk, "/d1", "/d2")
    assert manager.directories.offline_paths == ["/d2"]
    assert manager.logs[A0].directory == "/d1/a-0"


def test_topics_get_their_configuration_when_loaded() -> None:
    disk = SimDisk()
    manager = started(disk)
    create(manager, A0, B0)
    manager.close()
    manager = locked(disk)
    load_logs(manager, NOW_MS, config_for=lambda topic: LogConfig(retention_ms=5) if topic == "a" else CONFIG)
    assert (manager.logs[A0].config.retention_ms, manager.logs[B0].config.retention_ms) == (5, -1)


def test_checkpoints_are_written_when_they_change() -> None:
    disk = SimDisk()
    manager = started(disk)
    [log] = create(manager, A0)
    append(log, 5)
    flush_log(log)
    log.maybe_increment_log_start_offset(2)
    manager.checkpoints.write_now(manager.checkpoints.all_at_the_end())
    assert disk.read_file("/d/recovery-point-offset-checkpoint") == b"0\n1\na 0 5\n"
    assert disk.read_file("/d/log-start-offset-checkpoint") == b"0\n1\na 0 2\n"
    changes = disk.changes
    manager.checkpoints.write_now(manager.checkpoints.all_at_the_end())
    assert disk.changes == changes
    disk.crash("none")
    log = started(disk).logs[A0]
    assert (log.log_start_offset, log.log_end_offset) == (2, 5)


def test_a_checkpoint_for_which_there_are_too_many_open_files_is_written_the_next_time() -> None:
    disk = SimDisk()
    manager = started(disk)
    flushed_log(manager, 3)
    disk.fail("open", errno.EMFILE, path="recovery-point")
    with pytest.raises(ApiError):
        manager.checkpoints.write_now(manager.checkpoints.recovery_points())
    assert not manager.directories.offline_paths
    manager.checkpoints.write_now(manager.checkpoints.recovery_points())
    assert disk.read_file("/d/recovery-point-offset-checkpoint") == b"0\n1\na 0 3\n"


def test_flushes_are_due_after_rolls_time_and_messages() -> None:
    manager = started(SimDisk())
    rolled, timed, counted = create(manager, A0, A1, B0)
    timed.update_config(LogConfig(flush_ms=1000, segment_index_bytes=4096))
    counted.update_config(LogConfig(flush_messages=2, segment_index_bytes=4096))
    for log in (rolled, timed, counted):
        append(log, value_bytes=300)
    assert list(manager.flush_due(NOW_MS + 999)) == []
    append(rolled, value_bytes=300)
    append(counted)
    due = list(manager.flush_due(NOW_MS + 1000))
    assert [(flush.log, flush.end_offset) for flush in due] == [(rolled, 1), (timed, 1), (counted, 2)]
    for flush in due:
        flush.run()
        flush.complete(NOW_MS + 1000)
    assert list(manager.flush_due(NOW_MS + 1000)) == []


def test_periodic_work_on_many_logs_pauses_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_manager, "LOGS_PER_SLICE", 2)
    manager = started(SimDisk())
    logs = create(manager, A0, A1, B0)
    for log in logs:
        log.update_config(LogConfig(flush_messages=1, segment_index_bytes=4096))
    append(logs[2])
    pause, flush = manager.flush_due(NOW_MS)
    assert pause is None
    assert flush is not None
    assert flush.log is logs[2]
    for log in logs:
        log.local_log.start_over(7, NOW_MS)
    assert list(manager.due_file_deletions(NOW_MS)) == [None]


def test_deletion_looks_only_at_logs_with_files_of_deleted_segments() -> None:
    disk = SimDisk()
    manager = started(disk)
    log, _, _ = create(manager, A0, A1, B0)
    waiting = manager.directory_of(log).state.logs_with_pending_files
    assert not waiting
    log.local_log.start_over(7, NOW_MS)
    assert list(waiting) == [log.local_log]
    delay_ms = log.config.file_delete_delay_ms
    assert list(manager.due_file_deletions(NOW_MS)) == []
    assert list(manager.due_file_deletions(NOW_MS + delay_ms - 1)) == []
    (deletion,) = manager.due_file_deletions(NOW_MS + delay_ms)
    assert deletion is not None
    assert not waiting
    disk.fail("delete", errno.EMFILE)
    with pytest.raises(OSError):
        deletion.run()
    deletion.put_back(NOW_MS)
    assert list(waiting) == [log.local_log]


def test_truncation_lowers_the_recovery_point_on_disk_first() -> None:
    disk = SimDisk()
    manager = started(disk)
    flushed_log(manager, 10)
    manager.checkpoints.write_now(manager.checkpoints.all_at_the_end())
    order: list[str] = []
    disk.hook = lambda operation, path: order.append(f"{operation} {path.rpartition('/')[2]}")
    manager.truncate_to({A0: 4})
    disk.hook = None
    assert disk.read_file("/d/recovery-point-offset-checkpoint") == b"0\n1\na 0 4\n"
    lowered = order.index("rename recovery-point-offset-checkpoint.tmp")
    cut = next(i for i, step in enumerate(order) if step.startswith("truncate 0000"))
    assert lowered < cut
    manager.truncate_fully_and_start_at(A0, 50)
    assert disk.read_file("/d/recovery-point-offset-checkpoint") == b"0\n1\na 0 0\n"


def test_a_recovery_point_that_was_lowered_does_not_rise_again_by_a_write_that_was_late() -> None:
    disk = SimDisk()
    manager = started(disk)
    flushed_log(manager, 10)
    ((late,),) = manager.checkpoints.recovery_points()
    manager.truncate_to({A0: 4})
    late.run()
    assert disk.read_file("/d/recovery-point-offset-checkpoint") == b"0\n1\na 0 4\n"


def test_a_log_made_anew_while_offsets_are_collected_does_not_get_the_old_one() -> None:
    disk = SimDisk()
    manager = started(disk)
    for log in create(manager, A0, A1, B0):
        append(log, 3)
        flush_log(log)
    checkpoints = LogCheckpoints(manager.directories, (manager.logs, manager.future_logs), logs_per_step=1)
    collected = checkpoints.recovery_points()
    assert [next(collected), next(collected)] == [[], []]
    manager.delete_log(A0, NOW_MS)
    create(manager, A0)
    ((write,),) = collected
    write.run()
    assert disk.read_file("/d/recovery-point-offset-checkpoint") == b"0\n2\na 1 3\nb 0 3\n"


def test_a_recovery_point_that_is_lowered_while_others_are_collected_stays_low() -> None:
    disk = SimDisk()
    manager = started(disk)
    flushed_log(manager, 10)
    create(manager, B0)
    manager.checkpoints = LogCheckpoints(manager.directories, (manager.logs, manager.future_logs), logs_per_step=1)
    collected = manager.checkpoints.recovery_points()
    assert next(collected) == []
    manager.truncate_to({A0: 4})
    manager.checkpoints.write_now(collected)
    assert disk.read_file("/d/recovery-point-offset-checkpoint") == b"0\n2\na 0 4\nb 0 0\n"


def test_rewritten_offsets_are_not_trusted_after_a_power_cut() -> None:
    """The recovery point was above a truncation; new segments reach beyond it, unsynced but for their names."""
    disk = SimDisk()
    manager = started(disk)
    log = flushed_log(manager, 12)
    manager.checkpoints.write_now(manager.checkpoints.all_at_the_end())
    disk.sync_all()
    manager.truncate_to({A0: 4})
    for _ in range(12):
        append(log, value_bytes=100, leader_epoch=1)
    disk.sync_directory("/d/a-0")
    disk.crash("none")
    log = started(disk).logs[A0]
    assert 4 <= log.log_end_offset <= 12
    for offset in range(log.log_end_offset):
        assert log.read(offset, 1, isolation=FetchIsolation.LOG_END).region is not None


def test_retention_runs_log_by_log() -> None:
    disk = SimDisk()
    manager = started(disk)
    for log in create(manager, A0, B0):
        log.update_config(LogConfig(segment_bytes=500, segment_index_bytes=4096, retention_ms=1000))
        for _ in range(9):
            append(log, value_bytes=100)
    steps = list(manager.cleanup_steps(NOW_MS + 5000))
    assert len(steps) == 2
    assert all(steps)
    assert all(log.is_empty for log in manager.logs.values())
    assert sum(manager.cleanup_steps(NOW_MS + 5000)) == 0


def logs_past_retention(manager: LogManager, *partitions: TopicPartition) -> list[Log]:
    logs = create(manager, *partitions)
    for log in logs:
        log.update_config(LogConfig(segment_bytes=500, segment_index_bytes=4096, retention_ms=1000))
        append(log, value_bytes=100)
    return logs


def test_a_log_whose_retention_finds_no_room_leaves_the_others_theirs() -> None:
    disk = SimDisk()
    manager = started(disk)
    full, other = logs_past_retention(manager, A0, B0)
    disk.fail("create", errno.ENOSPC, path="/d/a-0/")
    assert [bool(deleted) for deleted in manager.cleanup_steps(NOW_MS + 5000)] == [False, True]
    assert (full.is_empty, other.is_empty) == (False, True)
    assert sum(manager.cleanup_steps(NOW_MS + 5000)) > 0
    assert full.is_empty


def test_retention_passes_over_a_log_that_was_deleted_since_it_began() -> None:
    manager = started(SimDisk())
    logs_past_retention(manager, A0, B0)
    steps = manager.cleanup_steps(NOW_MS + 5000)
    assert next(steps) > 0
    manager.delete_log(B0, NOW_MS)
    delete_due_logs(manager, NOW_MS + 60_000)
    assert list(steps) == []
    assert manager.directories.offline_paths == []


def test_a_failing_directory_goes_offline_with_its_logs() -> None:
    disk = SimDisk()
    failed: list[str] = []
    manager = started(disk, "/d1", "/d2", watcher=DirectoryWatcher(failed.append))
    create(manager, A0, A1)
    disk.fail("write", errno.EIO, path="/d1/a-0")
    with pytest.raises(StorageError):
        append(manager.logs[A0])
    assert failed == manager.directories.offline_paths == ["/d1"]
    assert list(manager.logs) == [A1]
    with pytest.raises(ApiError) as caught:
        create(manager, A0)
    assert caught.value.code == KAFKA_STORAGE_ERROR
    append(manager.logs[A1])
    manager.close()
    assert not disk.exists("/d1/.kafka_cleanshutdown")
    assert disk.exists("/d2/.kafka_cleanshutdown")


def test_a_log_whose_directory_is_offline_leaves_its_name_when_it_is_deleted_and_its_copy_goes() -> None:
    disk = SimDisk()
    manager = started(disk, "/d1", "/d2")
    [log] = create(manager, A0)
    assert log.log_dir.path == "/d1"
    manager.create_future_log(A0, manager.directories[1], TOPIC_A, NOW_MS)
    manager.directories[0].state.go_offline("test")
    manager.delete_log(A0, NOW_MS)
    assert [name.rpartition("-")[2] for name in disk.list_directory("/d2") if name.startswith("a-")] == ["delete"]
    again = manager.get_or_create_log(A0, TOPIC_B, CONFIG, NOW_MS, is_new=True)
    assert again.directory == "/d2/a-0"
    assert manager.future_logs == {}


def test_nothing_is_left_of_a_log_that_found_no_room() -> None:
    """The next start would find the log twice, or resume a move that was refused."""
    disk = SimDisk()
    manager = started(disk, "/d1", "/d2")
    disk.fail("write", errno.ENOSPC, path="/d1/a-0/partition.metadata")
    [log] = create(manager, A0)
    assert log.directory == "/d2/a-0"
    assert len(manager.files) == len(log.segments.active.handles())
    disk.fail("write", errno.ENOSPC, path="-future/partition.metadata")
    with pytest.raises(ApiError):
        manager.create_future_log(A0, manager.directories[0], TOPIC_A, NOW_MS)
    assert [name for name in disk.list_directory("/d1") if name.startswith("a-")] == []
    manager.close()
    manager = started(disk, "/d1", "/d2")
    assert (manager.logs[A0].directory, manager.directories.offline_paths) == ("/d2/a-0", [])
    assert manager.future_logs == {}


def test_records_stay_though_their_log_finds_no_room_for_its_topic_id() -> None:
    disk = SimDisk()
    manager = started(disk)
    append(create(manager, A0)[0], 3)
    manager.logs.remove(A0)
    disk.delete("/d/a-0/partition.metadata")
    disk.fail("write", errno.ENOSPC, path="partition.metadata")
    with pytest.raises(ApiError):
        create(manager, A0)
    assert create(manager, A0)[0].log_end_offset == 3


def test_a_stop_that_fails_is_not_clean() -> None:
    disk = SimDisk()
    manager = started(disk)
    append(create(manager, A0)[0])
    disk.fail("sync", errno.EIO, path="a-0")
    manager.close()
    assert not disk.exists("/d/.kafka_cleanshutdown")
    assert not disk.locked
    assert started(disk).logs[A0].log_end_offset == 1


def test_a_stop_before_loading_is_not_clean() -> None:
    disk = SimDisk()
    manager = started(disk)
    append(create(manager, A0)[0])
    disk.crash("all")
    manager = locked(disk)
    manager.close()
    assert not disk.exists("/d/.kafka_cleanshutdown")


def test_directories_are_described() -> None:
    disk = SimDisk()
    disk.capacity_bytes = 1 << 30
    manager = started(disk, "/d1", "/d2")
    log, _ = create(manager, A0, A1)
    log.append_as_leader(batch(3), leader_epoch=0, now_ms=NOW_MS)
    manager.directories[1].state.go_offline("test")
    first, second = manager.describe_log_dirs()
    assert (first.path, first.error_code, first.logs) == ("/d1", 0, [log])
    assert first.total_bytes == 1 << 30
    assert 0 < first.usable_bytes < 1 << 30
    assert (second.path, second.error_code, second.logs) == ("/d2", KAFKA_STORAGE_ERROR, [])


def test_directories_are_described_with_the_wanted_logs_alone() -> None:
    manager = started(SimDisk(), "/d1", "/d2")
    first, _, third = create(manager, A0, A1, TopicPartition("a", 2))
    assert first.log_dir is third.log_dir is manager.directories[0].state
    manager.create_future_log(A0, manager.directories[1], TOPIC_A, NOW_MS)
    wanted = manager.describe_log_dirs([A0, TopicPartition("nowhere", 0)])
    future = manager.future_logs[A0]
    assert [(each.logs, each.future_logs) for each in wanted] == [([first], []), ([], [future])]
    assert [len(each.logs) for each in manager.describe_log_dirs()] == [2, 1]


def test_a_copy_whose_directory_fails_does_not_keep_its_topic_from_being_deleted() -> None:
    disk = SimDisk()
    manager = started(disk, "/d1", "/d2")
    first, second = manager.directories
    [log] = create(manager, A0)
    here, there = (first, second) if log.log_dir is first.state else (second, first)
    manager.create_future_log(A0, there, TOPIC_A, NOW_MS)
    disk.fail("rename", errno.EIO, path=there.path)
    with pytest.raises(StorageError):
        manager.delete_log(A0, NOW_MS)
    assert manager.directories.offline_paths == [there.path]
    assert (manager.logs, manager.future_logs) == ({}, {})
    made = manager.get_or_create_log(A0, TOPIC_B, CONFIG, NOW_MS, is_new=True)
    assert (made.log_dir, made.topic_id) == (here.state, TOPIC_B)
