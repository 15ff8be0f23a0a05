"""A broker process on a disk that is really full: a small tmpfs, which only root can mount."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from harness.servers import Kafkapy
from tests.compat.test_confluent_kafka import consume

pytestmark = [pytest.mark.long, pytest.mark.ours]  # Apache Kafka ends itself where its only directory is full

VALUE_BYTES = 100_000
ROOM_FOR_RECORDS = 8 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    point = tmp_path / "disk"
    point.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(point)], capture_output=True).returncode:
        pytest.skip("mounting a tmpfs is not allowed here")
    try:
        yield point
    finally:
        subprocess.run(["umount", "--lazy", str(point)], check=True)


@pytest.fixture
def server(small_disk: Path) -> Iterator[Kafkapy]:
    """A broker with two topics, which has had the time to set room aside for its metadata."""
    with Kafkapy(small_disk / "data") as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        topics = [NewTopic("filler", 1, 1, config={"file.delete.delay.ms": "0"}), NewTopic("kept", 1, 1)]
        for future in admin.create_topics(topics).values():
            future.result()
        wait_for((small_disk / "data" / ".kafkapy-reserve").exists)
        yield running


def free_bytes(path: Path) -> int:
    facts = os.statvfs(path)
    return facts.f_bavail * facts.f_frsize


def fill_with_records(bootstrap: str, topic: str) -> int:
    """Produce until a record is refused; return how many were taken."""
    refused: list[str] = []
    taken: list[int] = []

    def on_delivery(error: object, message: Message) -> None:
        if error is None:
            taken.append(message.offset())
        else:
            refused.append(str(error))

    producer = Producer({"bootstrap.servers": bootstrap, "retries": 0, "linger.ms": 0, "log_level": 0})
    while not refused:
        producer.produce(topic, bytes(VALUE_BYTES), on_delivery=on_delivery)
        assert producer.flush(60) == 0
    assert taken == list(range(len(taken)))
    return len(taken)


def fill_to_the_last_byte(disk: Path) -> Path:
    """Do what another process might; return the file."""
    ballast = disk / "ballast"
    with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return ballast


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_full_disk_refuses_records_and_takes_them_again_when_a_topic_is_deleted(
    server: Kafkapy, small_disk: Path
) -> None:
    count = fill_with_records(server.bootstrap, "filler")
    assert count > 100
    assert len(consume(server.bootstrap, "filler", count)) == count
    server.stop(signal.SIGKILL)
    server.start()
    assert len(consume(server.bootstrap, "filler", count)) == count
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.delete_topics(["filler"])["filler"].result()
    wait_for(lambda: free_bytes(small_disk) > ROOM_FOR_RECORDS)
    assert fill_with_records(server.bootstrap, "kept") > 100
    assert server.stop() == 0


def test_a_start_on_a_full_disk_finds_the_room_that_was_set_aside(server: Kafkapy, small_disk: Path) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for _ in range(10):
        producer.produce("kept", bytes(1000))
    assert producer.flush(60) == 0
    server.stop(signal.SIGKILL)
    ballast = fill_to_the_last_byte(small_disk)
    assert free_bytes(small_disk) == 0
    server.start()
    assert len(consume(server.bootstrap, "kept", 10)) == 10
    ballast.unlink()
    wait_for((small_disk / "data" / ".kafkapy-reserve").exists)
    assert fill_with_records(server.bootstrap, "filler") > 100
