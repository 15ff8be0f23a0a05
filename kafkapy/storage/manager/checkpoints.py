"""The offset checkpoints of all log directories: collected on the loop's thread, written by a worker.

A future log's offsets are in the checkpoints of its own directory, under the partition's name.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from kafkapy.errors import StorageError
from kafkapy.named_tuple import NamedTuple
from kafkapy.storage import checkpoint
from kafkapy.storage.log.log import Log
from kafkapy.storage.manager.log_directories import LogDirectories
from kafkapy.storage.manager.log_directory import LogDirectory
from kafkapy.types import TopicPartition

Offsets: TypeAlias = dict[TopicPartition, int]


class CheckpointWrite(NamedTuple):
    """A checkpoint file to write. A worker calls `run`, which syncs. Raises as LogDirectory.write_offsets."""

    directory: LogDirectory
    name: str
    offsets: Mapping[TopicPartition, int]
    sequence: int

    def run(self) -> None:
        self.directory.write_offsets(self.name, self.offsets, sequence=self.sequence)


class LogCheckpoints:
    """Collects, writes and reads offset checkpoints. `all_logs()` returns the logs in service and the future logs."""

    def __init__(self, directories: LogDirectories, all_logs: Callable[[], list[Log]]) -> None:
        self._directories = directories
        self._all_logs = all_logs
        self._sequence = 0

    def recovery_points(self) -> list[CheckpointWrite]:
        """Return the recovery-point-offset-checkpoint of each online directory, to run in the pool."""
        return self._writes(
            checkpoint.RECOVERY_POINT_FILE, lambda logs: {log.topic_partition: log.recovery_point for log in logs}
        )

    def log_start_offsets(self) -> list[CheckpointWrite]:
        """Return the log-start-offset-checkpoints; they list only logs that start inside a segment."""
        return self._writes(checkpoint.LOG_START_OFFSET_FILE, _log_start_offsets_to_keep)

    def high_watermarks(self) -> list[CheckpointWrite]:
        """Return the replication-offset-checkpoints."""
        return self._writes(
            checkpoint.HIGH_WATERMARK_FILE, lambda logs: {log.topic_partition: log.high_watermark for log in logs}
        )

    def cleaner_offsets(self) -> list[CheckpointWrite]:
        """Return the cleaner-offset-checkpoints: the offset below which a compacted log is clean."""
        return self._writes(checkpoint.CLEANER_OFFSET_FILE, _clean_offsets)

    def all_at_the_end(self) -> Iterator[CheckpointWrite]:
        """Yield the checkpoints that a clean stop writes."""
        yield from self.recovery_points()
        yield from self.log_start_offsets()
        yield from self.high_watermarks()

    def write_now(self, writes: Iterable[CheckpointWrite]) -> None:
        """Write checkpoints on this thread. Blocks. Raises ApiError; StorageError, with the directory offline."""
        for write in writes:
            try:
                write.run()
            except StorageError as error:
                write.directory.state.go_offline(error.message)
                raise

    def _writes(self, name: str, offsets_of: Callable[[list[Log]], Offsets]) -> list[CheckpointWrite]:
        """Collect offsets in one step: a log that is deleted and made anew meanwhile must not get its old offset.

        `offsets_of(logs)` is one comprehension: 100,000 logs take 20 ms, with a call for each they took 80.
        """
        self._sequence += 1
        logs = self._all_logs()
        by_path: dict[str, list[Log]] = {directory.path: [] for directory in self._directories}
        if len(by_path) == 1:
            by_path = dict.fromkeys(by_path, logs)
        else:
            for log in logs:
                by_path[log.log_dir.path].append(log)
        return [
            CheckpointWrite(directory, name, offsets_of(by_path[directory.path]), self._sequence)
            for directory in self._directories.live
            if directory.is_loaded
        ]

    def read_high_watermarks(self) -> dict[str, dict[TopicPartition, int]]:
        """Return the checkpointed high watermarks, by directory path, for partitions about to be served."""
        return {each.path: self._read(each, checkpoint.HIGH_WATERMARK_FILE) for each in self._directories.live}

    def read_cleaner_offsets(self) -> None:
        """Set each log's clean offset from the cleaner-offset-checkpoints."""
        logs = {(log.log_dir.path, log.topic_partition): log for log in self._all_logs()}
        for directory in self._directories.live:
            for partition, offset in self._read(directory, checkpoint.CLEANER_OFFSET_FILE).items():
                log = logs.get((directory.path, partition))
                if log is not None:
                    log.on_cleaned(offset)

    def _read(self, directory: LogDirectory, name: str) -> dict[TopicPartition, int]:
        """Read a checkpoint; if that fails, the directory goes offline."""
        try:
            return directory.read_offsets(name)
        except OSError as error:
            directory.state.go_offline(f"Error while reading {directory.file(name)}: {error}")
            return {}


def _log_start_offsets_to_keep(logs: list[Log]) -> Offsets:
    """Return the log start offsets to checkpoint: not those of logs that start at their first segment's base offset."""
    return {
        log.topic_partition: log.log_start_offset
        for log in logs
        if log.log_start_offset > log.segments.first.base_offset
    }


def _clean_offsets(logs: list[Log]) -> Offsets:
    return {log.topic_partition: log.clean_to for log in logs if log.clean_to is not None}
