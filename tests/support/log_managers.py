"""Log managers for tests: on a simulated disk, loaded or not yet, with logs of two topics."""

from typing import Any

from kafkapy.config.log import LogConfig
from kafkapy.storage.log.flush import flush_log
from kafkapy.storage.log.log import Log
from kafkapy.storage.manager.log_manager import LogManager
from kafkapy.types import TopicPartition
from tests.simulator.disk import SimDisk
from tests.support.chance import SeededRandom
from tests.support.logs import NOW_MS, append, load_logs

CONFIG = LogConfig(segment_bytes=500, segment_index_bytes=4096, retention_ms=-1, file_delete_delay_ms=60_000)
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
TOPIC_A, TOPIC_B = b"\1" * 16, b"\2" * 16


def locked(disk: SimDisk, *directories: str, **options: Any) -> LogManager:
    """Return a manager that is to load its logs yet."""
    manager = LogManager(disk, directories or ("/d",), CONFIG, random=SeededRandom(1), **options)
    manager.directories.lock()
    return manager


def started(disk: SimDisk, *directories: str, **options: Any) -> LogManager:
    manager = locked(disk, *directories, **options)
    load_logs(manager, NOW_MS)
    return manager


def create(manager: LogManager, *partitions: TopicPartition) -> list[Log]:
    return [
        manager.get_or_create_log(partition, TOPIC_A if partition.topic == "a" else TOPIC_B, CONFIG, NOW_MS)
        for partition in partitions
    ]


def flushed_log(manager: LogManager, count: int) -> Log:
    """Make A0, with `count` batches of one record that are durable."""
    [log] = create(manager, A0)
    for _ in range(count):
        append(log, value_bytes=100)
    flush_log(log)
    return log
