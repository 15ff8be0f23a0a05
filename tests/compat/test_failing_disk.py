"""A broker process whose disk really fails: the kernel says EIO where it cannot write, and where it cannot read.

What an fsync could not write is gone from the page cache's books, and the next one may well succeed: a directory that
failed once is offline until the next start.
"""

import errno
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from harness.servers import Kafkapy
from tests.support.eventually import eventually
from tests.support.mounted_disks import MountedDisk

pytestmark = pytest.mark.ours  # Apache Kafka's responses while a directory fails come at other moments


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[MountedDisk]:
    try:
        disk = MountedDisk(tmp_path / "disk", 32 << 20)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system of the test's own is to be had here: {error}")
    yield disk
    disk.close()


class World:
    """A broker over a disk that will fail and one that will not; `bad` and `good` are its partitions on them."""

    def __init__(self, disk: MountedDisk, tmp_path: Path) -> None:
        self.failing, self.sound, self._log = disk.path / "logs", tmp_path / "sound", tmp_path / "broker.log"
        directories = {"log.dirs": f"{self.failing},{self.sound}", "metadata.log.dir": str(tmp_path / "metadata")}
        self.server = Kafkapy(tmp_path / "broker", {**directories, "log.flush.interval.messages": "1"})

    def create_topic(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.server.bootstrap})
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(60)
        self.bad, self.good = (
            next(int(path.name[-1]) for path in each.glob("orders-*")) for each in (self.failing, self.sound)
        )

    def produce(self, partition: int, value: bytes, *, patience_ms: int = 60_000) -> KafkaError | None:
        """Produce one record; return how that failed, None where it is durable."""
        errors: list[KafkaError | None] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            errors.append(error)

        bootstrap = {"bootstrap.servers": self.server.bootstrap}
        producer = Producer({**bootstrap, "message.timeout.ms": patience_ms, "retries": 0, "log_level": 0})
        producer.produce("orders", value, partition=partition, on_delivery=on_delivery)
        producer.flush(2 * patience_ms / 1000)
        return errors[0]

    def first_value(self, partition: int) -> bytes | None:
        """Return the first record's value; None if its directory goes offline instead."""
        settings = {"bootstrap.servers": self.server.bootstrap, "group.id": "none", "enable.auto.commit": False}
        consumer = Consumer({**settings, "log_level": 0})
        consumer.assign([TopicPartition("orders", partition, 0)])
        try:
            message = eventually(lambda: consumer.poll(0.2) or self.is_offline(partition))
        finally:
            consumer.close()
        return message.value() if isinstance(message, Message) and message.error() is None else None

    def is_offline(self, partition: int) -> bool:
        return partition == self.bad and bool(self.lines_of_failure())

    def lines_of_failure(self) -> list[str]:
        """Return what the log says of the directory that failed; a thread writes the log, after the responses."""
        output = f"Stopping serving logs in dir {self.failing}"
        return [line for line in self._log.read_text().splitlines(keepends=True) if output in line and line[-1] == "\n"]

    def assert_offline(self, doing: str) -> None:
        """One partition is refused, the other served; the reason was the kernel's EIO."""
        eventually(self.lines_of_failure, what=f"the failure of {self.failing}")
        assert self.produce(self.bad, b"not before a start", patience_ms=3000) is not None
        assert self.produce(self.good, b"as before") is None
        (line,) = self.lines_of_failure()
        assert doing in line
        assert os.strerror(errno.EIO) in line

    def assert_stops_with_one_directory_unclean(self) -> None:
        assert self.server.stop(signal.SIGTERM) == 0
        assert [(each / ".kafka_cleanshutdown").exists() for each in (self.failing, self.sound)] == [False, True]


def test_a_disk_that_takes_no_write_is_offline_from_the_first_fsync_on(disk: MountedDisk, tmp_path: Path) -> None:
    world = World(disk, tmp_path)
    with world.server:
        world.create_topic()
        assert [world.produce(each, b"durable") for each in (world.bad, world.good)] == [None, None]
        disk.fail_writes()
        refused = world.produce(world.bad, b"lost")
        assert refused is not None
        assert refused.code() in (KafkaError.KAFKA_STORAGE_ERROR, KafkaError._MSG_TIMED_OUT)
        world.assert_offline(f"flush of orders-{world.bad}")
        world.assert_stops_with_one_directory_unclean()
        world.server.start()
        assert world.produce(world.good, b"the other directory is served after a start, too") is None
        assert world.first_value(world.good) == b"durable"


def test_a_disk_that_cannot_be_read_is_offline_from_the_first_fetch_on(disk: MountedDisk, tmp_path: Path) -> None:
    world = World(disk, tmp_path)
    with world.server:
        world.create_topic()
        value = os.urandom(900_000)
        for _ in range(10):
            assert [world.produce(each, value) for each in (world.bad, world.good)] == [None, None]
        assert world.first_value(world.bad) == value
        disk.forget(world.failing / f"orders-{world.bad}" / f"{0:020d}.log")
        disk.fail_reads()
        assert world.first_value(world.bad) is None
        world.assert_offline(f"reading orders-{world.bad}")
        assert world.first_value(world.good) == value
        world.assert_stops_with_one_directory_unclean()
