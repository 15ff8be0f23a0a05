"""Moves replicas between log directories while they are in use: AlterReplicaLogDirs, and interrupted moves.

    copy -> fsync -> report the new directory to the controller -> copy what was appended since -> swap

A future replica survives a restart; the copy then continues. The controller knows the new directory before the
directories are renamed, so that a crash between the renames is unambiguous (see storage/manager/loading.py). If a move
is cancelled or fails, the old directory is reported again. At most num.replica.alter.log.dirs.threads moves run at
once, at no more than replica.alter.log.dirs.io.max.bytes.per.second in total. Source: KIP-113, KIP-858.

Deviation: Apache Kafka's deletion of records waits for a copy in progress. Here it does not, because the copy adopts
the new log start offset with its next chunk.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Final

from kafkapy.config.definitions import dynamic_only_definitions
from kafkapy.errors import ApiError, StorageError
from kafkapy.metadata.features import MV_3_7_IV2
from kafkapy.metadata.image import METADATA_VERSION
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.record.errors import RecordsError
from kafkapy.replication.partition import Role
from kafkapy.runtime.broker.directory_assignments import Assignment, DirectoryAssignments
from kafkapy.runtime.logs.checkpoint_writes import write_checkpoints
from kafkapy.runtime.pool import run_in_pool
from kafkapy.storage.errors import NeedsWarming
from kafkapy.storage.file_names import FUTURE_DIRECTORY_SUFFIX, MAX_FILE_NAME_LENGTH
from kafkapy.storage.log.flush import flush_log
from kafkapy.storage.log.opening import assign_topic_id

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.metadata.delta import MetadataDelta
    from kafkapy.metadata.image import MetadataImage
    from kafkapy.metadata.registrations import PartitionRegistration
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.replication.log_move import LogMove
    from kafkapy.replication.replica_manager import ReplicaManager
    from kafkapy.runtime.logs.flusher import LogFlusher
    from kafkapy.runtime.logs.full_directories import FullDirectories
    from kafkapy.seams import System
    from kafkapy.security.rate import SimpleRate
    from kafkapy.storage.log.log import Log
    from kafkapy.storage.manager.log_manager import LogManager
    from kafkapy.types import TopicPartition, Uuid

THROTTLE_KEY: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
MAX_PAUSE_S: Final = 1.0
"""How often the limit is checked for a change."""
TURN_NS: Final = 2_000_000
PAUSE_S: Final = 0.001
"""While other requests are served, a copy pauses after each turn, so that it uses two thirds of the loop at most."""
IDLE_PASS_NS: Final = 60_000
"""A pass of the loop in which nothing is served takes less. One that does on a busy machine costs the copy a pause."""
MAX_ROUNDS: Final = 3
"""After this many flushes of the copy that flushes of the current log overtook, it is fsynced on the event loop."""

logger = logging.getLogger("kafkapy.runtime")


class LogDirMover:
    """Owns the moves between start() and stop()."""

    def __init__(
        self,
        replica_manager: "ReplicaManager",
        assignments: DirectoryAssignments,
        full_directories: "FullDirectories",
        *,
        node_id: int,
        settings: "Callable[[], BrokerConfig]",
        system: "System",
        flusher: "LogFlusher",
    ) -> None:
        self._flusher = flusher
        self._replica_manager = replica_manager
        self._log_manager: LogManager = replica_manager.log_manager
        self._assignments = assignments
        self._full_directories = full_directories
        self._node_id = node_id
        self._settings = settings
        _, self._clock, _, self._io_pool = system
        self._tasks: dict[TopicPartition, tuple[LogMove, asyncio.Task[None]]] = {}
        self._slots: asyncio.Semaphore | None = None
        self._is_stopping = False
        self._copied: SimpleRate | None = None
        """The rate of bytes copied, by all moves."""

    @property
    def moving_count(self) -> int:
        return len(self._tasks)

    @property
    def queued_assignment_count(self) -> int:
        """The number of replicas whose directories the controller has not accepted yet."""
        return self._assignments.pending_count

    def start(self) -> None:
        """Resume the moves that the last stop interrupted, and report the directories of replicas to the controller.

        To be called once the broker is registered.
        """
        self._assignments.start()
        config = self._settings()
        threads = config.replication.num_replica_alter_log_dirs_threads
        self._slots = asyncio.Semaphore(max(threads if threads is not None else len(config.log_dirs), 1))
        self._resume()

    async def stop(self) -> None:
        """Stop at once; what was copied stays."""
        self._is_stopping = True
        tasks = [task for _, task in self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._assignments.stop()

    # Requests

    def alter(self, topic_partition: "TopicPartition", path: str) -> int:
        """Start to move a replica to the log directory at `path`; return an error code without waiting for the move.

        If the partition has no log here, `path` is remembered for its creation, and the code is an error:
        REPLICA_NOT_AVAILABLE if other brokers host it, UNKNOWN_TOPIC_OR_PARTITION if it does not exist.
        """
        try:
            self._alter(topic_partition, path)
        except ApiError as error:
            logger.warning("Unable to alter log dirs for %s: %s", topic_partition, error.message)
            return int(error.code)
        except StorageError as error:
            logger.warning("Unable to alter log dirs for %s: %s", topic_partition, error.message)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _alter(self, topic_partition: "TopicPartition", path: str) -> None:
        manager = self._log_manager
        _check_name_length(topic_partition)
        directory = manager.directories.at(path)
        if directory is None:
            raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"Log dir {path} is not found in the config.")
        if directory.state.is_offline:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {path} is offline")
        if path in manager.directories.cordoned:
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Log directory {path} is cordoned")
        partition = self._replica_manager.partitions.find(*topic_partition)
        if partition is not None and partition.role is Role.OFFLINE:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"Partition {topic_partition} is offline")
        future = manager.future_logs.get(topic_partition)
        if future is not None and future.log_dir is not directory.state:
            self._call_back(topic_partition)
        if partition is None or partition.log is None:
            # Kept for a replica that comes later, and refused nevertheless: so Apache Kafka has it (KIP-113), and tools
            # that reassign to a directory name it before they move the replica here.
            manager.prefer_path(topic_partition, path)
            code = self._replica_manager.partitions.missing_code(*topic_partition)
            is_elsewhere = code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE if is_elsewhere else code, f"{topic_partition} is not here")
        if partition.log.log_dir is directory.state:
            logger.info("Nothing to move: %s is in %s already", topic_partition, path)
        elif topic_partition not in manager.future_logs:
            manager.create_future_log(topic_partition, directory, partition.topic_id, self._clock.wall_ms())
            self._begin(partition)

    def _call_back(self, topic_partition: "TopicPartition") -> None:
        """Cancel a move. Its task reports the old directory again."""
        logger.info("Cancelled the move of %s", topic_partition)
        self._log_manager.delete_future_log(topic_partition, self._clock.wall_ms())
        self.end_unwanted()

    def end_unwanted(self) -> None:
        """End the moves whose logs are no longer the partition's: deleted, lost with their disk, or cancelled."""
        unwanted = [each for each, (move, _) in self._tasks.items() if not move.is_wanted]
        for topic_partition in unwanted:
            _, task = self._tasks.pop(topic_partition)
            task.cancel()

    # Metadata changes

    def apply_delta(self, delta: "MetadataDelta", image: "MetadataImage") -> Iterator[None]:
        """Report replicas whose directory differs from the metadata; resume moves of new partitions.

        In steps, one partition each.
        """
        topics = delta.topics_changed
        if topics is None:
            return
        if self._tasks:
            self.end_unwanted()
        if image.features.levels.get(METADATA_VERSION, 0) >= MV_3_7_IV2:
            changes = topics.local_changes(self._node_id)
            for changed in (changes.leaders, changes.followers):
                for topic_partition, local in changed.items():
                    self._correct(topic_partition, local.topic_id)
                    yield
        if self._slots is not None and self._log_manager.future_logs:
            self._resume()

    def _correct(self, topic_partition: "TopicPartition", topic_id: "Uuid") -> None:
        """Report a replica's directory, unless the metadata has it or a move is being reported."""
        log = self._log_manager.logs.get(topic_partition)
        registration = self._registration(topic_id, topic_partition.partition)
        if log is None or log.topic_id != topic_id or registration is None:
            return
        if self._assignments.is_pending(topic_id, topic_partition.partition):
            return
        future = self._log_manager.future_logs.get(topic_partition)
        assigned_id = registration.directory_of(self._node_id)
        reported_id = self._full_directories.place_of(log, registration, topic_id)
        is_move = topic_partition in self._tasks and future is not None and self._id_of(future) == assigned_id
        if reported_id is not None and assigned_id != reported_id and not is_move:
            self._assignments.assign(
                self._full_directories.assignment(topic_id, topic_partition.partition, reported_id)
            )

    def _registration(self, topic_id: "Uuid", partition_id: int) -> "PartitionRegistration | None":
        """Return the partition in the newest metadata; None if it has no replica here."""
        topic = self._replica_manager.partitions.newest_image.topics.by_id.get(topic_id)
        registration = topic.partitions.get(partition_id) if topic is not None else None
        return registration if registration is not None and self._node_id in registration.replicas else None

    def _id_of(self, log: "Log") -> "Uuid | None":
        return self._log_manager.directory_of(log).directory_id

    def _resume(self) -> None:
        for topic_partition in sorted(self._log_manager.future_logs.keys() - self._tasks.keys()):
            partition = self._replica_manager.partitions.find(*topic_partition)
            if partition is not None and partition.log is not None and partition.role is not Role.OFFLINE:
                self._begin(partition)

    # Running moves

    def _begin(self, partition: "HostedPartition") -> None:
        from kafkapy.replication.log_move import LogMove

        if self._is_stopping:  # metadata changes may arrive during a stop: the next start resumes the move
            return
        move = LogMove(partition, self._log_manager)
        topic_partition = partition.topic_partition
        task = asyncio.get_running_loop().create_task(self._run(move))
        self._tasks[topic_partition] = (move, task)
        task.add_done_callback(lambda done: self._forget(topic_partition, done))

    def _forget(self, topic_partition: "TopicPartition", done: "asyncio.Task[None]") -> None:
        if topic_partition in self._tasks and self._tasks[topic_partition][1] is done:
            del self._tasks[topic_partition]

    async def _run(self, move: "LogMove") -> None:
        """Run a move to its end. It also ends if the future log is lost or the move is cancelled."""
        assert self._slots is not None
        is_reported = False
        try:
            async with self._slots:
                logger.info(
                    "Beginning/resuming copy of partition %s from offset %d",
                    move.partition.topic_partition,
                    move.future.log_end_offset,
                )
                if not (await self._catch_up(move) and await self._make_durable(move)):
                    return
                # the controller knows before the logs are swapped, so that it never takes the replica for lost; if the
                # swap then fails, the old directory is reported again
                is_reported = True
                await self._report(move)
                is_reported = not await self._finish(move)
        except StorageError as error:
            logger.error(
                "Gave up the move of %s, which stays where it was; ask for it again: %s",
                move.partition.topic_partition,
                error,
            )
        except (ApiError, RecordsError, AssertionError) as error:
            logger.exception(
                "Gave up the move of %s after an unexpected error", move.partition.topic_partition, exc_info=error
            )
            self._drop(move)
        finally:
            if is_reported and not self._is_stopping:
                self._revert(move)

    async def _catch_up(self, move: "LogMove") -> bool:
        """Copy all records, giving way to requests; return whether the move is still wanted."""
        pace = Pace()
        while move.is_wanted and await self._copy(move, pace):
            copied_ns = self._clock.monotonic_ns()
            await asyncio.sleep(0)
            if pace.is_pause_due(self._clock.monotonic_ns() - copied_ns):
                await asyncio.sleep(PAUSE_S)
        return move.is_wanted

    async def _copy(self, move: "LogMove", pace: "Pace") -> int:
        """Copy one chunk within the rate limit; return its size in bytes, 0 if there was nothing to copy."""
        await self._throttle()
        if not move.is_wanted:
            return 0
        copied = 1
        async with self._patience(move):
            assign_topic_id(move.future, move.partition.topic_id)  # a crash may have prevented this
            began_ns = self._clock.monotonic_ns()
            copied = move.copy(self._clock.wall_ms())
            pace.count_copy(self._clock.monotonic_ns() - began_ns)
            self._charge(copied)
        return copied

    async def _make_durable(self, move: "LogMove") -> bool:
        """Fsync the copy; return whether the move is still wanted."""
        is_durable = False
        while move.is_wanted and not is_durable:
            async with self._patience(move):
                await self._flusher.flush(move.future)
                is_durable = True
        return move.is_wanted

    @contextlib.asynccontextmanager
    async def _patience(self, move: "LogMove") -> AsyncIterator[None]:
        """Suppress errors of the block that go away by waiting, and return when it can be tried again.

        Cold pages are read by a worker; after KAFKA_STORAGE_ERROR (disk full) it waits replica.fetch.backoff.ms.
        """
        try:
            try:
                yield
            except NeedsWarming as cold:
                await self._warm(move, cold)
        except ApiError as error:
            if error.code != ErrorCode.KAFKA_STORAGE_ERROR:
                raise
            logger.warning(
                "The move of %s pauses and is tried again: %s", move.partition.topic_partition, error.message
            )
            await asyncio.sleep(self._settings().replication.replica_fetch_backoff_ms / 1000)

    async def _warm(self, move: "LogMove", cold: NeedsWarming) -> None:
        """Read data that is not in the page cache on a worker. Raises StorageError, ApiError."""
        try:
            await run_in_pool(self._io_pool, cold.warm)
        except OSError as error:
            raise move.current.log_dir.handle_os_error(error, f"reading {move.partition.topic_partition}") from error

    async def _report(self, move: "LogMove") -> None:
        """Report the new directory to the controller; return once it is accepted."""
        target_id = move.target_id
        if target_id is None:
            return
        accepted = asyncio.get_running_loop().create_future()
        partition = move.partition
        self._assignments.assign(
            Assignment(
                partition.topic_id,
                partition.topic_partition.partition,
                target_id,
                lambda: None if accepted.done() else accepted.set_result(None),
            )
        )
        await accepted

    async def _finish(self, move: "LogMove") -> bool:
        """Swap the logs once the copy is complete and durable; return whether that happened."""
        rounds = 0
        while await self._catch_up(move):
            rounds += 1
            is_swapped = False
            async with self._patience(move):
                if rounds > MAX_ROUNDS and move.future.flush_under_way is None:
                    flush_log(move.future)
                is_swapped = move.try_finish(self._clock.wall_ms())
                if not is_swapped:
                    await self._flusher.flush(move.future)
            if is_swapped:
                self._replica_manager.complete_waiting(move.partition)
                await self._write_checkpoints()
                return True
        return False

    async def _write_checkpoints(self) -> None:
        """Write the checkpoints with the log under its new directory, as early as Apache Kafka does for its old one."""
        checkpoints = self._log_manager.checkpoints
        for collect in (checkpoints.recovery_points, checkpoints.log_start_offsets, checkpoints.cleaner_offsets):
            await write_checkpoints(collect(), self._io_pool)

    def _drop(self, move: "LogMove") -> None:
        """Delete the future log of a move that cannot be finished; the log in service is unchanged."""
        if self._log_manager.future_logs.get(move.partition.topic_partition) is move.future:
            try:
                self._log_manager.delete_future_log(move.partition.topic_partition, self._clock.wall_ms())
            except (ApiError, StorageError) as error:
                logger.error("%s", error.message)

    def _revert(self, move: "LogMove") -> None:
        """Report the old directory again, if the replica is still there."""
        topic_partition = move.partition.topic_partition
        source_id = move.source_id
        if source_id is not None and self._log_manager.logs.get(topic_partition) is move.current:
            logger.info("Reverting the assignment of %s: it stays where it was", topic_partition)
            self._assignments.assign(Assignment(move.partition.topic_id, topic_partition.partition, source_id))

    # Throttling

    async def _throttle(self) -> None:
        """Wait until the bytes copied so far comply with the limit, which may change meanwhile."""
        while (pause_ms := self._pause_ms()) > 0:
            await asyncio.sleep(min(pause_ms / 1000, MAX_PAUSE_S))

    def _pause_ms(self) -> float:
        limit = self._limit()
        if limit <= 0:
            return MAX_PAUSE_S * 1000
        return 0 if self._copied is None else self._copied.throttle_ms(limit, self._clock.monotonic_ms())

    def _charge(self, copied: int) -> None:
        """Count copied bytes, in windows of alter.log.dirs.replication.quota.window.*."""
        if self._copied is None:
            from kafkapy.security.rate import SimpleRate  # most brokers move nothing

            quota = self._settings().quota
            self._copied = SimpleRate(
                quota.alter_log_dirs_replication_quota_window_num,
                quota.alter_log_dirs_replication_quota_window_size_seconds * 1000,
            )
        self._copied.record(copied, self._clock.monotonic_ms())

    def _limit(self) -> int:
        definition = dynamic_only_definitions()[THROTTLE_KEY]
        text = self._settings().originals.get(THROTTLE_KEY)
        rate = definition.parse(text) if text is not None else definition.default
        assert isinstance(rate, int)
        return rate


class Pace:
    """Decides when a copy pauses: after TURN_NS of copying, if other work was done between its chunks."""

    __slots__ = ("_copying_ns", "_is_alone")

    def __init__(self) -> None:
        self._copying_ns = 0
        self._is_alone = True

    def count_copy(self, took_ns: int) -> None:
        self._copying_ns += took_ns

    def is_pause_due(self, pass_ns: int) -> bool:
        """Record how long the loop's pass after a chunk took, and return whether to pause now."""
        if pass_ns >= IDLE_PASS_NS:
            self._is_alone = False
        if self._copying_ns < TURN_NS:
            return False
        is_due = not self._is_alone
        self._copying_ns, self._is_alone = 0, True
        return is_due


def _check_name_length(topic_partition: "TopicPartition") -> None:
    if len(f"{topic_partition}.{bytes(16).hex()}{FUTURE_DIRECTORY_SUFFIX}") > MAX_FILE_NAME_LENGTH:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
