"""All share partitions that are in use on this broker, and the sessions that use them.

A share partition is loaded at its first fetch. It is dropped when this broker no longer leads the partition, when its
state was fenced or deleted, or when the group's last session here ends. An acknowledgement is answered once its write
has ended; a write continues if its connection has closed.

Deviation: Apache Kafka parks a fetch of a share partition that cannot be loaded. Here it is answered at once, because
the client has to act on the error.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkapy.errors import ApiError, StorageError
from kafkapy.machine import SmallSteps, end_of
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.replication.offset_lookup import EARLIEST, LATEST, NOT_FOUND, find_offset
from kafkapy.runtime.begun import begin
from kafkapy.runtime.pool import run_in_pool
from kafkapy.runtime.share.acknowledging import Acknowledging
from kafkapy.runtime.share.in_use import InUse
from kafkapy.runtime.share.session_ends import SessionEnds
from kafkapy.runtime.turns import GiveWay, pauses
from kafkapy.seams import Clock, IoPool
from kafkapy.share.acknowledgement import OFFSETS_PER_STEP, AcknowledgementBatch
from kafkapy.share.dead_letters import left_to_copy
from kafkapy.share.group_settings import BY_DURATION, GroupShareSettings
from kafkapy.share.partition import SharePartition
from kafkapy.share.partition_settings import PartitionSettings
from kafkapy.share.pending_write import DeadLetter, PendingWrite, Refusal, persister_refusal
from kafkapy.share.persister import (
    UNINITIALIZED_OFFSET,
    Persister,
    SharePartitionKey,
    StateRead,
    TopicIdPartition,
)
from kafkapy.share.session import SessionKey, ShareSessionCache
from kafkapy.storage.errors import NeedsWarming
from kafkapy.storage.log.reader import FetchIsolation
from kafkapy.timer.wheel import TimingWheel

if TYPE_CHECKING:
    from kafkapy.metrics.shares import ShareCounts
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.replication.replica_manager import ReplicaManager
    from kafkapy.runtime.share.dead_letters import DeadLetters

logger = logging.getLogger("kafkapy.share")

R = TypeVar("R")

BROKEN: Final = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, None)
NOT_IN_USE: Final = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
FENCING: Final = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
"""Errors of a write after which the share partition is dropped: another leader has the state now."""

NO_PARTITIONS: Final[Mapping[TopicIdPartition, InUse]] = {}

WRITTEN_AT_ONCE: Final = 200
"""Up to so many state batches are written in the turn of their request: one to two milliseconds."""


class ShareParts(NamedTuple):
    """The parts of the broker that share partitions use.

    settings(group id): the group's current configuration. dead_letters: copies rejected records; without it they are
    archived at once.
    """

    persister: Callable[[], Persister]
    settings: Callable[[str], GroupShareSettings]
    clock: Clock
    wheel: TimingWheel
    io_pool: IoPool
    replica_manager: "ReplicaManager"
    dead_letters: "DeadLetters | None" = None
    counts: "ShareCounts | None" = None
    """The metrics of share groups, if there are any."""


class SharePartitions:
    """The share partitions in use, by group."""

    def __init__(self, parts: ShareParts, max_sessions: int) -> None:
        self.sessions = ShareSessionCache(max_sessions)
        self._parts = parts
        self.counts = parts.counts
        self.wheel = parts.wheel
        self.replica_manager = parts.replica_manager
        self.load_count = 0
        """The number of loads so far. Most end within use(), so requests count them as steps of their turn."""
        self._groups: dict[str, dict[TopicIdPartition, InUse]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self.session_ends = SessionEnds(self, parts.clock)
        self._copying: dict[SharePartitionKey, list[DeadLetter]] = {}
        """The tasks that copy records to a dead-letter topic, and archive them after that."""
        self._archiving: dict[InUse, tuple[list[DeadLetter], asyncio.Task[None]]] = {}

    def __iter__(self) -> Iterator[InUse]:
        for group in self._groups.values():
            yield from group.values()

    async def close(self) -> None:
        """Cancel loads, writes and releases; fence all share partitions."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._parts.dead_letters is not None:
            await self._parts.dead_letters.close()
        self.end_all()

    def end_all(self) -> None:
        """End all sessions and fence all share partitions. Acquired records are not released: that was never written.

        As in Apache Kafka, when the cluster no longer has share groups (share.version 0).
        """
        self.sessions.end_all()
        for group_id in list(self._groups):
            self._forget_group(group_id)

    # -- in use ---------------------------------------------------------------------------------------------------

    def of_group(self, group_id: str) -> list[InUse]:
        """Return the share partitions of a group."""
        return list(self._groups.get(group_id, {}).values())

    def settings(self, group_id: str) -> GroupShareSettings:
        return self._parts.settings(group_id)

    def find(self, group_id: str, partition: TopicIdPartition) -> InUse | None:
        """Return a share partition in use, if this broker has led it since then."""
        in_use = self._groups.get(group_id, NO_PARTITIONS).get(partition)
        if in_use is not None and not in_use.is_current:
            self.forget(in_use)
            return None
        return in_use

    def use(
        self, group_id: str, partition: TopicIdPartition, hosted: "HostedPartition", settings: PartitionSettings
    ) -> InUse:
        """Return the share partition with these settings of its group; its load begins if it is new."""
        in_use = self._groups.get(group_id, NO_PARTITIONS).get(partition)
        if in_use is not None and in_use.hosted is hosted and in_use.is_current:
            in_use.partition.configure(settings)
            return in_use
        if in_use is not None:
            self.forget(in_use)
        key = SharePartitionKey(group_id, partition.topic_id, partition.partition)
        machine = SharePartition(key, hosted.leader_epoch, settings)
        if self.counts is not None:
            machine.counts = self.counts.new_partition()
        in_use = InUse(machine, hosted, self)
        self._groups.setdefault(group_id, {})[partition] = in_use
        machine.begin_load()
        self.load_count += 1
        in_use.watch()
        # The load must not overtake a write, about to begin, of a share partition that was just dropped.
        work = self._load(in_use)
        loading = self.start(work) if self._tasks else begin(work, self.start)
        if not loading.done():
            in_use.loading = loading
            loading.add_done_callback(in_use.on_loaded)
        return in_use

    def on_data(self, in_use: InUse) -> None:
        """The partition has more records, or another leader."""
        if in_use.is_current:
            in_use.notify()
        else:
            self.forget(in_use)

    def forget(self, in_use: InUse) -> None:
        """Drop a share partition: its state is read again at its next fetch."""
        key = in_use.partition.key
        group = self._groups.get(key.group_id, {})
        partition = key.topic_partition
        if group.get(partition) is in_use:
            del group[partition]
            if not group:
                del self._groups[key.group_id]
        in_use.fence()

    def attempt(self, in_use: InUse, work: Callable[[], R]) -> R | None:
        """Return the result of `work`. If an invariant is violated, drop the share partition and return None.

        Its persisted state is read again at its next fetch.
        """
        try:
            return work()
        except AssertionError:
            self._give_up(in_use)
            return None

    def _give_up(self, in_use: InUse) -> None:
        """Drop a share partition whose invariant has just been violated."""
        logger.exception(
            "Giving up share partition %s until its next fetch: an invariant is violated",
            in_use.partition.key.coordinator_key,
        )
        self.forget(in_use)

    async def _attempt_steps(self, in_use: InUse, steps: SmallSteps[R], give_way: GiveWay) -> R | None:
        """Like attempt(), in steps; after each, what give_way() returns is awaited, if anything."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: R = end.value
                return result
            except AssertionError:
                self._give_up(in_use)
                return None
            turn = give_way(OFFSETS_PER_STEP)
            if turn is not None:
                await turn

    def _forget_group(self, group_id: str) -> None:
        for in_use in list(self._groups.get(group_id, {}).values()):
            self.forget(in_use)

    # -- loading --------------------------------------------------------------------------------------------------

    async def _load(self, in_use: InUse) -> None:
        machine = in_use.partition
        key, began_ms = machine.key, self._parts.clock.monotonic_ms()
        state = StateRead(key.topic_id, key.partition, machine.leader_epoch)
        try:
            read = (await self._parts.persister().read(key.group_id, [state]))[0]
            reset_offset = UNINITIALIZED_OFFSET
            if read.error_code == ErrorCode.NONE and read.start_offset == UNINITIALIZED_OFFSET:
                reset_offset = await self._reset_offset(in_use)
            refusal = machine.load(read, reset_offset)
        except ApiError as error:
            refusal = Refusal(ErrorCode(error.code), error.message)
        except (StorageError, OSError):
            refusal = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, None)
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception("Loading share partition %s failed", key.coordinator_key)
            refusal = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, None)
        if self.counts is not None:
            self.counts.record_load(self._parts.clock.monotonic_ms() - began_ms)
        if refusal is not None:
            in_use.refusal = refusal
            self.forget(in_use)
            return
        # Copies of an earlier use may be under way; they are not made twice.
        on_their_way = list(self._copying.get(key, ()))
        for letter in machine.unfinished_dead_letters():
            self._copy(in_use, left_to_copy(letter, on_their_way))
        in_use.notify()

    async def _reset_offset(self, in_use: InUse) -> int:
        """Return the offset at which a share partition without a start offset begins. Raises ApiError."""
        settings = self._parts.settings(in_use.partition.key.group_id)
        timestamp_ms = EARLIEST if settings.offset_reset == "earliest" else LATEST
        if settings.offset_reset == BY_DURATION:
            timestamp_ms = max(self._parts.clock.wall_ms() - settings.reset_duration_ms, 0)
        while True:
            log = in_use.hosted.log
            if not in_use.is_current or log is None:
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            try:
                found = find_offset(in_use.hosted, timestamp_ms, FetchIsolation.HIGH_WATERMARK, is_from_client=True)
            except NeedsWarming as cold:
                try:
                    await run_in_pool(self._parts.io_pool, cold.warm)
                except OSError as error:
                    raise log.log_dir.handle_os_error(error, f"reading {in_use.hosted.topic_partition}") from error
                continue
            if found is NOT_FOUND:
                raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, f"there is no offset for timestamp {timestamp_ms}")
            return found.offset

    # -- acknowledging --------------------------------------------------------------------------------------------

    async def acknowledge(
        self,
        key: SessionKey,
        batches: Mapping[TopicIdPartition, Sequence[AcknowledgementBatch]],
        give_way: GiveWay,
    ) -> Acknowledging:
        """Apply acknowledgements and begin to write them; the outcomes are known when the writes have ended.

        If the connection closes meanwhile, the current partition is acknowledged completely, and all changes are
        written.
        """
        outcomes: dict[TopicIdPartition, Refusal | None] = {}
        writes: list[tuple[InUse, PendingWrite]] = []
        settings = self._parts.settings(key.group_id).partition
        try:
            for partition, of_partition in batches.items():
                in_use = self.find(key.group_id, partition)
                if in_use is None:
                    outcomes[partition] = NOT_IN_USE
                else:
                    in_use.partition.configure(settings)
                    outcomes[partition] = await self._apply(key.member_id, in_use, of_partition, writes, give_way)
                turn = give_way(1)
                if turn is not None:
                    await turn
        finally:
            writing = self._begin_write(key.group_id, writes, batches) if writes else None
        return Acknowledging(outcomes, [in_use for in_use, _ in writes], writing)

    async def _apply(
        self,
        member_id: str,
        in_use: InUse,
        batches: Sequence[AcknowledgementBatch],
        writes: list[tuple[InUse, PendingWrite]],
        give_way: GiveWay,
    ) -> Refusal | None:
        """Acknowledge records of one share partition; add the resulting write to `writes`."""
        now_ms = self._parts.clock.monotonic_ms()
        steps = in_use.partition.acknowledge_steps(member_id, batches, now_ms)
        outcome = None
        try:
            outcome = await self._attempt_steps(in_use, steps, give_way)
        except asyncio.CancelledError:  # the requester is gone
            outcome = self.attempt(in_use, partial(end_of, steps))
            raise
        finally:
            if outcome is not None and outcome.write is not None:
                writes.append((in_use, outcome.write))
            elif outcome is not None and outcome.refusal is None:
                self._count(batches)
            in_use.schedule()
        return BROKEN if outcome is None else outcome.refusal

    def _begin_write(
        self,
        group_id: str,
        writes: Sequence[tuple[InUse, PendingWrite]],
        batches: Mapping[TopicIdPartition, Sequence[AcknowledgementBatch]],
    ) -> "asyncio.Future[list[Refusal | None]]":
        """Begin to write: at once if there are few state batches, else in a turn of the loop of its own."""
        work = self._write_acknowledged(group_id, writes, batches)
        is_little = sum(len(write.state_batches) for _, write in writes) <= WRITTEN_AT_ONCE
        return begin(work, self.start) if is_little else self.start(work)

    async def _write_acknowledged(
        self,
        group_id: str,
        writes: Sequence[tuple[InUse, PendingWrite]],
        batches: Mapping[TopicIdPartition, Sequence[AcknowledgementBatch]],
    ) -> list[Refusal | None]:
        """Write states, and count the written acknowledgements; return the failures."""
        refusals = await self._write(group_id, writes)
        for (in_use, _), refusal in zip(writes, refusals, strict=True):
            if refusal is None:
                self._count(batches[in_use.partition.key.topic_partition])
        return refusals

    def _count(self, batches: Sequence[AcknowledgementBatch]) -> None:
        if self.counts is not None:
            for batch in batches:
                self.counts.count_acknowledgements(batch.types, batch.record_count)

    async def _write(self, group_id: str, writes: Sequence[tuple[InUse, PendingWrite]]) -> list[Refusal | None]:
        """Write states of share partitions of one group; complete or undo the changes. Return the failures."""
        states = [in_use.partition.state_write(write) for in_use, write in writes]
        try:
            results = await self._parts.persister().write(group_id, states)
            refusals = [
                persister_refusal(each.error_code, each.error_message) if each.error_code else None for each in results
            ]
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception("Writing the state of %d share partitions of group %s failed", len(writes), group_id)
            refusals = [Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, None)] * len(writes)
        give_way = pauses(self._parts.clock)
        for (in_use, write), refusal in zip(writes, refusals, strict=True):
            await self._finish(in_use, write, refusal, give_way)
        return refusals

    async def _finish(self, in_use: InUse, write: PendingWrite, refusal: Refusal | None, give_way: GiveWay) -> None:
        steps = in_use.partition.finish_write_steps(write, refusal, self._parts.clock.monotonic_ms())
        finished = await self._attempt_steps(in_use, steps, give_way)
        if finished is None:
            return
        if refusal is not None:
            in_use.schedule()  # records whose change was undone are locked again
        if refusal is not None and refusal.error_code in FENCING:
            logger.info(
                "Giving up share partition %s: %s", in_use.partition.key.coordinator_key, refusal.error_code.name
            )
            self.forget(in_use)
            return
        self._copy(in_use, finished.dead_letters)
        in_use.notify()

    # -- dead letters ---------------------------------------------------------------------------------------------

    def _copy(self, in_use: InUse, letters: Sequence[DeadLetter]) -> None:
        for letter in letters:
            self._copying.setdefault(in_use.partition.key, []).append(letter)
            self.start(self._copy_letter(in_use, letter))

    async def _copy_letter(self, in_use: InUse, letter: DeadLetter) -> None:
        """Copy records to the dead-letter topic, then archive them, whether that succeeded or not.

        If the share partition was dropped meanwhile, its state is written nevertheless. If it is in use again, its
        records in state ARCHIVING are left to this copy, and archived after it there, too.
        """
        key = in_use.partition.key
        copying = self._copying[key]
        try:
            if self._parts.dead_letters is not None:
                await self._parts.dead_letters.copy(key, letter)
            while True:
                latest = self._latest(in_use)
                if latest.loading is not None:  # if that fails, the dropped one still has the state's epochs
                    await asyncio.wait({latest.loading})
                    continue
                in_use = latest
                await self._archive(in_use, letter)
                if self._latest(in_use) is in_use:
                    break
        finally:
            copying.remove(letter)
            if not copying:
                self._copying.pop(key, None)

    def _latest(self, in_use: InUse) -> InUse:
        """Return the share partition that has replaced a dropped one; without any, the dropped one."""
        key = in_use.partition.key
        return self._groups.get(key.group_id, {}).get(key.topic_partition, in_use)

    async def _archive(self, in_use: InUse, letter: DeadLetter) -> None:
        """Archive the records of a letter. Letters whose copies end in one pass of the loop share a write."""
        under_way = self._archiving.get(in_use)
        if under_way is None:
            letters: list[DeadLetter] = []
            under_way = self._archiving[in_use] = letters, self.start(self._archive_all(in_use, letters))
        under_way[0].append(letter)
        await asyncio.shield(under_way[1])

    async def _archive_all(self, in_use: InUse, letters: list[DeadLetter]) -> None:
        await asyncio.sleep(0)
        del self._archiving[in_use]
        write = self.attempt(in_use, lambda: in_use.partition.archive_copied(*letters))
        if write is not None:
            await self._write(in_use.partition.key.group_id, [(in_use, write)])

    # -- sessions, time-outs --------------------------------------------------------------------------------------

    def end_session(self, key: SessionKey) -> None:
        """End a member's session: its records are released."""
        ended = self.sessions.end(key)
        if ended is not None:
            self.session_ends.release([ended])

    def connection_closed(self, connection: object) -> None:
        """End the sessions of a connection."""
        self.session_ends.release(self.sessions.close_connection(connection))

    def on_due(self, in_use: InUse) -> None:
        if not in_use.is_current:
            self.forget(in_use)
            return
        key = in_use.partition.key
        in_use.partition.configure(self._parts.settings(key.group_id).partition)
        write = self.attempt(in_use, partial(in_use.partition.expire, self._parts.clock.monotonic_ms()))
        in_use.schedule()
        if write is not None:
            self.start_write(key.group_id, [(in_use, write)])
            in_use.notify()

    def start_write(self, group_id: str, writes: Sequence[tuple[InUse, PendingWrite]]) -> None:
        """Write states of share partitions of one group, in a task that no connection owns."""
        self.start(self._write(group_id, writes))

    def start(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
