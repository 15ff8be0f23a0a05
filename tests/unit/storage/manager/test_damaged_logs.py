"""A partition's name in a log directory that holds no log: what a damaged and repaired file system leaves.

Seen on ext4 without a journal after e2fsck: a partition's directory came back as a regular file.
"""

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkapy.config.log import LogConfig
from kafkapy.storage.checkpoint import MetaProperties
from kafkapy.storage.log.log import Log
from kafkapy.storage.manager.log_manager import LogManager
from kafkapy.storage.system_disk import SystemDisk
from kafkapy.types import TopicPartition
from tests.support.chance import SeededRandom
from tests.support.logs import NOW_MS, append, load_logs, refuses

CONFIG = LogConfig(segment_bytes=500, segment_index_bytes=4096, retention_ms=-1)
PARTITION, SOUND = TopicPartition("a", 0), TopicPartition("a", 1)
TOPIC_ID = b"\1" * 16
KAFKA_STORAGE_ERROR = 56
BROKER_EPOCH = 5


_managers: list[LogManager] = []


@pytest.fixture(autouse=True)
def closed_at_the_end() -> Iterator[None]:
    yield
    while _managers:
        manager = _managers.pop()
        manager.abandon()
        manager.close()


def managed(path: Path) -> LogManager:
    manager = LogManager(SystemDisk(), [str(path)], CONFIG, random=SeededRandom(len(os.listdir(path))))
    _managers.append(manager)
    manager.directories.lock()
    for number, directory in enumerate(manager.directories):
        directory.write_meta(MetaProperties("cluster", 1, bytes([number + 1]) * 15 + b"\x80"))
    return manager


def created(manager: LogManager, partition: TopicPartition, *, is_replaceable: bool = False) -> Log:
    return manager.get_or_create_log(partition, TOPIC_ID, CONFIG, NOW_MS, is_replaceable=is_replaceable)


def left(path: Path, *, cleanly: bool) -> None:
    """Leave the logs of two partitions, of 20 records in three segments each."""
    manager = managed(path)
    load_logs(manager)
    for log in (created(manager, PARTITION), created(manager, SOUND)):
        for _ in range(20):
            append(log)
    if not cleanly:
        manager.checkpoints.write_now(manager.checkpoints.all_at_the_end())
        manager.abandon()
    manager.close(BROKER_EPOCH)


def restarted(path: Path) -> LogManager:
    manager = managed(path)
    load_logs(manager)
    return manager


def as_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_bytes(b"0\n1\na 0 20\n")


def as_dangling_link(path: Path) -> None:
    shutil.rmtree(path)
    path.symlink_to("/nonexistent/a-0")


def as_circular_link(path: Path) -> None:
    shutil.rmtree(path)
    path.symlink_to(path)


def as_socket(path: Path) -> None:
    shutil.rmtree(path)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(os.path.relpath(path))


NO_DIRECTORY = [as_file, as_dangling_link, as_circular_link, as_socket]


def first_of(directory: Path, suffix: str) -> Path:
    return min(directory.glob(f"*{suffix}"))


def log_file_as_directory(path: Path) -> None:
    first_of(path, ".log").unlink()
    (path / f"{0:020d}.log").mkdir()


def log_file_as_dangling_link(path: Path) -> None:
    first_of(path, ".log").unlink()
    (path / f"{0:020d}.log").symlink_to("/nonexistent/file")


def index_as_directory(path: Path) -> None:
    first_of(path, ".timeindex").unlink()
    (path / f"{0:020d}.timeindex").mkdir()


def epochs_as_directory(path: Path) -> None:
    (path / "leader-epoch-checkpoint").unlink(missing_ok=True)  # a flush writes it
    (path / "leader-epoch-checkpoint").mkdir()


def topic_id_as_directory(path: Path) -> None:
    (path / "partition.metadata").unlink()
    (path / "partition.metadata").mkdir()


def swap_of_zeros(path: Path) -> None:
    (path / f"{99:020d}.log.swap").write_bytes(bytes(200))


BROKEN_DIRECTORY = [
    log_file_as_directory,
    log_file_as_dangling_link,
    index_as_directory,
    epochs_as_directory,
    topic_id_as_directory,
    swap_of_zeros,
]


def restarted_after(damage: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LogManager:
    """Return the manager of a start after an unclean stop and a damage to PARTITION's directory."""
    monkeypatch.chdir(tmp_path)
    left(tmp_path, cleanly=False)
    damage(tmp_path / "a-0")
    return restarted(tmp_path)


@pytest.mark.parametrize("damage", [*NO_DIRECTORY, *BROKEN_DIRECTORY])
def test_a_damaged_partition_takes_no_other_out_of_service(
    damage: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = restarted_after(damage, tmp_path, monkeypatch)
    assert manager.directories.offline_paths == []
    assert list(manager.logs) == [SOUND]
    refuses(KAFKA_STORAGE_ERROR, created, manager, PARTITION)
    assert manager.directories.offline_paths == []
    assert os.path.lexists(tmp_path / "a-0"), "what may be an only copy stays where it is"


@pytest.mark.parametrize("damage", [*NO_DIRECTORY, *BROKEN_DIRECTORY])
def test_a_damaged_log_is_set_aside_for_a_new_one_if_its_records_are_elsewhere(
    damage: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = restarted_after(damage, tmp_path, monkeypatch)
    log = created(manager, PARTITION, is_replaceable=True)
    assert (log.log_end_offset, manager.logs[SOUND].log_end_offset) == (0, 20)
    append(log)
    manager.close(BROKER_EPOCH)
    again = restarted(tmp_path)
    assert again.logs[PARTITION].log_end_offset == 1
    assert again.directories.offline_paths == []
    assert [name.partition(".")[0] for name in os.listdir(tmp_path) if name.endswith("-stray")] == ["a-0"]


@pytest.mark.parametrize("damage", NO_DIRECTORY)
def test_a_stop_was_not_clean_if_a_partition_is_no_directory(
    damage: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the controller takes the broker out of the ISR of what it has lost."""
    monkeypatch.chdir(tmp_path)
    left(tmp_path, cleanly=True)
    damage(tmp_path / "a-0")
    assert managed(tmp_path).directories.last_broker_epoch() == -1


def test_a_clean_stop_is_known_by_its_broker_epoch(tmp_path: Path) -> None:
    left(tmp_path, cleanly=True)
    (tmp_path / "a-notes").write_text("not a partition's name")
    assert managed(tmp_path).directories.last_broker_epoch() == BROKER_EPOCH


def test_a_start_after_a_clean_stop_looks_at_a_log_directory_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And asks the system about no partition for it: a listing says what is a directory."""
    left(tmp_path, cleanly=True)
    manager = managed(tmp_path)
    calls: list[tuple[str, str]] = []
    for name in ("scandir", "listdir", "stat"):
        real = getattr(os, name)

        def noted(path: Any, *args: Any, name: str = name, real: Any = real, **options: Any) -> Any:
            calls.append((name, str(path)))
            return real(path, *args, **options)

        monkeypatch.setattr(os, name, noted)
    assert manager.directories.last_broker_epoch() == BROKER_EPOCH
    partitions = [str(tmp_path / str(partition)) for partition in (PARTITION, SOUND)]
    assert [call for call in calls if call[1] in partitions] == []
    load_logs(manager)
    assert [name for name, path in calls if path == str(tmp_path)] == ["scandir"]
    assert set(manager.logs) == {PARTITION, SOUND}


@pytest.mark.parametrize("damage", BROKEN_DIRECTORY)
def test_a_log_damaged_after_a_clean_stop_takes_its_directory_offline(
    damage: Callable[[Path], None], tmp_path: Path
) -> None:
    """The broker was registered as one that has lost nothing before the log was read."""
    left(tmp_path, cleanly=True)
    damage(tmp_path / "a-0")
    assert restarted(tmp_path).directories.offline_paths == [str(tmp_path)]


def test_a_log_that_a_topic_deleted_meanwhile_had_makes_way_for_the_next_one(tmp_path: Path) -> None:
    left(tmp_path, cleanly=False)
    as_file(tmp_path / "a-0")
    manager = restarted(tmp_path)
    log = manager.get_or_create_log(PARTITION, b"\2" * 16, CONFIG, NOW_MS, is_new=True)
    assert log.log_end_offset == 0


def test_a_clean_shutdown_file_that_cannot_be_read_takes_its_directory_offline(tmp_path: Path) -> None:
    """As later in the start, when it is taken; before, the error ended the process with a traceback."""
    left(tmp_path, cleanly=True)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / ".kafka_cleanshutdown").mkdir()
    manager = managed(tmp_path)
    assert manager.directories.last_broker_epoch() == -1
    assert manager.directories.offline_paths == [str(tmp_path)]
