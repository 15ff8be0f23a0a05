"""The offset checkpoints of all log directories: collected on the loop's thread, written by a worker.

    for writes in checkpoints.recovery_points():    # [] after each step but the last
        for write in writes: write.run()            # in the pool

A future log's offsets are in the checkpoints of its own directory, under the partition's name.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, TypeAlias

from kafkapy.errors import StorageError
from kafkapy.named_tuple import NamedTuple
from kafkapy.storage import checkpoint
from kafkapy.storage.log.log import Log
from kafkapy.storage.manager.log_directories import LogDirectories
from kafkapy.storage.manager.log_directory import LogDirectory
from kafkapy.storage.manager.log_table import LogTable, Removals
from kafkapy.types import TopicPartition

Offsets: TypeAlias = dict[TopicPartition, int]
LOGS_PER_STEP: Final = 2_000
"""Among 20,000 logs, most of whose objects have left the CPU's caches, one takes 1 to 1.5 us."""


class CheckpointWrite(NamedTuple):
    """A checkpoint file to write. A worker calls `run`, which syncs. Raises as LogDirectory.write_offsets."""

    directory: LogDirectory
    name: str
    offsets: Mapping[TopicPartition, int]
    sequence: int

    def run(self) -> None:
        self.directory.write_offsets(self.name, self.offsets, sequence=self.sequence)


CheckpointSteps: TypeAlias = Iterator[list[CheckpointWrite]]
"""Each next() is a step: [] while offsets are collected, at last the checkpoints to write."""


class LogCheckpoints:
    """Collects and writes offset checkpoints of the logs in some tables: those in service, and the future logs."""

    def __init__(
        self, directories: LogDirectories, tables: Sequence[LogTable], *, logs_per_step: int = LOGS_PER_STEP
    ) -> None:
        self._directories = directories
        self._tables = tables
        self._logs_per_step = logs_per_step
        self._sequence = 0

    def recovery_points(self) -> CheckpointSteps:
        """Collect the recovery-point-offset-checkpoint of each online directory."""
        return self._steps(
            checkpoint.RECOVERY_POINT_FILE, lambda logs: {log.topic_partition: log.recovery_point for log in logs}
        )

    def log_start_offsets(self) -> CheckpointSteps:
        """Collect the log-start-offset-checkpoints; they list only logs that start inside a segment."""
        return self._steps(checkpoint.LOG_START_OFFSET_FILE, _log_start_offsets_to_keep)

    def high_watermarks(self) -> CheckpointSteps:
        """Collect the replication-offset-checkpoints."""
        return self._steps(
            checkpoint.HIGH_WATERMARK_FILE, lambda logs: {log.topic_partition: log.high_watermark for log in logs}
        )

    def cleaner_offsets(self) -> CheckpointSteps:
        """Collect the cleaner-offset-checkpoints: the offset below which a compacted log is clean."""
        return self._steps(checkpoint.CLEANER_OFFSET_FILE, _clean_offsets)

    def all_at_the_end(self) -> CheckpointSteps:
        """Collect the checkpoints that a clean stop writes."""
        yield from self.recovery_points()
        yield from self.log_start_offsets()
        yield from self.high_watermarks()

    def forget_deleted(self, topic_partition: TopicPartition, directory: LogDirectory) -> None:
        """Write the checkpoints that have offsets of a log that is gone, before another of its name is created.

        Raises as write_now. Deviation: Apache Kafka writes them at each deletion. Here that is done only if the name
        comes back before the next write, because each write waits for the disk.
        """
        for name in directory.checkpoints_with(topic_partition):
            self.write_now(self._collect(name), (directory.path,))

    def _collect(self, name: str) -> CheckpointSteps:
        """Collect the checkpoint of a name."""
        collect = {
            checkpoint.RECOVERY_POINT_FILE: self.recovery_points,
            checkpoint.LOG_START_OFFSET_FILE: self.log_start_offsets,
            checkpoint.HIGH_WATERMARK_FILE: self.high_watermarks,
            checkpoint.CLEANER_OFFSET_FILE: self.cleaner_offsets,
        }
        return collect[name]()

    def lower_recovery_points(self, offsets: Mapping[Log, int]) -> None:
        """Write the recovery points of the directories in which a log will be truncated below its recovery point.

        That is the one on disk, too: an earlier attempt may have lowered the log's alone. Raises as write_now.
        """
        paths = set()
        for log, offset in offsets.items():
            directory = self._directories.at(log.log_dir.path)
            assert directory is not None, f"{log} lies in none of log.dirs"
            on_disk = directory.offset_on_disk(checkpoint.RECOVERY_POINT_FILE, log.topic_partition)
            if offset < max(log.recovery_point, on_disk):
                log.lower_recovery_point(offset)
                paths.add(log.log_dir.path)
        if paths:
            self.write_now(self.recovery_points(), paths)

    def write_now(self, steps: CheckpointSteps, paths: Collection[str] | None = None) -> None:
        """Write checkpoints on this thread, of all directories or of these. Blocks.

        Raises ApiError; StorageError, with the directory offline.
        """
        for write in chain.from_iterable(steps):
            if paths is not None and write.directory.path not in paths:
                write.directory.on_not_written(write.name, sequence=write.sequence)
                continue
            try:
                write.run()
            except StorageError as error:
                write.directory.state.go_offline(error.message)
                raise

    def _steps(self, name: str, offsets_of: Callable[[list[Log]], Offsets]) -> CheckpointSteps:
        """Collect offsets, LOGS_PER_STEP logs a step. `offsets_of(logs)` is one comprehension: calls would cost more.

        A log that is deleted and made again meanwhile must not get its old offset: those that left the service are
        dropped at the end. A recovery point that is lowered meanwhile is written at once, with a later sequence.
        """
        self._sequence += 1
        sequence, removals = self._sequence, Removals()
        for table in self._tables:
            table.watch(removals)
        try:
            logs = list(chain.from_iterable(table.values() for table in self._tables))
            offsets: dict[str, Offsets] = {directory.path: {} for directory in self._directories}
            for start in range(0, len(logs), self._logs_per_step):
                if start:
                    yield []
                for path, collected in _by_path(offsets, logs[start : start + self._logs_per_step]).items():
                    offsets[path].update(offsets_of(collected))
        finally:
            for table in self._tables:
                table.unwatch(removals)
        self._drop_removed(offsets, removals)
        writable = [directory for directory in self._directories.live if directory.is_loaded]
        for directory in writable:
            directory.on_collected(name, offsets[directory.path], sequence=sequence)
        yield [CheckpointWrite(directory, name, offsets[directory.path], sequence) for directory in writable]

    def _drop_removed(self, offsets: dict[str, Offsets], removals: Removals) -> None:
        """Drop the offsets of logs that are not in service any more; a replica that was moved is, in its new place.

        Only what was removed is looked at: to compare 100,000 logs with those there were took 30 to 60 ms.
        """
        for log in removals.logs:
            if not any(table.get(log.topic_partition) is log for table in self._tables):
                offsets[log.log_dir.path].pop(log.topic_partition, None)


def _by_path(paths: Collection[str], logs: list[Log]) -> dict[str, list[Log]]:
    """Return the logs by the path of their directory, which is one of `paths`."""
    if len(paths) == 1:  # as nearly always: the grouping would take longer than the offsets
        return dict.fromkeys(paths, logs)
    by_path: dict[str, list[Log]] = {}
    for log in logs:
        by_path.setdefault(log.log_dir.path, []).append(log)
    return by_path


def _log_start_offsets_to_keep(logs: list[Log]) -> Offsets:
    """Return the log start offsets to checkpoint: not those of logs that start at their first segment's base offset."""
    return {
        log.topic_partition: log.log_start_offset
        for log in logs
        if log.log_start_offset > log.segments.first.base_offset
    }


def _clean_offsets(logs: list[Log]) -> Offsets:
    return {log.topic_partition: log.clean_to for log in logs if log.clean_to is not None}
