"""Load all logs of a broker at its start: plan, load one log after another, then resolve interrupted moves.

    loading = LogLoading(...)
    items = yield from loading.plan_steps()             # a second's work with 100,000 logs: in turns
    for item in items: loading.load(item)               # a driver may have a helper process recover it first
    loading.finish()

After an interrupted move between directories a replica may be found twice, or only as a future log. The assignment in
the metadata log decides: a move first reports the new directory to the controller, then renames.

    both as current     keep the one in the assigned directory, delete the other: the crash came between the renames
    current and future  the future log takes over if it is in the assigned directory and has caught up; else the move
                        continues. Deviation: Apache Kafka has it take over even if it has not caught up.
                        Here it does not, because its records are not all there
    future only         it takes over if it is in the assigned directory, or if no directory is offline
"""

import logging
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Final

from kafkapy.config.log import LogConfig
from kafkapy.dataclass import dataclass
from kafkapy.errors import ApiError, StorageError
from kafkapy.storage import checkpoint
from kafkapy.storage.errors import DamagedLogError
from kafkapy.storage.file_names import (
    DELETE_DIRECTORY_SUFFIX,
    FUTURE_DIRECTORY_SUFFIX,
    LOG_SUFFIX,
    STRAY_DIRECTORY_SUFFIX,
    offset_of,
    parse_partition_directory,
)
from kafkapy.storage.log.log import Log
from kafkapy.storage.manager.log_directory import LogDirectory
from kafkapy.storage.recovery.loader import LastStop
from kafkapy.types import METADATA_PARTITION, TopicPartition, Uuid

if TYPE_CHECKING:
    from kafkapy.storage.manager.log_manager import LogManager

logger = logging.getLogger("kafkapy.storage")

LOGS_PER_STEP: Final = 200
"""Names, or logs to load, looked at in a step: half a millisecond."""

FoundDirectory = tuple[str, TopicPartition, str]
"""Name, partition, and marker of a partition's directory."""


@dataclass(slots=True)
class LogToLoad:
    """A partition directory and its checkpointed offsets.

    clean_to: as LastStop has it. cleaner_offset: the cleaner's checkpoint, None if it does not name the log.
    is_recovered: a helper process has recovered it, which took recovery_ms.
    """

    directory: LogDirectory
    name: str
    topic_partition: TopicPartition
    marker: str
    config: LogConfig
    log_start_offset: int
    recovery_point: int
    clean_to: int | None
    cleaner_offset: int | None
    high_watermark: int
    is_recovered: bool = False
    recovery_ms: int = 0

    @property
    def path(self) -> str:
        return self.directory.file(self.name)

    @property
    def needs_recovery(self) -> bool:
        is_deleted = self.marker == DELETE_DIRECTORY_SUFFIX
        return not (self.directory.was_clean_shutdown or self.is_recovered or is_deleted)


class LogLoading:
    """Loads the logs found in all directories, one by one. config_for(topic): returns its configuration.

    is_stray(log): whether the metadata does not assign it to this broker; such a log is moved aside.
    assigned_directory(log): the directory assigned by the metadata, None if unknown. clock_ms: a monotonic clock.
    """

    def __init__(
        self,
        manager: "LogManager",
        *,
        now_ms: int,
        clock_ms: Callable[[], int],
        config_for: Callable[[str], LogConfig] | None = None,
        is_stray: Callable[[Log], bool] | None = None,
        assigned_directory: Callable[[Log], Uuid | None] | None = None,
    ) -> None:
        self._manager = manager
        self._now_ms = now_ms
        self._clock_ms = clock_ms
        self._started_ms = clock_ms()
        self._config_for = config_for
        self._configs: dict[str, LogConfig] = {}
        """By topic: its logs share one."""
        self._is_stray = is_stray
        self._assigned_directory = assigned_directory
        self._counts: dict[str, list[int]] = {}
        """By directory path: [number of logs loaded, number of logs found]."""
        self._is_finished = False

    # Planning

    @property
    def missing(self) -> str | None:
        """The progress, as in "recovering 37 of 120 logs"; None if loading has finished."""
        if self._is_finished:
            return None
        done, total = (sum(counts) for counts in zip((0, 0), *self._counts.values(), strict=True))
        directories = self._manager.directories
        is_recovering = any(not each.was_clean_shutdown for each in directories.live if each.path in self._counts)
        return f"{'recovering' if is_recovering else 'loading'} {done} of {total} logs"

    def plan_steps(self) -> Generator[None, None, list[LogToLoad]]:
        """Yield between steps; return the logs to load from all readable directories; the others go offline."""
        directories = self._manager.directories
        logger.info("Loading logs from log dirs %s", ", ".join(each.path for each in directories.live))
        items: list[LogToLoad] = []
        for directory in directories.live:
            try:
                found = yield from self._plan_directory(directory)
            except OSError as error:
                directory.state.go_offline(f"Error while loading log dir {directory.path}: {error}")
                continue
            self._counts[directory.path] = [0, len(found)]
            items += found
        return items

    def _plan_directory(self, directory: LogDirectory) -> Generator[None, None, list[LogToLoad]]:
        names = yield from _partition_directories(directory)
        for name, partition in directory.damaged_names():
            self._manager.damaged_logs.add(partition, directory.state, directory.file(name), "it is no directory")
        directory.forget_names()
        is_clean = directory.pop_clean_shutdown()  # before anything is written: from here on a crash is no clean stop
        recovery_points = yield from directory.read_offsets(checkpoint.RECOVERY_POINT_FILE)
        start_offsets = yield from directory.read_offsets(checkpoint.LOG_START_OFFSET_FILE)
        clean_offsets = yield from directory.read_offsets(checkpoint.CLEANER_OFFSET_FILE)
        high_watermarks = yield from directory.read_offsets(checkpoint.HIGH_WATERMARK_FILE)
        if not names:
            logger.info("No logs found to be loaded in %s", directory.path)
        elif is_clean:
            logger.info(
                "Skipping recovery of %d logs from %s since clean shutdown file was found", len(names), directory.path
            )
        else:
            logger.info("Recovering %d logs from %s since no clean shutdown file was found", len(names), directory.path)
        items: list[LogToLoad] = []
        for first in range(0, len(names), LOGS_PER_STEP):
            items += [
                LogToLoad(
                    directory,
                    name,
                    partition,
                    marker,
                    self._config(partition.topic),
                    start_offsets.get(partition, 0),
                    recovery_points.get(partition, 0),
                    # None: without a recovery point a gap that a power cut left looks like one of the cleaner's
                    clean_offsets.get(partition, 0) if partition in recovery_points else None,
                    clean_offsets.get(partition),
                    high_watermarks.get(partition, 0),
                )
                for name, partition, marker in names[first : first + LOGS_PER_STEP]
            ]
            yield
        return items

    def _config(self, topic: str) -> LogConfig:
        if self._config_for is None:
            return self._manager.default_config
        config = self._configs.get(topic)
        if config is None:
            config = self._configs[topic] = self._config_for(topic)
        return config

    def unflushed_bytes(self, item: LogToLoad) -> int:
        """Estimate the number of bytes that recovery has to read. Raises OSError."""
        if not item.needs_recovery:
            return 0
        disk = self._manager.disk
        names = [name for name in disk.list_directory(item.path) if name.endswith(LOG_SUFFIX)]
        first = max(
            (offset_of(name) or 0 for name in names if (offset_of(name) or 0) <= item.recovery_point), default=0
        )
        return sum(_size_of(item, name, self._manager) for name in names if (offset_of(name) or 0) >= first)

    # One log

    def load(self, item: LogToLoad) -> None:
        """Load one log into the manager; if that fails, its directory goes offline. Blocks."""
        if item.directory.state.is_offline:
            return
        started_ms = self._clock_ms() - item.recovery_ms
        try:
            log = self._load(item)
        except DamagedLogError as error:
            if item.marker:  # not the log in service
                item.directory.state.go_offline(f"Error while loading log dir {item.directory.path}: {error}")
                return
            log = None
            self._manager.damaged_logs.add(item.topic_partition, item.directory.state, item.path, error.message)
        except (OSError, StorageError, ApiError) as error:
            item.directory.state.go_offline(f"Error while loading log dir {item.directory.path}: {error}")
            return
        counts = self._counts[item.directory.path]
        counts[0] += 1
        if log is not None:
            logger.info(
                "Completed load of %s with %d segments, local-log-start-offset %d and log-end-offset %d in %dms "
                "(%d/%d completed in %s)",
                log, len(log.segments), log.log_start_offset, log.log_end_offset, self._clock_ms() - started_ms,
                *counts, item.directory.path,
            )  # fmt: skip

    def _load(self, item: LogToLoad) -> Log | None:
        manager = self._manager
        if item.marker == DELETE_DIRECTORY_SUFFIX:
            # Its deletion began before the restart. Its files may not be durable, so they are not read.
            due_ms = self._now_ms + manager.default_config.file_delete_delay_ms
            manager.pending_log_deletions.add(item.directory.state, item.path, due_ms)
            return None
        log = manager.open_log(
            item.directory,
            item.name,
            item.topic_partition,
            item.config,
            self._now_ms,
            last_stop=LastStop(
                item.log_start_offset,
                item.recovery_point,
                item.directory.was_clean_shutdown,
                item.is_recovered,
                item.clean_to,
            ),
        )
        # Before any other checkpoint is written, and before the log may be truncated: later they might be wrong.
        log.update_high_watermark(item.high_watermark)
        if item.cleaner_offset is not None:
            log.on_cleaned(item.cleaner_offset)
        self._add_log(log, is_future=item.marker == FUTURE_DIRECTORY_SUFFIX)
        return log

    def _add_log(self, log: Log, *, is_future: bool) -> None:
        manager, partition = self._manager, log.topic_partition
        table = manager.future_logs if is_future else manager.logs
        if self._is_stray is not None and self._is_stray(log):
            manager.pending_log_deletions.set_aside(log)
            return
        other = table.get(partition)
        if other is None:
            table[partition] = log
            return
        assigned = self._assigned_directory(log) if self._assigned_directory is not None else None
        kept = next((each for each in (log, other) if assigned == self._id_of(each)), None)
        if kept is None or assigned is None:
            raise StorageError(
                log.log_dir.path,
                f"Duplicate log directories for {partition} are found in both {other.directory} and {log.directory}: "
                "one of them must be moved away",
            )
        table[partition] = kept
        lost = other if kept is log else log
        logger.warning("Finishing the move of %s to %s: deleting %s", partition, kept.directory, lost.directory)
        manager.schedule_deletion(lost, self._now_ms)

    def _id_of(self, log: Log) -> Uuid | None:
        return self._manager.directory_of(log).directory_id

    # The end

    def finish(self) -> None:
        """Mark the directories as loaded; complete moves whose future log has caught up (module docstring)."""
        self._is_finished = True
        manager = self._manager
        for directory in manager.directories.live:
            directory.is_loaded = True
        for partition, log in list(manager.future_logs.items()):
            if self._is_to_take_over(log, manager.logs.get(partition)):
                logger.info("Attempting to recover abandoned future log for %s at %s", partition, log.directory)
                current = manager.logs.get(partition)
                try:
                    manager.replace_by_future_log(partition)
                    if current is not None:
                        manager.schedule_deletion(current, self._now_ms)
                except (ApiError, StorageError) as error:
                    logger.error("Could not finish the move of %s: %s", partition, error.message)
        loaded = sum(done for done, _ in self._counts.values())
        unclean = [
            each.path for each in manager.directories.live if not each.was_clean_shutdown and self._counts[each.path][1]
        ]
        suffix = f" (unclean log dirs = {', '.join(unclean)})" if unclean else ""
        logger.info("Loaded %d logs in %dms%s", loaded, self._clock_ms() - self._started_ms, suffix)

    def _is_to_take_over(self, future: Log, current: Log | None) -> bool:
        assigned = self._assigned_directory(future) if self._assigned_directory is not None else None
        is_assigned = assigned is not None and assigned == self._id_of(future)
        if current is None:
            is_missing = future.topic_partition not in self._manager.damaged_logs
            return is_assigned or (is_missing and not self._manager.directories.offline_paths)
        has_all = (future.log_end_offset, future.latest_epoch) == (current.log_end_offset, current.latest_epoch)
        return is_assigned and has_all


def _partition_directories(directory: LogDirectory) -> Generator[None, None, list[FoundDirectory]]:
    """Yield between steps; return the directories to load. Raises OSError."""
    found: list[FoundDirectory] = []
    for count, (name, is_directory) in enumerate(directory.names(), 1):
        if count % LOGS_PER_STEP == 0:
            yield
        if not is_directory:
            continue
        parsed = parse_partition_directory(name)
        if parsed is None:
            logger.warning("Ignoring %s in %s: not a partition directory", name, directory.path)
        elif parsed[1] == STRAY_DIRECTORY_SUFFIX:
            logger.warning("Found stray log dir %s in %s; it is left to the operator", name, directory.path)
        elif parsed[0] != METADATA_PARTITION:
            found.append((name, *parsed))
    return found


def _size_of(item: LogToLoad, name: str, manager: "LogManager") -> int:
    file = manager.disk.open(f"{item.path}/{name}", writable=False)
    try:
        return file.size()
    finally:
        file.close()
