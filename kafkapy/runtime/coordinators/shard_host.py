"""Runs one coordinator shard on its partition: decide -> append -> replay -> respond once committed.

Append and replay are plain calls with no await in between, so the shard always equals its log. A response is sent when
the high watermark has passed everything that the shard had replayed when the response was made, so that no failover
undoes what a response has reported. With no other replica in the ISR this holds at once, and the request never
suspends. A decision's effects are carried out at the same moment. If the partition moves away or its log fails, pending
requests fail with an error that makes clients look for another coordinator.

The host works for any kind of coordinator: a shard is anything with `replay`, a decision anything with the fields of
`ShardDecision`, and `CoordinatorLog` defines how the kind's records are written (writer.py).

Decisions that do not depend on each other may share a write (shared_write.py): they are appended as one batch, and
replayed then, at the end of the event loop's pass or before anything else reads the shard.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kafkapy.errors import ApiError
from kafkapy.native import mypyc_attr
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.record.builder import NewRecord
from kafkapy.replication.delayed_produce import PartitionAppend
from kafkapy.replication.partition import Role
from kafkapy.replication.replica_manager import ReplicaManager
from kafkapy.runtime.coordinators.commit_waits import CommitWait, EffectWait, set_outcome
from kafkapy.runtime.coordinators.shared_write import SharedWrite, SharingRule
from kafkapy.runtime.coordinators.writer import CoordinatorLog, CoordinatorWriter, TransactionalWrite, size_bound
from kafkapy.seams import Clock
from kafkapy.timer.purgatory import DelayedOperation
from kafkapy.timer.wheel import TimerEntry, TimingWheel

if TYPE_CHECKING:
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.runtime.coordinators.markers import Marker
    from kafkapy.storage.log.log import Log


class HostState(Enum):
    """LOADING becomes ACTIVE or FAILED; each of the three ends as CLOSED."""

    LOADING = "reads its log"
    ACTIVE = "serves"
    FAILED = "could not read its log, or replay a record of it"
    CLOSED = "has lost its partition"


class ShardDecision(Protocol):
    """The result of a shard. `response` None: a later ParkedResponse with the same token answers the request.

    effects: carried out once the records are committed. on_failed(error code): called if the records cannot be
    appended; returns the responses to send in that case.
    """

    @property
    def response(self) -> Any: ...
    @property
    def records(self) -> Sequence[Any]: ...
    @property
    def parked_responses(self) -> Sequence[Any]: ...
    @property
    def effects(self) -> Sequence[Any]: ...
    @property
    def on_failed(self) -> Callable[[int], Iterable[Any]] | None: ...
    @property
    def is_atomic(self) -> bool: ...


class Shard(Protocol):
    """The state machine of one partition, as the host uses it."""

    def replay(self, record: Any, record_offset: int, producer_id: int = -1, /) -> None: ...


ShardT = TypeVar("ShardT", bound=Shard)


@mypyc_attr(allow_interpreted_subclasses=True)
class ShardHost(TimerEntry, Generic[ShardT]):
    """Runs a shard on its partition. Created when this node becomes leader; `activate` it after the log is replayed."""

    def __init__(
        self,
        partition: "HostedPartition",
        shard: ShardT,
        coordinator_log: CoordinatorLog,
        *,
        replica_manager: ReplicaManager,
        clock: Clock,
        wheel: TimingWheel,
        logger: logging.Logger,
    ) -> None:
        super().__init__()
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.shard = shard
        self.state = HostState.LOADING
        self.replayed_offset = self.log.log_start_offset
        """All records before this offset are in the shard."""
        self.coordinator_log = coordinator_log
        self._replica_manager = replica_manager
        self._clock = clock
        self._wheel = wheel
        self._logger = logger
        self._writer = CoordinatorWriter(partition, coordinator_log, replica_manager, logger)
        self._shared: SharedWrite | None = None
        """Decisions that wait for others to be written with them."""
        self._sharing = SharingRule()
        self._next_token = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        """Requests that a later decision answers, by token."""
        self._put_off: list[Callable[[ShardT], ShardDecision]] = []
        """Decisions to be made once the shard is loaded."""

    @property
    def log(self) -> "Log":
        """The partition's current log; it changes when the replica moves to another log directory."""
        assert self.partition.log is not None
        return self.partition.log

    @property
    def is_led_here(self) -> bool:
        """Whether this node still leads the partition in the epoch for which the shard was created."""
        partition = self.partition
        return partition.role is Role.LEADER and partition.leader_epoch == self.leader_epoch

    @property
    def is_active(self) -> bool:
        partition = self.partition  # as is_led_here, which would be a call more for each request
        return (
            self.state is HostState.ACTIVE
            and partition.role is Role.LEADER
            and partition.leader_epoch == self.leader_epoch
        )

    def is_loading(self) -> bool:
        return self.state is HostState.LOADING and self.is_led_here

    @property
    def has_failed(self) -> bool:
        return self.state is HostState.FAILED

    # -- for subclasses -------------------------------------------------------------------------------------------

    def complete_load(self) -> Iterator[None]:
        """Do in steps what is to be done after the log has been replayed, and before the shard is active."""
        return iter(())

    def on_active(self) -> None:
        """Called when the log has been replayed and requests may begin."""

    def on_decided(self, key: str) -> None:
        """Called after a decision for this key was carried out; its deadlines may have changed."""

    def run_effect(self, effect: Any) -> None:
        """Carry out one effect of a decision whose records are committed."""
        raise AssertionError(f"nobody carries out {effect}")

    def describe_load(self) -> str:
        """Return the result of the load in words, for the log line."""
        return "done"

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None:
        """Called for a transaction marker in the log: the transaction of this producer ended."""
        raise AssertionError(f"a transaction marker in {self.partition.topic_partition}")

    # -- requests -------------------------------------------------------------------------------------------------

    async def call(
        self,
        key: str,
        decide: Callable[[ShardT, int, int], ShardDecision],
        write: TransactionalWrite | None = None,
        *,
        shares_write: bool = False,
    ) -> Any:
        """Decide, append (in a transaction, with `write`), replay; return the response once committed.

        `decide(shard, token, now_ms)`. shares_write: the decision has a response and nothing else but records, and
        those of other such decisions would not change it. Raises ApiError.
        """
        if not self.is_active:  # else check_active would be a call more for each request
            self.check_active()
        if not shares_write:
            self.write_shared()
        token = self._next_token
        self._next_token += 1
        now_ms = self._clock.monotonic_ms()
        decision = decide(self.shard, token, now_ms)
        if decision.response is None:
            return await self._answered_later(key, decision, token)
        if shares_write and decision.records and (self._sharing.is_crowded(now_ms) or self._shared is not None):
            shared = self._share_write(decision)
            await asyncio.sleep(0)  # resumed in the loop's next pass: all requests that this one reads are decided then
            if self._shared is shared:
                self.write_shared()
            if shared.error is not None:
                raise shared.error
        else:
            self._apply_decision(decision, write)
        self.on_decided(key)
        await self.committed()
        return decision.response

    def try_call(self, key: str, decide: Callable[[ShardT, int], ShardDecision]) -> Any:
        """Like `call` for a decision with a response; None if that must wait for the commit: then call again and wait.

        `decide(shard, wall clock ms)`. Raises ApiError.
        """
        self.check_active()
        self.write_shared()
        decision = decide(self.shard, self._clock.wall_ms())
        assert decision.response is not None
        self._apply_decision(decision)
        self.on_decided(key)
        return decision.response if self.log.is_committed(self.replayed_offset) else None

    async def _answered_later(self, key: str, decision: ShardDecision, token: int) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[token] = future
        try:
            self._apply_decision(decision)
        except ApiError as error:
            if decision.on_failed is None:
                set_outcome(future, error)
        try:
            self.on_decided(key)
            return await future
        finally:
            self._waiting.pop(token, None)

    async def committed(self) -> None:
        """Wait until everything that the shard has replayed so far is committed. Raises ApiError."""
        log = self.partition.log  # as self.log, which would be a call more for each request
        assert log is not None
        if log.is_committed(self.replayed_offset):
            return
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._respond_when_committed([(future, None)])
        await future

    def check_active(self) -> None:
        """Raise COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR unless the shard is active."""
        if not self.is_active:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self.is_loading() else ErrorCode.NOT_COORDINATOR)

    def decide_and_append(self, decide: Callable[[ShardT], ShardDecision]) -> None:
        """Carry out a decision that no request waits for. Raises ApiError if it cannot be appended.

        While the shard is loading, it is put off until that has ended.
        """
        if self.is_active:
            self.write_shared()
            self._apply_decision(decide(self.shard))
        elif self.is_loading():
            self._put_off.append(decide)

    def write_shared(self) -> None:
        """Write and replay the decisions that wait to share a write. Call it before reading what they may change.

        If they cannot be appended, their requests get the error.
        """
        shared = self._shared
        if shared is None:
            return
        self._shared = None
        self._sharing.mark_written(shared.decision_count)
        if not self.is_active:
            return
        try:
            self._append_and_replay(shared.encoded, shared.records, None)
        except ApiError as error:
            shared.error = error
        else:
            shared.error = None

    def _share_write(self, decision: ShardDecision) -> SharedWrite:
        """Add a decision to those that wait for a write, and return that write. Raises ApiError (no encoding)."""
        assert not decision.parked_responses
        assert not decision.effects
        shared = self._shared
        timestamp_ms = self._clock.wall_ms() if shared is None else shared.timestamp_ms
        encoded = self._writer.encoded(decision.records, timestamp_ms)
        size_bytes = sum(map(size_bound, encoded))
        if shared is not None and shared.size_bytes + size_bytes > self._writer.max_batch_bytes():
            self.write_shared()
            shared = None
        if shared is None:
            shared = self._shared = SharedWrite(timestamp_ms)
        shared.add(encoded, decision.records, size_bytes)
        return shared

    # -- the shard's life -----------------------------------------------------------------------------------------

    def activate(self) -> None:
        """Start to serve requests, after the log has been replayed."""
        assert self.state is HostState.LOADING
        self.state = HostState.ACTIVE
        self.on_active()
        put_off, self._put_off = self._put_off, []
        for decide in put_off:
            try:
                self.decide_and_append(decide)
            except ApiError as error:
                self._logger.warning(
                    "Could not write what was decided while %s was loading: %s", self.partition.topic_partition, error
                )

    def fail(self) -> None:
        """Stop serving, because the log could not be read, or a record of it not be replayed; fail what is pending."""
        self.close()
        self.state = HostState.FAILED

    def close(self, code: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """Stop serving; pending requests fail with `code`."""
        self.state = HostState.CLOSED
        self.cancel()
        if self._shared is not None:
            self._shared.error, self._shared = ApiError(code), None
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            set_outcome(future, ApiError(code))

    # -- decide, append, replay -----------------------------------------------------------------------------------

    def _apply_decision(self, decision: ShardDecision, write: TransactionalWrite | None = None) -> None:
        """Append and replay a decision's records, then handle its responses. Raises ApiError if the append fails."""
        if decision.records:
            try:
                self._write(decision, write)
            except ApiError as error:
                self._respond_failed(decision, error)
                raise
        if decision.parked_responses:
            self._respond_when_committed(self._pop_waiting(decision.parked_responses))
        if decision.effects:
            self._run_when_committed(decision.effects)

    def _respond_failed(self, decision: ShardDecision, error: ApiError) -> None:
        if decision.on_failed is not None:
            responses = self._pop_waiting(decision.on_failed(error.code))
        else:
            responses = [(future, error) for future, _ in self._pop_waiting(decision.parked_responses)]
        for future, response in responses:
            set_outcome(future, response)

    def _write(self, decision: ShardDecision, write: TransactionalWrite | None) -> None:
        assert self._shared is None, "those that share a write were decided before"
        encoded = self._writer.encoded(decision.records, self._clock.wall_ms())
        if decision.is_atomic:
            self._append_and_replay(encoded, decision.records, write)
            return
        for start, end in self._writer.cuts(encoded):
            self._append_and_replay(encoded[start:end], decision.records[start:end], write)

    def _append_and_replay(
        self, encoded: Sequence[NewRecord], records: Sequence[Any], write: TransactionalWrite | None
    ) -> None:
        base_offset = self._writer.append(encoded, write)
        assert base_offset >= self.replayed_offset, "a record would be replayed twice, or after a later one"
        producer_id = -1 if write is None else write.producer_id
        try:
            for offset, record in enumerate(records, base_offset):
                self.shard.replay(record, offset, producer_id)
        except Exception:
            self._logger.critical(
                "Unloading the shard of %s: a record was appended but could not be replayed",
                self.partition.topic_partition,
            )
            self.fail()
            raise
        self.replayed_offset = base_offset + len(records)

    def append_markers(self, markers: "Sequence[Marker]") -> "list[PartitionAppend]":
        """End transactions in this partition: append their markers and replay them.

        Returns the append of each marker, to wait for like any other append. Raises ApiError as `check_active` does.
        """
        from kafkapy.runtime.coordinators.markers import append_markers

        self.check_active()
        self.write_shared()
        return append_markers(
            self._replica_manager,
            self.partition,
            markers,
            timestamp_ms=self._clock.wall_ms(),
            on_appended=self._replay_appended_marker,
        )

    def _replay_appended_marker(self, marker: "Marker", offset: int) -> None:
        self.replay_marker(marker.producer_id, is_commit=marker.is_commit)
        self.replayed_offset = offset + 1

    # -- once committed -------------------------------------------------------------------------------------------

    def _pop_waiting(self, parked_responses: Iterable[Any]) -> list[tuple[asyncio.Future[Any], Any]]:
        """Return the futures of the responses' requests, without those that are no longer waiting."""
        taken = ((self._waiting.pop(parked.token, None), parked.response) for parked in parked_responses)
        return [(future, response) for future, response in taken if future is not None]

    def _respond_when_committed(self, responses: list[tuple[asyncio.Future[Any], Any]]) -> None:
        if self.log.is_committed(self.replayed_offset):
            for future, response in responses:
                set_outcome(future, response)
            return
        self._watch(CommitWait(self, responses))

    def _run_when_committed(self, effects: Sequence[Any]) -> None:
        if self.log.is_committed(self.replayed_offset):
            for effect in effects:
                self.run_effect(effect)
            return
        self._watch(EffectWait(self, effects, self.replayed_offset))

    def watch_effects(self, effects: Sequence[Any], required_offset: int) -> None:
        """After a time-out, keep waiting for the commit of these effects' records: the decision remains valid."""
        if self.is_active:
            self._watch(EffectWait(self, effects, required_offset))

    def _watch(self, operation: DelayedOperation) -> None:
        timeout_ms = self.coordinator_log.commit_timeout_ms()
        self._replica_manager.wait_for_commit(operation, self.partition, timeout_ms=timeout_ms)
