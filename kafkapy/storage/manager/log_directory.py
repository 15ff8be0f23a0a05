"""One directory of log.dirs: its lock, identity (meta.properties), clean-shutdown file and checkpoints."""

import logging
import threading
from collections.abc import Generator, Mapping
from typing import Final

from kafkapy.errors import ApiError, StorageError
from kafkapy.seams import DirectoryLock, Disk
from kafkapy.storage import checkpoint
from kafkapy.storage.checkpoint import MetaProperties
from kafkapy.storage.errors import KAFKA_STORAGE_ERROR, CheckpointError
from kafkapy.storage.file_names import parse_partition_directory
from kafkapy.storage.log_dir import SHORTAGES, LogDirState
from kafkapy.types import METADATA_PARTITION, TopicPartition, Uuid

LINES_PER_STEP: Final = 500
"""Entries of a checkpoint read in a step."""

logger = logging.getLogger("kafkapy.storage")


class LogDirectory:
    """A directory that contains partition directories. `state` is shared with its logs."""

    def __init__(self, disk: Disk, path: str, state: LogDirState) -> None:
        self.path = path
        self.state = state
        self.meta: MetaProperties | None = None
        self.was_clean_shutdown = False
        self.is_loaded = False
        self.needs_recovery = False
        """Whether something in it could not be closed cleanly: then no clean-shutdown file is written."""
        self._clean_shutdown: bytes | None = None
        """Content of the last stop's clean-shutdown file, set by pop_clean_shutdown."""
        self._disk = disk
        self._names: list[tuple[str, bool]] | None = None
        """What `names` has found, until the logs are planned."""
        self._lock: DirectoryLock | None = None
        self._written: dict[str, bytes] = {}
        self._durable_recovery_points: Mapping[TopicPartition, int] = {}
        self._offsets: dict[str, dict[int, Mapping[TopicPartition, int]]] = {}
        """What a checkpoint may have on disk, by sequence: what was read (0), or written last, and what may yet be."""
        self._sequences: dict[str, int] = {}
        self._writing = threading.Lock()
        """Held while a checkpoint is written: workers and the loop use the same temporary file."""

    @property
    def directory_id(self) -> Uuid | None:
        return self.meta.directory_id if self.meta is not None else None

    def file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def lock(self) -> None:
        """Lock the directory for this process, creating it if missing.

        Raises OSError; StorageError if another process has locked it.
        """
        assert self._lock is None, f"{self.path} is locked by this process"
        if not self._disk.exists(self.path):
            logger.info("Log directory %s not found, creating it.", self.path)
            self._disk.make_directory(self.path)
            self._disk.sync_directory(self.path.rpartition("/")[0] or "/")
        elif not self._disk.is_directory(self.path):
            raise StorageError(self.path, f"{self.path} is a file, not a directory")
        self._lock = self._disk.lock_directory(self.path)
        if self._lock is None:
            used = "A Kafka instance in another process or thread is using this directory."
            raise StorageError(self.path, f"Failed to acquire lock on file .lock in {self.path}. {used}")

    def unlock(self) -> None:
        """Release the lock; a second call does nothing."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def read_meta(self) -> MetaProperties | None:
        """Return the content of meta.properties, None if it is missing. Raises CheckpointError, OSError."""
        path = self.file(checkpoint.META_PROPERTIES_FILE)
        if self._disk.exists(path):
            self.meta = checkpoint.decode_meta_properties(self._disk.read_file(path), path)
        return self.meta

    def write_meta(self, meta: MetaProperties) -> None:
        """Write meta.properties. Raises OSError."""
        self._disk.write_file_atomically(self.file(checkpoint.META_PROPERTIES_FILE), meta.encode())
        self.meta = meta

    def last_broker_epoch(self) -> int | None:
        """Return the broker epoch of the last clean stop; None if there was none, or it is unknown.

        Also None if a log was lost since, so that the controller does not count on it. Raises OSError.
        """
        path = self.file(checkpoint.CLEAN_SHUTDOWN_FILE)
        if not self._disk.exists(path) or self.damaged_names():
            return None
        return checkpoint.decode_clean_shutdown(self._disk.read_file(path))

    def names(self) -> list[tuple[str, bool]]:
        """Return the names in it, each with whether it is a directory, as they were at a start's first call.

        So one look at the directory decides on the broker epoch and on the logs. Raises OSError.
        """
        if self._names is None:
            self._names = self._disk.scan_directory(self.path)
        return self._names

    def forget_names(self) -> None:
        """Make the next call of `names` read the directory again."""
        self._names = None

    def damaged_names(self) -> list[tuple[str, TopicPartition]]:
        """Return the names of partitions that are not directories. Raises OSError."""
        parsed = [(name, parse_partition_directory(name)) for name, is_directory in self.names() if not is_directory]
        return [
            (name, found[0])
            for name, found in parsed
            if found is not None and not found[1] and found[0] != METADATA_PARTITION
        ]

    def pop_clean_shutdown(self) -> bool:
        """Return whether the last stop was clean; delete the clean-shutdown file, as a later crash is not a clean stop.

        Call it before anything is written. Later calls return the same.
        """
        path = self.file(checkpoint.CLEAN_SHUTDOWN_FILE)
        if self._disk.exists(path):
            self.was_clean_shutdown = True
            self._clean_shutdown = self._disk.read_file(path)
            self._disk.delete(path)
            self._disk.sync_directory(self.path)
        return self.was_clean_shutdown

    def give_back_clean_shutdown(self) -> None:
        """Undo pop_clean_shutdown, if nothing was written since. Raises OSError."""
        if self._clean_shutdown is not None:
            self._disk.write_file_atomically(self.file(checkpoint.CLEAN_SHUTDOWN_FILE), self._clean_shutdown)

    def write_clean_shutdown(self, broker_epoch: int) -> None:
        """Write the clean-shutdown file: everything is durable and every index trimmed. Raises OSError."""
        if self.needs_recovery:
            logger.warning("Not marking %s as cleanly shut down; the next start recovers its logs", self.path)
            return
        data = checkpoint.encode_clean_shutdown(broker_epoch)
        self._disk.write_file_atomically(self.file(checkpoint.CLEAN_SHUTDOWN_FILE), data)

    def sync_names(self) -> None:
        """Make the names of the logs' directories durable. Blocks. Raises OSError."""
        self._disk.sync_directory(self.path)

    def read_offsets(self, name: str) -> Generator[None, None, dict[TopicPartition, int]]:
        """Read an offset checkpoint, yielding between steps of a millisecond. Raises OSError.

        A damaged one counts as empty, as in Kafka.
        """
        path = self.file(name)
        offsets: dict[TopicPartition, int] = {}
        try:
            lines = checkpoint.decode_checkpoint(self._disk.read_file(path), path) if self._disk.exists(path) else []
            for first in range(0, len(lines), LINES_PER_STEP):
                offsets |= checkpoint.offsets_of(lines[first : first + LINES_PER_STEP], path)
                yield
        except CheckpointError as error:
            logger.warning("%s; continuing without it", error)
            return {}
        self._offsets.setdefault(name, {0: offsets})
        return offsets

    def on_collected(self, name: str, offsets: Mapping[TopicPartition, int], *, sequence: int) -> None:
        """Record the offsets of a checkpoint that is going to be written."""
        self._offsets.setdefault(name, {})[sequence] = offsets

    def on_not_written(self, name: str, *, sequence: int) -> None:
        """Forget the offsets of a checkpoint that was collected, but will not be written."""
        self._offsets.get(name, {}).pop(sequence, None)

    def offset_on_disk(self, name: str, topic_partition: TopicPartition) -> int:
        """Return the largest offset that a checkpoint may have, or get, on disk for a partition; 0 if it has none."""
        largest = 0
        for offsets in list(self._offsets.get(name, {}).values()):  # a copy at once: a worker may remove some
            largest = max(largest, offsets.get(topic_partition, 0))
        return largest

    def checkpoints_with(self, topic_partition: TopicPartition) -> list[str]:
        """Return the checkpoints that may have, or get, an offset above 0 of a partition on disk."""
        names = []
        # not by offset_on_disk: a call for each name would cost each new log more
        for name, known in list(self._offsets.items()):
            for offsets in list(known.values()):
                if offsets.get(topic_partition, 0) > 0:
                    names.append(name)
                    break
        return names

    def write_offsets(self, name: str, offsets: Mapping[TopicPartition, int], *, sequence: int) -> None:
        """Write an offset checkpoint if it changed. Blocks, as it syncs; safe on a worker.

        sequence: increases with each collected checkpoint. A write that arrives after a later one is skipped: a
        recovery point that was lowered must not rise again.

        Raises StorageError; ApiError KAFKA_STORAGE_ERROR at a shortage (the old file stays).
        """
        assert min(offsets.values(), default=0) >= 0, f"negative offsets in {name} of {self.path}"
        with self._writing:
            if sequence < self._sequences.get(name, 0):
                self.on_not_written(name, sequence=sequence)
                return
            self._sequences[name] = sequence
            try:
                self._write_offsets(name, checkpoint.encode_offsets(offsets))
            except ApiError:  # the file has either offsets
                self._forget_before(sequence, name, self._largest(name, sequence))
                raise
            self._forget_before(sequence, name, offsets)
            if name == checkpoint.RECOVERY_POINT_FILE:
                self._durable_recovery_points = offsets

    def _largest(self, name: str, sequence: int) -> Mapping[TopicPartition, int]:
        """Return the largest offset of each partition in what was collected up to a sequence."""
        largest: dict[TopicPartition, int] = {}
        for offsets in [each for key, each in list(self._offsets.get(name, {}).items()) if key <= sequence]:
            largest |= {partition: max(offset, largest.get(partition, 0)) for partition, offset in offsets.items()}
        return largest

    def _forget_before(self, sequence: int, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Keep `offsets` in the place of all that was collected up to a sequence."""
        known = self._offsets.setdefault(name, {})
        known[sequence] = offsets
        for earlier in [key for key in list(known) if key < sequence]:
            del known[earlier]

    def durable_recovery_point(self, topic_partition: TopicPartition) -> int:
        """Return the recovery point of the last complete write since the start, which a power failure cannot undo."""
        return self._durable_recovery_points.get(topic_partition, 0)

    def _write_offsets(self, name: str, data: bytes) -> None:
        if self._written.get(name) == data:
            return
        try:
            self._disk.write_file_atomically(self.file(name), data)
        except OSError as error:
            self._written.pop(name, None)
            if error.errno in SHORTAGES:
                raise ApiError(KAFKA_STORAGE_ERROR, f"writing {name} in {self.path}: {error}") from error
            raise StorageError(self.path, f"writing {name}: {error}") from error
        self._written[name] = data
