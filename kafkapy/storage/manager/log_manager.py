"""All logs of a broker: creation, moves between directories, deletion, flushing, retention, clean stop.

Life cycle: `directories.lock` -> (identity checks by the server) -> LogLoading, when the topics' configs are known from
the metadata -> service: a driver periodically calls `flush_due`, `checkpoints`, `cleanup_steps`, `due_syncs` and
`due_log_deletions` -> `close`.

A replica being moved has two logs: `logs` holds the one in service, `future_logs` its copy in another directory, named
topic-N.<uuid>-future, until `replace_by_future_log`. The quorum opens `__cluster_metadata-0` itself. A directory that
does not have a partition's name (lost+found, for example) is ignored with a warning; Apache Kafka refuses to start.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final

from kafkapy.config.log import LogConfig
from kafkapy.dataclass import dataclass
from kafkapy.errors import ApiError, StorageError
from kafkapy.named_tuple import NamedTuple
from kafkapy.seams import Disk, Random, failpoint
from kafkapy.storage.errors import KAFKA_STORAGE_ERROR
from kafkapy.storage.file_names import FUTURE_DIRECTORY_SUFFIX, marked_directory
from kafkapy.storage.log.flush import Flush, prepare_due_flush
from kafkapy.storage.log.local_log import SharedByLogs
from kafkapy.storage.log.log import Log
from kafkapy.storage.log.maintenance import delete_old_segments
from kafkapy.storage.log.opening import assign_topic_id, open_log, remove_unfinished
from kafkapy.storage.log.pending_files import FileDeletion
from kafkapy.storage.log.truncation import truncate_fully_and_start_at, truncate_to
from kafkapy.storage.log_dir import LogDirState
from kafkapy.storage.manager.checkpoints import LogCheckpoints
from kafkapy.storage.manager.closing import closing_steps
from kafkapy.storage.manager.damaged_logs import DamagedLogs
from kafkapy.storage.manager.log_directories import LogDirectories
from kafkapy.storage.manager.log_directory import LogDirectory
from kafkapy.storage.manager.log_table import LogTable, selected
from kafkapy.storage.manager.pending_logs import Deletion, DirectorySync, PendingLogDeletions
from kafkapy.storage.producers.producer_counts import MAX_GRANTED, ProducerCounts
from kafkapy.storage.producers.state import ProducerState
from kafkapy.storage.recovery.loader import NEW_LOG, LastStop
from kafkapy.storage.segment.open_files import OpenFiles
from kafkapy.types import TopicPartition, Uuid

LOGS_PER_SLICE: Final = 1_000
"""Logs looked at in one step: half a millisecond. 100,000 in one would hold the loop for 50."""
DEFAULT_PRODUCER_ID_EXPIRATION_MS: Final = 86_400_000

logger = logging.getLogger("kafkapy.storage")


@dataclass(slots=True)
class LogDirFacts:
    """The facts of a directory for DescribeLogDirs. error_code: KAFKA_STORAGE_ERROR if it is offline, else 0."""

    path: str
    error_code: int = 0
    total_bytes: int = -1
    usable_bytes: int = -1
    is_cordoned: bool = False
    logs: list[Log] = field(default_factory=list)
    future_logs: list[Log] = field(default_factory=list)


class DirectoryWatcher(NamedTuple):
    """Called when a log directory fails (after its logs have left `logs`), is full, or has room again."""

    on_failed: Callable[[str], None]
    on_full: Callable[[LogDirState], None] | None = None
    on_room: Callable[[LogDirState], None] | None = None


class LogManager:
    """Owns the logs of all partitions on this broker, and their directories.

    Used on the event loop's thread only; workers call `run` of the returned objects.
    """

    def __init__(
        self,
        disk: Disk,
        log_dirs: Sequence[str],
        default_config: LogConfig,
        *,
        random: Random,
        metadata_path: str | None = None,
        files: OpenFiles | None = None,
        watcher: DirectoryWatcher | None = None,
    ) -> None:
        self.disk = disk
        self.default_config = default_config
        self.logs = LogTable()
        self.future_logs = LogTable()
        self.offline_logs: dict[TopicPartition, Log] = {}
        self.files = files if files is not None else OpenFiles(disk)
        self.directories = LogDirectories(
            disk,
            log_dirs,
            random=random,
            metadata_path=metadata_path,
            on_directory_failed=self._directory_failed,
            on_full=None if watcher is None else watcher.on_full,
            on_room=None if watcher is None else watcher.on_room,
        )
        self.checkpoints = LogCheckpoints(self.directories, (self.logs, self.future_logs))
        self.pending_log_deletions = PendingLogDeletions(disk, random)
        self.damaged_logs = DamagedLogs(disk, random)
        self.producer_id_expiration_ms = DEFAULT_PRODUCER_ID_EXPIRATION_MS
        self.producer_counts = ProducerCounts()
        self._random = random
        self.is_verification_enabled = True
        self._watcher = watcher
        self._preferred_paths: dict[TopicPartition, str] = {}
        self._lost_logs: list[Log] = []
        """Logs in failed directories that are no longer needed: `close` closes their files."""
        self._is_abandoned = False

    def all_logs(self) -> list[Log]:
        return [*self.logs.values(), *self.future_logs.values()]

    def directory_of(self, log: Log) -> LogDirectory:
        directory = self.directories.at(log.log_dir.path)
        assert directory is not None, f"{log} lies in none of log.dirs"
        return directory

    def _directory_failed(self, state: LogDirState) -> None:
        """Take the logs of a failed directory out of service; their files stay open, as calls may still use them."""
        failed = {partition: log for partition, log in self.logs.items() if log.log_dir is state}
        for partition in failed:
            del self.logs[partition]
        self.offline_logs.update(failed)
        future = [partition for partition, log in self.future_logs.items() if log.log_dir is state]
        self._lost_logs += [log for partition in future if (log := self.future_logs.remove(partition)) is not None]
        logger.warning(
            "Logs for partitions %s are offline and logs for future partitions %s are offline due to failure on log "
            "directory %s",
            ",".join(map(str, failed)), ",".join(map(str, future)), state.path,
        )  # fmt: skip
        if self._watcher is not None:
            self._watcher.on_failed(state.path)

    # Logs

    def get_log(self, topic_partition: TopicPartition) -> Log | None:
        return self.logs.get(topic_partition)

    def open_log(
        self,
        directory: LogDirectory,
        name: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        now_ms: int,
        *,
        topic_id: Uuid | None = None,
        last_stop: LastStop = NEW_LOG,
    ) -> Log:
        """Open or create the log in a directory's subdirectory `name`; it is in no table yet.

        Raises as `open_log`, and ApiError INCONSISTENT_TOPIC_ID if the directory holds another topic. For lack of room
        nothing is left of a new log.
        """
        path = directory.file(name)
        self.pending_log_deletions.make_way(path)
        if last_stop is NEW_LOG:  # after a crash, offsets of a deleted log would be taken for this one's
            self.checkpoints.forget_deleted(topic_partition, directory)
        shared = SharedByLogs(self.files, directory.state, self._new_producer_state, self._jitter)
        try:
            log = open_log(self.disk, path, topic_partition, config, now_ms=now_ms, last_stop=last_stop, shared=shared)
            if topic_id is not None:
                assign_topic_id(log, topic_id)
        except ApiError as error:
            if error.code == KAFKA_STORAGE_ERROR and last_stop is NEW_LOG:
                self.files.close_in(path)
                remove_unfinished(self.disk, path)
            raise
        return log

    def _new_producer_state(self) -> ProducerState:
        return ProducerState(
            producer_id_expiration_ms=self.producer_id_expiration_ms,
            is_verification_enabled=self.is_verification_enabled,
            counts=self.producer_counts,
        )

    def configure_producers(
        self, *, expiration_ms: int, is_verification_enabled: bool, max_producers: int = MAX_GRANTED
    ) -> None:
        """Change the producer settings of all logs, including open ones; they are not walked over for the same ones."""
        self.producer_counts.max_granted = max_producers
        before = self.producer_id_expiration_ms, self.is_verification_enabled
        self.producer_id_expiration_ms, self.is_verification_enabled = expiration_ms, is_verification_enabled
        for log in self.all_logs() if before != (expiration_ms, is_verification_enabled) else ():
            log.producer_state.configure(expiration_ms, is_verification_enabled=is_verification_enabled)

    def _jitter(self, limit: int) -> int:
        return self._random.randrange(0, limit)

    def get_or_create_log(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid | None,
        config: LogConfig,
        now_ms: int,
        *,
        directory_id: Uuid | None = None,
        is_new: bool = False,
        is_replaceable: bool = False,
    ) -> Log:
        """Return the partition's log. If missing, create it in the requested directory or the one with the fewest logs.

        is_new: the partition cannot have had a log here before. is_replaceable: its records are on other brokers, so
        that a damaged log may be replaced. Raises StorageError; ApiError INCONSISTENT_TOPIC_ID if the log belongs to
        another topic of that name; ApiError KAFKA_STORAGE_ERROR if no directory is online, or if the log is damaged or
        may be in an offline directory: a new empty log would hide its records.
        """
        log = self.logs.get(topic_partition)
        if log is not None:  # wherever it is: only a move brings it to the requested directory
            if topic_id is not None:
                assign_topic_id(log, topic_id)
            return log
        if topic_partition in self.offline_logs or (not is_new and self.directories.offline_paths):
            raise _offline(topic_partition)
        self.damaged_logs.make_way(topic_partition, is_replaceable=is_new or is_replaceable)
        log = self._create_log(topic_partition, topic_id, config, now_ms, directory_id)
        self._preferred_paths.pop(topic_partition, None)
        self.logs[topic_partition] = log
        logger.info("Created log for partition %s in %s", topic_partition, log.directory)
        return log

    def _create_log(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid | None,
        config: LogConfig,
        now_ms: int,
        directory_id: Uuid | None,
    ) -> Log:
        """Create a log in the best directory in which that succeeds."""
        failure: ApiError | StorageError | None = None
        for directory in self._candidates(topic_partition, directory_id):
            try:
                name = str(topic_partition)
                return self.open_log(directory, name, topic_partition, config, now_ms, topic_id=topic_id)
            except (StorageError, ApiError) as error:
                if isinstance(error, ApiError) and error.code != KAFKA_STORAGE_ERROR:
                    raise
                failure = error
        raise failure or _offline(topic_partition)  # no directory is online

    def _candidates(self, topic_partition: TopicPartition, directory_id: Uuid | None) -> list[LogDirectory]:
        path = self._preferred_paths.get(topic_partition)
        preferred = None if path is None else self.directories.at(path)
        if preferred is None and directory_id is not None:
            preferred = self.directories.with_id(directory_id)
        if preferred is not None and not preferred.state.is_offline:
            return [preferred]
        return self.directories.for_new_log(self.logs.counts + self.future_logs.counts)

    def prefer_path(self, topic_partition: TopicPartition, path: str) -> None:
        """If the partition has no log here, create it in this directory later."""
        if topic_partition not in self.logs:
            self._preferred_paths[topic_partition] = path

    # Moving between directories

    def create_future_log(
        self, topic_partition: TopicPartition, directory: LogDirectory, topic_id: Uuid | None, now_ms: int
    ) -> Log:
        """Create an empty log, later to replace the one in service. Raises as get_or_create_log."""
        current = self.logs[topic_partition]
        assert current.log_dir is not directory.state, f"{topic_partition} lies in {directory.path} already"
        if self.directories.offline_paths:
            message = f"{topic_partition} may have a log in one of {', '.join(self.directories.offline_paths)}"
            raise ApiError(KAFKA_STORAGE_ERROR, f"{message}, which are offline")
        name = marked_directory(topic_partition, self._random.uuid(), FUTURE_DIRECTORY_SUFFIX)
        log = self.open_log(directory, name, topic_partition, current.config, now_ms, topic_id=topic_id)
        self.future_logs[topic_partition] = log
        logger.info("Created log for partition %s in %s", topic_partition, log.directory)
        return log

    def replace_by_future_log(self, topic_partition: TopicPartition) -> Log:
        """Replace the log in service by the future log; the caller then has the old one deleted. Raises StorageError.

        Before the call the future log must have caught up, with at least as much of it durable, and the controller must
        know the new directory. loading.py handles a crash between the renames.
        """
        current, future = self.logs.get(topic_partition), self.future_logs[topic_partition]
        logger.info("Attempting to replace current log %s with %s for %s", current, future, topic_partition)
        failpoint("log_manager.move.before_rename")
        self.pending_log_deletions.make_way(future.log_dir.path + f"/{topic_partition}")
        self.damaged_logs.make_way(topic_partition, is_replaceable=True)
        with future.failures("renaming the directory"):
            self.pending_log_deletions.rename(future, str(topic_partition))
        failpoint("log_manager.move.after_rename")
        if current is not None:
            from kafkapy.storage.log.replacement import take_over  # only for moves

            take_over(future, current)
        del self.future_logs[topic_partition]
        self.logs[topic_partition] = future
        failpoint("log_manager.move.after_swap")
        logger.info("The current replica is successfully replaced with the future replica for %s", topic_partition)
        return future

    def delete_future_log(self, topic_partition: TopicPartition, now_ms: int) -> bool:
        """Cancel a move; return whether there was one. Raises StorageError."""
        log = self.future_logs.remove(topic_partition)
        if log is None:
            return False
        self.schedule_deletion(log, now_ms)
        return True

    # Deleting

    def delete_log(self, topic_partition: TopicPartition, now_ms: int) -> bool:
        """Schedule the deletion of a log and its future log; return whether there was a log in service.

        Files are deleted after file.delete.delay.ms, by `due_log_deletions`. A log in an offline directory is
        forgotten, so the partition can be created again; the next start that finds it moves it aside as stray. Raises
        StorageError.
        """
        self._preferred_paths.pop(topic_partition, None)
        offline = self.offline_logs.pop(topic_partition, None)
        if offline is not None:
            self._lost_logs.append(offline)
        log = self.logs.remove(topic_partition)
        try:
            self.delete_future_log(topic_partition, now_ms)
        finally:
            if log is not None:
                self.schedule_deletion(log, now_ms)
        return log is not None

    def schedule_deletion(self, log: Log, now_ms: int) -> None:
        """Rename a log that is in no table to -delete; it is deleted after its delay. Raises StorageError.

        If there is no space for the longer name, the log keeps its name and `due_log_deletions` tries again.
        """
        log.on_retired()
        self.pending_log_deletions.schedule(log, now_ms)

    def due_syncs(self) -> list[DirectorySync]:
        """Return the directories in which logs were renamed, in order of their first rename, for a worker to sync."""
        return self.pending_log_deletions.due_syncs()

    def due_log_deletions(self, now_ms: int) -> Iterator[Deletion]:
        """Yield the directories whose delay has passed, one at a time; a worker deletes each."""
        return self.pending_log_deletions.due_log_deletions(now_ms)

    # Truncating

    def truncate_to(self, offsets: Mapping[TopicPartition, int], *, is_future: bool = False) -> None:
        """Truncate logs. Lower their recovery points on disk first: recovery does not check records below. Blocks."""
        table = self.future_logs if is_future else self.logs
        self.checkpoints.lower_recovery_points({table[partition]: offset for partition, offset in offsets.items()})
        for partition, offset in offsets.items():
            truncate_to(table[partition], offset)

    def truncate_fully_and_start_at(
        self,
        topic_partition: TopicPartition,
        offset: int,
        log_start_offset: int | None = None,
        *,
        is_future: bool = False,
    ) -> None:
        """Empty a log and set its log end offset to `offset`; lower its recovery point on disk first. Blocks."""
        log = (self.future_logs if is_future else self.logs)[topic_partition]
        self.checkpoints.lower_recovery_points({log: 0})
        truncate_fully_and_start_at(log, offset, log_start_offset)

    # Called periodically by a driver

    def flush_due(self, now_ms: int) -> Iterator[Flush | None]:
        """Yield the due flushes: rolled segments, flush.messages, flush.ms. Run each in the pool, then complete it.

        Each flush is prepared when the iterator reaches it, so other work may run in between. Among thousands of logs
        None is yielded now and then, for other tasks to run.
        """
        logs = self.all_logs()
        for start in range(0, len(logs), LOGS_PER_SLICE):
            if start:
                yield None
            for log in [log for log in logs[start : start + LOGS_PER_SLICE] if log.recovery_point < log.log_end_offset]:
                flush = prepare_due_flush(log, now_ms) if self._is_in_service(log) else None
                if flush is not None:
                    yield flush

    def _is_in_service(self, log: Log) -> bool:
        return log in (self.logs.get(log.topic_partition), self.future_logs.get(log.topic_partition))

    def cleanup_steps(self, now_ms: int) -> Iterator[int]:
        """Apply retention log by log, yielding the number of deleted segments, so that other work can run in between.

        The cleaner applies retention to compacted logs, between its passes, or a pass would have read in vain. As in
        Apache Kafka, this holds even if log.cleaner.enable is false.
        """
        for log in self.all_logs():
            if log.is_offline or not self._is_in_service(log):
                continue
            deleted = 0
            if not log.config.is_compacted:
                try:
                    deleted = delete_old_segments(log, now_ms)
                except (ApiError, StorageError) as error:
                    logger.warning(
                        "Could not apply retention to %s, trying again at the next interval: %s",
                        log.topic_partition,
                        error,
                    )
            yield deleted

    def due_file_deletions(self, now_ms: int) -> Iterator[FileDeletion | None]:
        """Yield the files of deleted segments whose delay has passed, log by log. Run each in the pool.

        Yields None now and then, as `flush_due` does. Only logs that have such files are looked at.
        """
        for state in [directory.state for directory in self.directories.live]:
            for count, log in enumerate(list(state.logs_with_pending_files), 1):
                if count % LOGS_PER_SLICE == 0:
                    yield None
                paths = [] if state.is_offline else log.pop_due_files(now_ms)
                if paths:
                    yield FileDeletion(self.disk, state, log, paths)

    # Facts and the end

    def describe_log_dirs(self, wanted: Collection[TopicPartition] | None = None) -> list[LogDirFacts]:
        """Return the facts for DescribeLogDirs, with the logs of `wanted` partitions or, if None, of all.

        A directory found missing goes offline with KAFKA_STORAGE_ERROR, as after any other disk failure. Deviation:
        Apache Kafka answers UNKNOWN_SERVER_ERROR and keeps it online until a read or a write fails. Here it goes
        offline, because leaders can then move at once.
        """
        facts = {directory.path: LogDirFacts(directory.path) for directory in self.directories}
        for directory in self.directories:
            described = facts[directory.path]
            try:
                directory.state.check_online()
                described.total_bytes = self.disk.total_bytes(directory.path)
                described.usable_bytes = self.disk.free_bytes(directory.path)
            except (OSError, StorageError) as error:
                if isinstance(error, OSError):
                    directory.state.handle_os_error(error, f"looking for room in {directory.path}")
                described.error_code = KAFKA_STORAGE_ERROR
                continue
            described.is_cordoned = directory.path in self.directories.cordoned
        for log in selected(self.logs, wanted):
            facts[log.log_dir.path].logs.append(log)
        for log in selected(self.future_logs, wanted):
            facts[log.log_dir.path].future_logs.append(log)
        return list(facts.values())

    def logs_to_close(self) -> list[Iterator[Log]]:
        """Return the logs that `close` will make durable, by directory: a caller may flush them in a pool before.

        Each next() looks at some of all logs: 100,000 looked at in one turn would hold the loop for 50 ms and more.
        """
        directories = [each.state for each in self.directories if each.is_loaded and not each.state.is_offline]
        return [self._logs_in(state) for state in directories]

    def _logs_in(self, state: LogDirState) -> Iterator[Log]:
        yield from (log for log in self.all_logs() if log.log_dir is state)

    def abandon(self) -> None:
        """Make `close` only close files and release locks, as a crash would: the next start recovers the logs."""
        self._is_abandoned = True

    @property
    def is_abandoned(self) -> bool:
        return self._is_abandoned

    def logs_with_files(self) -> list[Log]:
        """Return all logs that may have open files, those of failed directories included."""
        return [*self.all_logs(), *self.offline_logs.values(), *self._lost_logs]

    def close(self, broker_epoch: int = -1) -> None:
        """Stop cleanly at once: closing.closing_steps, without others in between. Blocks."""
        for step in closing_steps(self, broker_epoch):
            if step is not None:
                step.run()


def _offline(topic_partition: TopicPartition) -> ApiError:
    return ApiError(KAFKA_STORAGE_ERROR, f"the log directory of {topic_partition} is offline")
