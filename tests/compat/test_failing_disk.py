"""A broker process whose disk really fails: fsync over a loop device that finds no room behind it.

The kernel gives it as EIO or, newer ones, as ENOSPC. What it could not write is gone from the page cache's books either
way, while free blocks are left in the file system, so this is no disk that is full but one that has failed.
"""

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.servers import Kafkapy

pytestmark = pytest.mark.ours  # Apache Kafka's answers while a directory fails come at other moments

BLOCK_BYTES = 1 << 16


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 60 MiB on a device with 24 MiB behind it, which are free until `filler` beside it is written."""
    backing, point = tmp_path / "backing", tmp_path / "disk"
    image = backing / "image"
    with contextlib.ExitStack() as undo:
        for path in (backing, point):
            path.mkdir()
        _mount(undo, backing, "-t", "tmpfs", "-o", "size=24m", "tmpfs")
        image.touch()
        os.truncate(image, 60 << 20)
        made = subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", str(image)], capture_output=True)
        if made.returncode:
            pytest.skip("there is no mkfs.ext4 here")
        _mount(undo, point, "-o", "loop", str(image))
        yield point


def _mount(undo: contextlib.ExitStack, point: Path, *arguments: str) -> None:
    if subprocess.run(["mount", *arguments, str(point)], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    undo.callback(subprocess.run, ["umount", "--lazy", str(point)], check=True)


def take_all_room(path: Path) -> None:
    with path.open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while filler.write(bytes(BLOCK_BYTES)):
            pass


def produce(bootstrap: str, partition: int, value: bytes) -> KafkaError | None:
    """Produce one record; return how that failed, None where it is durable."""
    errors: list[KafkaError | None] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        errors.append(error)

    settings = {"bootstrap.servers": bootstrap, "message.timeout.ms": 3000, "retries": 0, "log_level": 0}
    producer = Producer(settings)
    producer.produce("orders", value, partition=partition, on_delivery=on_delivery)
    producer.flush(10)
    return errors[0]


def test_a_disk_that_fails_is_offline_until_the_next_start(disk: Path, tmp_path: Path) -> None:
    failing, sound = disk / "logs", tmp_path / "sound"
    properties = {"log.dirs": f"{failing},{sound}", "metadata.log.dir": str(tmp_path / "metadata")}
    with Kafkapy(tmp_path / "broker", {**properties, "log.flush.interval.messages": "1"}) as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(30)
        bad, good = (next(int(path.name[-1]) for path in each.glob("orders-*")) for each in (failing, sound))
        assert [produce(server.bootstrap, each, b"durable") for each in (bad, good)] == [None, None]
        take_all_room(tmp_path / "backing" / "filler")
        refused = next(filter(None, (produce(server.bootstrap, bad, os.urandom(900_000)) for _ in range(20))))
        assert refused.code() in (KafkaError.KAFKA_STORAGE_ERROR, KafkaError._MSG_TIMED_OUT)
        log = Path(f"{tmp_path}/broker.log").read_text()
        assert re.search(rf"Stopping serving logs in dir {failing}: flush of orders-{bad}: \[Errno (5|28)\]", log), log
        (tmp_path / "backing" / "filler").unlink()
        assert produce(server.bootstrap, bad, b"not before a start") is not None
        assert produce(server.bootstrap, good, b"as before") is None
        assert server.stop(signal.SIGTERM) == 0
        assert [(each / ".kafka_cleanshutdown").exists() for each in (failing, sound)] == [False, True]
        server.start()
        assert [produce(server.bootstrap, each, b"again") for each in (bad, good)] == [None, None]
