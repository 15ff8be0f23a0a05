"""All logs of a broker: loading at start, creating, deleting, checkpoints, retention, the clean stop.

Life: `lock` -> (identity checks by the server) -> `load_logs` once the metadata tells the topics' configs -> service,
with a driver that calls `flush_due`, `checkpoints`, `cleanup_steps` and `delete_due` in their periods -> `close`.

The partition `__cluster_metadata-0` is the quorum's, which opens it itself. A directory whose name is no partition's is
left alone with a warning, where Apache Kafka refuses to start (lost+found of a file system's root is such a one).
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkapy.config.log import LogConfig
from kafkapy.errors import ApiError, StorageError
from kafkapy.seams import Disk, Random
from kafkapy.storage import checkpoint
from kafkapy.storage.errors import KAFKA_STORAGE_ERROR
from kafkapy.storage.file_names import (
    DELETE_DIRECTORY_SUFFIX,
    STRAY_DIRECTORY_SUFFIX,
    marked_directory,
    parse_partition_directory,
)
from kafkapy.storage.flush import Flush
from kafkapy.storage.log import Log
from kafkapy.storage.log_dir import LogDirState
from kafkapy.storage.log_directory import LogDirectory
from kafkapy.storage.open_files import OpenFiles
from kafkapy.storage.producer_state import ProducerState
from kafkapy.types import METADATA_PARTITION, TopicPartition, Uuid

logger = logging.getLogger("kafkapy.storage")


@dataclass(slots=True)
class LogDirFacts:
    """What DescribeLogDirs tells of a directory. error_code: KAFKA_STORAGE_ERROR where it is offline, else 0."""

    path: str
    error_code: int = 0
    total_bytes: int = -1
    usable_bytes: int = -1
    log_sizes: dict[TopicPartition, int] = field(default_factory=dict)


class CheckpointWrite(NamedTuple):
    """A checkpoint file to be written. `run` syncs: for a worker. Raises as LogDirectory.write_offsets."""

    directory: LogDirectory
    name: str
    offsets: Mapping[TopicPartition, int]

    def run(self) -> None:
        self.directory.write_offsets(self.name, self.offsets)


class _DoomedLog(NamedTuple):
    """A directory that waits for its deletion. log: None where it was found so at the start, and never opened."""

    log_dir: LogDirState
    path: str
    log: Log | None
    due_ms: int


class LogManager:
    """See the module. One event-loop thread; `run` of what it hands out is for workers."""

    def __init__(
        self,
        disk: Disk,
        log_dirs: Sequence[str],
        default_config: LogConfig,
        *,
        random: Random,
        files: OpenFiles | None = None,
        producer_id_expiration_ms: int = 86400000,
        is_verification_enabled: bool = True,
        on_directory_offline: Callable[[str], None] | None = None,
    ) -> None:
        """on_directory_offline(path) is called when a directory fails, with its logs already out of `logs`."""
        self.default_config = default_config
        self.logs: dict[TopicPartition, Log] = {}
        self.offline_logs: dict[TopicPartition, Log] = {}
        self.files = files if files is not None else OpenFiles(disk)
        self.directories = [LogDirectory(disk, path, LogDirState(path, self._on_offline)) for path in log_dirs]
        self._by_path = {directory.path: directory for directory in self.directories}
        self._disk = disk
        self._random = random
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._is_verification_enabled = is_verification_enabled
        self._on_directory_offline = on_directory_offline
        self._doomed: list[_DoomedLog] = []

    # Directories

    def lock(self) -> None:
        """Take all directories and read their identities.

        Raises StorageError where one cannot be taken, CheckpointError where its meta.properties is damaged.
        """
        try:
            for directory in self.directories:
                directory.lock()
                directory.read_meta()
        except BaseException:
            self.unlock()
            raise

    def unlock(self) -> None:
        for directory in self.directories:
            directory.unlock()

    @property
    def live_directories(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if not directory.state.is_offline]

    @property
    def offline_paths(self) -> list[str]:
        return [directory.path for directory in self.directories if directory.state.is_offline]

    def directory_of(self, log: Log) -> LogDirectory:
        return self._by_path[log.log_dir.path]

    def last_broker_epoch(self) -> int:
        """Return the broker epoch of the last clean stop where all directories agree on it, else -1."""
        epochs = {directory.last_broker_epoch() for directory in self.directories}
        epoch = epochs.pop() if len(epochs) == 1 else None
        return epoch if epoch is not None else -1

    def take_clean_shutdown(self, path: str) -> bool:
        """Return whether the last stop was clean in the directory `path`, and forget it in all of them.

        The quorum writes to its directory before the logs are loaded, so it is taken before that. Raises StorageError.
        """
        try:
            taken = {directory.path: directory.take_clean_shutdown() for directory in self.live_directories}
        except OSError as error:
            raise StorageError(path, f"reading the clean-shutdown file: {error}") from error
        return taken.get(path, False)

    def _on_offline(self, state: LogDirState) -> None:
        """Take the logs of a failed directory out of service; their files stay open, calls may be at work in them."""
        failed = {partition: log for partition, log in self.logs.items() if log.log_dir is state}
        for partition in failed:
            del self.logs[partition]
        self.offline_logs.update(failed)
        if self._on_directory_offline is not None:
            self._on_directory_offline(state.path)

    # Loading

    def load_logs(
        self,
        now_ms: int,
        *,
        config_for: Callable[[str], LogConfig] | None = None,
        is_stray: Callable[[Log], bool] | None = None,
        on_progress: Callable[[str, int, int], None] | None = None,
    ) -> None:
        """Load every partition directory. Blocks, for long after an unclean stop.

        config_for(topic): its configuration; is_stray(log): whether the metadata no longer places it here, so that it
        is moved aside; on_progress(log directory, logs loaded, logs there). A directory that fails goes offline.
        """
        for directory in self.live_directories:
            try:
                self._load_directory(directory, now_ms, config_for, is_stray, on_progress)
                directory.is_loaded = True
            except (OSError, StorageError, ApiError) as error:
                directory.state.go_offline(f"loading: {error}")

    def _load_directory(
        self,
        directory: LogDirectory,
        now_ms: int,
        config_for: Callable[[str], LogConfig] | None,
        is_stray: Callable[[Log], bool] | None,
        on_progress: Callable[[str, int, int], None] | None,
    ) -> None:
        names = self._partition_directories(directory)
        is_clean = directory.take_clean_shutdown()
        recovery_points = directory.read_offsets(checkpoint.RECOVERY_POINT_FILE)
        start_offsets = directory.read_offsets(checkpoint.LOG_START_OFFSET_FILE)
        if is_clean:
            logger.info(
                "Skipping recovery of %d logs from %s since clean shutdown file was found", len(names), directory.path
            )
        else:
            logger.info("Recovering %d logs from %s since no clean shutdown file was found", len(names), directory.path)
        for done, (name, partition, marker) in enumerate(names, 1):
            if marker == DELETE_DIRECTORY_SUFFIX:
                self._doom(directory, name, now_ms)
                continue
            config = config_for(partition.topic) if config_for is not None else self.default_config
            log = Log.open(
                self._disk,
                directory.file(name),
                partition,
                config,
                now_ms=now_ms,
                log_start_offset=start_offsets.get(partition, 0),
                recovery_point=recovery_points.get(partition, 0),
                was_clean_shutdown=is_clean,
                files=self.files,
                log_dir=directory.state,
                new_producer_state=self._new_producer_state,
                on_progress=self._log_recovery,
                jitter=self._jitter,
            )
            self._take_loaded(log, is_stray)
            if on_progress is not None:
                on_progress(directory.path, done, len(names))

    def _partition_directories(self, directory: LogDirectory) -> list[tuple[str, TopicPartition, str]]:
        """Return (name, partition, marker) of what is to be loaded."""
        found = []
        for name in self._disk.list_directory(directory.path):
            if not self._disk.is_directory(directory.file(name)):
                continue
            parsed = parse_partition_directory(name)
            if parsed is None:
                logger.warning("Leaving %s in %s alone: it is no partition's directory", name, directory.path)
            elif parsed[1] in ("", DELETE_DIRECTORY_SUFFIX) and parsed[0] != METADATA_PARTITION:
                found.append((name, *parsed))
        return found

    def _doom(self, directory: LogDirectory, name: str, now_ms: int) -> None:
        """Go on with a deletion that the last run began. What is in there was not made durable, so it is not read."""
        due_ms = now_ms + self.default_config.file_delete_delay_ms
        self._doomed.append(_DoomedLog(directory.state, directory.file(name), None, due_ms))

    def _take_loaded(self, log: Log, is_stray: Callable[[Log], bool] | None) -> None:
        partition = log.topic_partition
        if is_stray is not None and is_stray(log):
            self._move_aside(log, STRAY_DIRECTORY_SUFFIX)
            logger.warning("Log for partition %s is marked as stray and renamed to %s", partition, log.directory)
        elif partition in self.logs:
            other = self.logs[partition].directory
            raise StorageError(
                log.log_dir.path, f"{partition} is in {other} and in {log.directory}: one of them must be moved away"
            )
        else:
            self.logs[partition] = log

    def _log_recovery(self, partition: TopicPartition, done: int, total: int) -> None:
        logger.info("Recovering %s: %d of %d unflushed segments read", partition, done, total)

    def _new_producer_state(self) -> ProducerState:
        return ProducerState(
            producer_id_expiration_ms=self._producer_id_expiration_ms,
            is_verification_enabled=self._is_verification_enabled,
        )

    def _jitter(self, limit: int) -> int:
        return self._random.randrange(0, limit)

    # Logs

    def get_log(self, topic_partition: TopicPartition) -> Log | None:
        return self.logs.get(topic_partition)

    def get_or_create_log(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid | None,
        config: LogConfig,
        now_ms: int,
        *,
        directory_id: Uuid | None = None,
        is_new: bool = False,
    ) -> Log:
        """Return the partition's log, made where it is missing: in the directory asked for, or the emptiest.

        is_new: the partition cannot have had a log here before. Raises ApiError INCONSISTENT_TOPIC_ID where the log
        there belongs to another topic of that name; StorageError; ApiError KAFKA_STORAGE_ERROR where no directory is
        online, or the log may be in one that is not: an empty one beside it would hide what it holds.
        """
        log = self.logs.get(topic_partition)
        if log is not None:
            if topic_id is not None:
                log.assign_topic_id(topic_id)
            return log
        may_be_offline = topic_partition in self.offline_logs or (self.offline_paths and not is_new)
        if may_be_offline or not self.live_directories:
            raise ApiError(KAFKA_STORAGE_ERROR, f"the log directory of {topic_partition} is offline")
        directory = self._directory_for_new_log(directory_id)
        log = Log.open(
            self._disk,
            directory.file(str(topic_partition)),
            topic_partition,
            config,
            now_ms=now_ms,
            topic_id=topic_id,
            files=self.files,
            log_dir=directory.state,
            new_producer_state=self._new_producer_state,
            jitter=self._jitter,
        )
        self.logs[topic_partition] = log
        logger.info("Created log for partition %s in %s", topic_partition, log.directory)
        return log

    def _directory_for_new_log(self, directory_id: Uuid | None) -> LogDirectory:
        live = self.live_directories
        if directory_id is not None:
            for directory in live:
                if directory.directory_id == directory_id:
                    return directory
        counts = dict.fromkeys((directory.path for directory in live), 0)
        for log in self.logs.values():
            counts[log.log_dir.path] += 1
        return min(live, key=lambda directory: counts[directory.path])

    def delete_log(self, topic_partition: TopicPartition, now_ms: int) -> bool:
        """Take a log out of service and rename its directory to -delete; return whether there was one.

        The files go after file.delete.delay.ms, by `delete_due`. Raises StorageError.
        """
        log = self.logs.pop(topic_partition, None)
        if log is None:
            return False
        delay_ms = log.config.file_delete_delay_ms
        self._move_aside(log, DELETE_DIRECTORY_SUFFIX)
        self._doomed.append(_DoomedLog(log.log_dir, log.directory, log, now_ms + delay_ms))
        logger.info(
            "Log for partition %s is renamed to %s and is scheduled for deletion", topic_partition, log.directory
        )
        return True

    def _move_aside(self, log: Log, marker: str) -> None:
        log.rename_directory(f"{log.log_dir.path}/{marked_directory(log.topic_partition, self._random.uuid(), marker)}")

    def delete_due(self, now_ms: int) -> int | None:
        """Delete the directories whose delay has passed; return when the next is due, None where none waits."""
        waiting = []
        for doomed in self._doomed:
            if doomed.due_ms > now_ms:
                waiting.append(doomed)
            elif not doomed.log_dir.is_offline:
                self._delete(doomed)
        self._doomed = waiting
        return min((doomed.due_ms for doomed in waiting), default=None)

    def _delete(self, doomed: _DoomedLog) -> None:
        if doomed.log is not None:
            doomed.log.delete()
        else:
            try:
                self._disk.delete_tree(doomed.path)
            except OSError as error:
                raise doomed.log_dir.failure(error, f"deleting {doomed.path}") from error
        logger.info("Deleted the log in %s", doomed.path)

    def truncate_to(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Truncate logs. Their recovery points are lowered on disk first: recovery trusts what lies below. Blocks."""
        self._lower_recovery_points(offsets)
        for partition, offset in offsets.items():
            self.logs[partition].truncate_to(offset)

    def truncate_fully_and_start_at(
        self, topic_partition: TopicPartition, offset: int, log_start_offset: int | None = None
    ) -> None:
        """Empty a log, which goes on at `offset`; its recovery point is lowered first. Blocks."""
        self._lower_recovery_points({topic_partition: 0})
        self.logs[topic_partition].truncate_fully_and_start_at(offset, log_start_offset)

    def _lower_recovery_points(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write the recovery points of the directories concerned, where a log is about to be cut below its own."""
        paths = set()
        for partition, offset in offsets.items():
            log = self.logs[partition]
            if offset < log.recovery_point:
                log.recovery_point = offset
                paths.add(log.log_dir.path)
        for write in self.recovery_point_checkpoints():
            if write.directory.path in paths:
                self._run(write)

    def _run(self, write: CheckpointWrite) -> None:
        try:
            write.run()
        except StorageError as error:
            write.directory.state.go_offline(error.message)
            raise

    # What a driver calls in its periods

    def flush_due(self, now_ms: int) -> Iterator[Flush]:
        """Yield what is due: rolled segments, flush.messages, flush.ms. Run each in the pool, then complete_flush.

        Each is prepared as it is asked for, so other work may run between two.
        """
        for log in list(self.logs.values()):
            end_offset = _flush_end_offset(log, now_ms)
            if end_offset is None or self.logs.get(log.topic_partition) is not log:
                continue
            try:
                yield log.prepare_flush(end_offset)
            except (ApiError, StorageError) as error:
                logger.warning("%s is not flushed: %s", log.topic_partition, error)

    def recovery_point_checkpoints(self) -> list[CheckpointWrite]:
        """Return the recovery-point-offset-checkpoint of each live directory, to be run in the pool."""
        return self._checkpoints(checkpoint.RECOVERY_POINT_FILE, lambda log: log.recovery_point)

    def log_start_offset_checkpoints(self) -> list[CheckpointWrite]:
        """Return the log-start-offset-checkpoints: of logs that start inside a segment."""
        return self._checkpoints(checkpoint.LOG_START_OFFSET_FILE, _log_start_offset_to_keep)

    def high_watermark_checkpoints(self) -> list[CheckpointWrite]:
        """Return the replication-offset-checkpoints."""
        return self._checkpoints(checkpoint.HIGH_WATERMARK_FILE, lambda log: log.high_watermark)

    def cleaner_offset_checkpoints(self) -> list[CheckpointWrite]:
        """Return the cleaner-offset-checkpoints: up to where compacted logs are clean."""
        return self._checkpoints(checkpoint.CLEANER_OFFSET_FILE, lambda log: log.clean_to)

    def read_cleaner_offsets(self) -> None:
        """Tell each log up to where it is clean, as it was last written."""
        for directory in self.live_directories:
            for partition, offset in directory.read_offsets(checkpoint.CLEANER_OFFSET_FILE).items():
                log = self.logs.get(partition)
                if log is not None and log.log_dir is directory.state:
                    log.clean_to = offset

    def checkpoint(self) -> None:
        """Write all checkpoints now. Blocks. Raises StorageError."""
        for write in (
            *self.recovery_point_checkpoints(),
            *self.log_start_offset_checkpoints(),
            *self.high_watermark_checkpoints(),
        ):
            self._run(write)

    def _checkpoints(self, name: str, offset_of: Callable[[Log], int | None]) -> list[CheckpointWrite]:
        offsets: dict[str, dict[TopicPartition, int]] = {directory.path: {} for directory in self.live_directories}
        for partition, log in self.logs.items():
            offset = offset_of(log)
            if offset is not None:
                offsets[log.log_dir.path][partition] = offset
        return [
            CheckpointWrite(directory, name, offsets[directory.path])
            for directory in self.live_directories
            if directory.is_loaded
        ]

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """Return the high watermarks as they were last written, for partitions that are about to be led or followed."""
        found: dict[TopicPartition, int] = {}
        for directory in self.live_directories:
            found.update(directory.read_offsets(checkpoint.HIGH_WATERMARK_FILE))
        return found

    def cleanup_steps(self, now_ms: int) -> Iterator[int]:
        """Apply retention log by log, yielding the segments deleted: run a few steps at a time among other work."""
        for log in list(self.logs.values()):
            if log.is_offline:
                continue
            deleted = log.delete_old_segments(now_ms)
            log.delete_due_files(now_ms)
            log.remove_expired_producers(now_ms)
            yield deleted

    def cleanup(self, now_ms: int) -> int:
        """Apply retention to all logs and delete what is due; return the segments that were taken out."""
        deleted = sum(self.cleanup_steps(now_ms))
        self.delete_due(now_ms)
        return deleted

    # Facts and the end

    def describe_log_dirs(self) -> list[LogDirFacts]:
        """Return what DescribeLogDirs tells, sizes in bytes."""
        facts = {directory.path: LogDirFacts(directory.path) for directory in self.directories}
        for directory in self.directories:
            described = facts[directory.path]
            if directory.state.is_offline:
                described.error_code = KAFKA_STORAGE_ERROR
                continue
            described.total_bytes = self._disk.total_bytes(directory.path)
            described.usable_bytes = self._disk.free_bytes(directory.path)
        for partition, log in self.logs.items():
            facts[log.log_dir.path].log_sizes[partition] = log.size_bytes
        return list(facts.values())

    def close(self, broker_epoch: int = -1) -> None:
        """Stop cleanly: all logs durable and closed, checkpoints, clean-shutdown file, locks released. Blocks.

        A directory that is offline, fails now, or was never loaded gets no clean-shutdown file.
        """
        for directory in self.directories:
            if directory.is_loaded and not directory.state.is_offline:
                try:
                    self._close_directory(directory, broker_epoch)
                except (OSError, StorageError, ApiError) as error:
                    directory.state.go_offline(f"closing: {error}")
        for log in (*self.logs.values(), *self.offline_logs.values()):
            log.close_files()
        for doomed in self._doomed:
            if doomed.log is not None:
                doomed.log.close_files()
        self.unlock()

    def _close_directory(self, directory: LogDirectory, broker_epoch: int) -> None:
        for log in self.logs.values():
            if log.log_dir is directory.state:
                log.close()
        for writes in (
            self.recovery_point_checkpoints(),
            self.log_start_offset_checkpoints(),
            self.high_watermark_checkpoints(),
        ):
            for write in writes:
                if write.directory is directory:
                    write.run()
        directory.write_clean_shutdown(broker_epoch)


def _flush_end_offset(log: Log, now_ms: int) -> int | None:
    """Return up to where a log is to be flushed, None where nothing is due."""
    if log.recovery_point >= log.log_end_offset:
        return None
    is_due = log.log_end_offset - log.recovery_point >= log.config.flush_messages
    if is_due or now_ms - log.last_flush_ms >= log.config.flush_ms:
        return log.log_end_offset
    rolled_offset = log.segments.active.base_offset
    return rolled_offset if log.recovery_point < rolled_offset else None


def _log_start_offset_to_keep(log: Log) -> int | None:
    """A log that starts where its first segment does needs no entry."""
    return log.log_start_offset if log.log_start_offset > log.segments.first.base_offset else None
