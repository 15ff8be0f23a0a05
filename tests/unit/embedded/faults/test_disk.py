"""A disk that is full, fails, is slow or forgets, as clients meet it."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kafkapy.embedded.faults.faulty_disk import DiskState, FaultyDisk, FaultyFile
from kafkapy.seams import File
from kafkapy.storage.system_disk import SystemDisk
from kafkapy.testing import Broker, FaultError
from tests.support.topic_contents import offsets

TIMEOUT_S = 60


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(disk_faults=True) as running:
        running.create_topics("orders", partitions=1)
        yield running


def produce(broker: Broker, size: int = 100, timeout_ms: int = 60_000) -> str | None:
    """Return the name of the error, None if the record was acknowledged."""
    found: list[str | None] = []
    config = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, "message.timeout.ms": timeout_ms}
    producer = Producer({**config, "retry.backoff.ms": 10})
    producer.produce("orders", bytes(size), on_delivery=lambda error, _: found.append(error.name() if error else None))
    producer.flush(TIMEOUT_S)
    return found[0]


def record_count(broker: Broker) -> int:
    return offsets(broker.client_config(), "orders")[1]


def test_a_full_disk_refuses_until_there_is_room(broker: Broker) -> None:
    assert produce(broker) is None
    broker.faults.fill_disk()
    assert produce(broker, timeout_ms=500) == "_MSG_TIMED_OUT", "KAFKA_STORAGE_ERROR is tried again"
    broker.faults.mend_disk()
    assert produce(broker) is None
    assert record_count(broker) == 2


def test_a_slow_disk_is_slow(broker: Broker) -> None:
    broker.faults.slow_disk(ms=150)
    began = time.monotonic()
    assert produce(broker) is None
    assert time.monotonic() - began >= 0.15
    broker.faults.mend_disk()


def test_what_was_not_synced_is_lost_acknowledged_or_not(broker: Broker) -> None:
    assert produce(broker) is None
    assert broker.faults.lose_unsynced() > 100
    assert record_count(broker) == 0
    assert produce(broker) is None


def test_what_was_synced_is_kept() -> None:
    with Broker(disk_faults=True, properties={"log.flush.interval.messages": 1}) as broker:
        broker.create_topics("orders", partitions=1)
        assert produce(broker) is None
        broker.faults.lose_unsynced()
        assert record_count(broker) == 1


def test_a_log_directory_that_fails_is_offline_and_the_other_serves(tmp_path: Path) -> None:
    directories = [str(tmp_path / "one"), str(tmp_path / "two")]
    with Broker(disk_faults=True, properties={"log.dirs": ",".join(directories)}) as broker:
        broker.create_topics("orders", partitions=4)
        with pytest.raises(FaultError, match=r"elsewhere is no log directory; there are: .*one, .*two"):
            broker.faults.fail_disk(tmp_path / "elsewhere")
        broker.faults.fail_disk(directories[1])
        found: dict[int, str | None] = {}
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, "message.timeout.ms": 3000})
        for partition in range(4):
            producer.produce(
                "orders",
                b"value",
                partition=partition,
                on_delivery=lambda error, message: found.update({message.partition(): error.name() if error else None}),
            )
        producer.flush(TIMEOUT_S)
        assert sorted(str(error) for error in found.values()) == ["None", "None", "_MSG_TIMED_OUT", "_MSG_TIMED_OUT"]
        broker.faults.mend_disk()
        broker.restart()
        assert produce(broker) is None


def test_without_disk_faults_the_argument_is_named() -> None:
    with Broker() as broker, pytest.raises(FaultError, match=r"needs Broker\(disk_faults=True\)"):
        broker.faults.fill_disk()


def test_what_was_synced_after_a_rename_is_kept(tmp_path: Path) -> None:
    """A log directory is renamed with its files open, when a replica has moved to another directory."""
    state = DiskState()
    disk = FaultyDisk(SystemDisk(), state)
    disk.make_directory(f"{tmp_path}/future")
    file = disk.open(f"{tmp_path}/future/a.log", create=True)
    file.pwrite([b"one"], 0)
    disk.rename(f"{tmp_path}/future", f"{tmp_path}/current")
    file.pwrite([b"two"], 3)
    file.sync()
    file.pwrite([b"three"], 6)
    file.close()
    assert state.lose_unsynced() == len(b"three")
    assert (tmp_path / "current" / "a.log").read_bytes() == b"onetwo"


def test_what_is_written_while_the_file_is_synced_is_lost(tmp_path: Path) -> None:
    class WrittenWhileSynced:
        """As by the broker's loop while a worker waits for the disk."""

        def __init__(self, file: File) -> None:
            self._file = file

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

        def sync(self) -> None:
            self._file.sync()
            faulty.pwrite([b"later"], len(b"before"))

    state = DiskState()
    faulty = FaultyFile(WrittenWhileSynced(SystemDisk().open(f"{tmp_path}/a.log", create=True)), state)
    faulty.pwrite([b"before"], 0)
    faulty.sync()
    faulty.close()
    assert state.lose_unsynced() == len(b"later")
    assert (tmp_path / "a.log").read_bytes() == b"before"


def test_a_disk_has_no_less_than_no_room(broker: Broker) -> None:
    with pytest.raises(FaultError, match="room is a number of bytes"):
        broker.faults.fill_disk(room=-1)
