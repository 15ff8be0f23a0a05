"""Partitions whose name in a log directory holds no usable log, as a damaged and repaired file system may leave it.

For example a regular file with the name of a partition, or a partition directory whose .log file is a directory.

Such a partition is offline; the others in its log directory are served. It gets a new, empty log only if the caller
knows that its records are elsewhere: else a leader might serve an empty log in place of acknowledged records. What was
found is then renamed to -stray, for the operator. Nothing is renamed before: the next start must decide alike.

Deviation: Apache Kafka takes the log directory offline, and stops if it is the last one. Here the partition alone is
offline, because the others are in order.
"""

import logging

from kafkapy.errors import ApiError
from kafkapy.named_tuple import NamedTuple
from kafkapy.seams import Disk, Random
from kafkapy.storage.errors import KAFKA_STORAGE_ERROR
from kafkapy.storage.file_names import STRAY_DIRECTORY_SUFFIX, marked_directory
from kafkapy.storage.log_dir import LogDirState
from kafkapy.types import TopicPartition

logger = logging.getLogger("kafkapy.storage")


class _Damaged(NamedTuple):
    log_dir: LogDirState
    path: str
    reason: str


class DamagedLogs:
    """The damaged logs found at the start, by partition. Used on the event loop's thread only."""

    def __init__(self, disk: Disk, random: Random) -> None:
        self._disk = disk
        self._random = random
        self._found: dict[TopicPartition, list[_Damaged]] = {}

    def __contains__(self, topic_partition: object) -> bool:
        return topic_partition in self._found

    def add(self, topic_partition: TopicPartition, log_dir: LogDirState, path: str, reason: str) -> None:
        logger.error(
            "Damaged log in %s: %s. %s is offline unless another broker leads it", path, reason, topic_partition
        )
        self._found.setdefault(topic_partition, []).append(_Damaged(log_dir, path, reason))

    def make_way(self, topic_partition: TopicPartition, *, is_replaceable: bool) -> None:
        """Rename what was found of a partition, so that it can get a new log.

        Raises ApiError KAFKA_STORAGE_ERROR if it is not replaceable, or on a full disk; StorageError.
        """
        found = self._found.get(topic_partition, [])
        if found and not is_replaceable:
            reasons = "; ".join(f"{each.path}: {each.reason}" for each in found)
            advice = "Move it away and restart if the records are to be given up"
            raise ApiError(KAFKA_STORAGE_ERROR, f"not replaced, as it may be the last replica: {reasons}. {advice}")
        while found:
            self._set_aside(topic_partition, found[-1])
            found.pop()
        self._found.pop(topic_partition, None)

    def _set_aside(self, topic_partition: TopicPartition, damaged: _Damaged) -> None:
        name = marked_directory(topic_partition, self._random.uuid(), STRAY_DIRECTORY_SUFFIX)
        path = f"{damaged.log_dir.path}/{name}"
        damaged.log_dir.check_online()
        try:
            self._disk.rename(damaged.path, path)
            self._disk.sync_directory(damaged.log_dir.path)
        except OSError as error:
            raise damaged.log_dir.handle_os_error(error, f"renaming {damaged.path}") from error
        logger.warning("Damaged log of %s is marked as stray and renamed to %s", topic_partition, path)
