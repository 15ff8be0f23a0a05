"""Runs one coordinator shard on its partition: decide -> append -> replay -> respond once committed.

Append and replay are plain calls with no await in between, so the shard always equals its log. A response is sent when
the high watermark has passed everything that the shard had replayed when the response was made, so that no failover
undoes what a client was told. With no other replica in the ISR this holds at once, and the request never suspends. A
decision's effects are carried out at the same moment. If the partition moves away or its log fails, pending requests
fail with an error that makes clients look for another coordinator.

The host works for any kind of coordinator: a shard is anything with `replay`, a decision anything with the fields of
`Decision`, and `CoordinatorLog` defines how the kind's records are written.

Decisions that do not depend on each other may share a write (shared_write.py): they are appended as one batch, and
replayed then, at the end of the event loop's pass or before anything else reads the shard.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from kafkapy.dataclass import dataclass
from kafkapy.errors import ApiError
from kafkapy.native import mypyc_attr
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.primitives import EncodeError
from kafkapy.record.batch import HEADER_BYTES, NO_SEQUENCE
from kafkapy.record.builder import NewRecord, build_batch
from kafkapy.record.compression import NONE
from kafkapy.record.validate import AppendOrigin
from kafkapy.replication.delayed_produce import PartitionAppend
from kafkapy.replication.replica_manager import ALL_ACKS, ReplicaManager
from kafkapy.runtime.commit_waits import CommitWait, EffectWait, settle
from kafkapy.runtime.shared_write import SharedWrite, SharingRule
from kafkapy.seams import Clock
from kafkapy.storage.log.own_append import append_own_records
from kafkapy.timer.purgatory import DelayedOperation
from kafkapy.timer.wheel import TimerEntry, TimingWheel

if TYPE_CHECKING:
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.runtime.markers import Marker
    from kafkapy.storage.log.log import Log
    from kafkapy.storage.producers.state import VerificationGuard

RECORD_OVERHEAD_BYTES: Final = 40
"""Upper bound of a record's overhead beside key and value. Used to split batches."""
FIRST_SEQUENCE: Final = 0
"""The base sequence of coordinator batches that have one, as in Kafka; no log checks it."""

_TRANSLATED: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""How errors of an append are reported to the coordinator's clients, which know nothing of the log."""


class HostState(Enum):
    LOADING = "reads its log"
    ACTIVE = "serves"
    FAILED = "could not read its log"
    CLOSED = "has lost its partition"


class RecordCodec(Protocol):
    """Encodes and decodes the records of one kind; a module with these functions satisfies it."""

    def encode_record(self, record: Any, timestamp_ms: int, /) -> NewRecord: ...

    def decode_record(self, key: bytes | None, value: bytes | None, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class CoordinatorLog:
    """How a kind of coordinator writes and reads its topic; the callables return current configuration values."""

    codec: RecordCodec
    compression: Callable[[], int]
    commit_timeout_ms: Callable[[], int]
    load_buffer_bytes: Callable[[], int]
    base_sequence: int = NO_SEQUENCE
    """Of batches without a producer: Kafka's group coordinator writes 0, its transaction coordinator none."""


class Decision(Protocol):
    """What a shard returns. `response` None: a later reply with the same token answers the request.

    effects: carried out once the records are committed. on_failed(error code): called if the records cannot be
    appended; returns the replies to send in that case.
    """

    @property
    def response(self) -> Any: ...
    @property
    def records(self) -> Sequence[Any]: ...
    @property
    def replies(self) -> Sequence[Any]: ...
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


@dataclass(frozen=True, slots=True)
class TransactionalWrite:
    """The producer in whose transaction a decision's records are written, with its verification guard."""

    producer_id: int
    producer_epoch: int
    verification: "VerificationGuard | None" = None


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
        self._append_refusal: ErrorCode | None = None
        """The error of the last append; None if it succeeded."""
        self._shared: SharedWrite | None = None
        """Decisions that wait for others to be written with them."""
        self._sharing = SharingRule()
        self._next_token = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        """Requests that a later decision answers, by token."""

    @property
    def log(self) -> "Log":
        """The partition's current log; it changes when the replica moves to another log directory."""
        assert self.partition.log is not None
        return self.partition.log

    @property
    def is_led_here(self) -> bool:
        """Whether this node still leads the partition in the epoch for which the shard was created."""
        return self.partition.is_leader and self.partition.leader_epoch == self.leader_epoch

    @property
    def is_active(self) -> bool:
        return self.state is HostState.ACTIVE and self.is_led_here

    def is_loading(self) -> bool:
        return self.state is HostState.LOADING and self.is_led_here

    @property
    def has_failed(self) -> bool:
        return self.state is HostState.FAILED

    # -- for subclasses -------------------------------------------------------------------------------------------

    def on_active(self) -> None:
        """Called when the log has been replayed and requests may begin."""

    def on_decided(self, key: str) -> None:
        """Called after a decision for this key was carried out; its deadlines may have changed."""

    def carry_out_effect(self, effect: Any) -> None:
        """Carry out one effect of a decision whose records are committed."""
        raise AssertionError(f"nobody carries out {effect}")

    def describe_load(self) -> str:
        """Return what was loaded, for the log line."""
        return "done"

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None:
        """Called for a transaction marker in the log: the transaction of this producer ended."""
        raise AssertionError(f"a transaction marker in {self.partition.topic_partition}")

    # -- requests -------------------------------------------------------------------------------------------------

    async def call(
        self,
        key: str,
        decide: Callable[[ShardT, int, int], Decision],
        write: TransactionalWrite | None = None,
        *,
        shares_write: bool = False,
    ) -> Any:
        """Decide, append (in a transaction, with `write`), replay; return the response once committed.

        `decide(shard, token, now_ms)`. shares_write: the decision has a response and nothing else but records, and
        those of other such decisions would not change it. Raises ApiError.
        """
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
            self._carry_out(decision, write)
        self.on_decided(key)
        await self.committed()
        return decision.response

    def try_call(self, key: str, decide: Callable[[ShardT, int], Decision]) -> Any:
        """As `call` for a decision with a response; None if that must wait for the commit: then call again and wait.

        `decide(shard, wall clock ms)`. Raises ApiError.
        """
        self.check_active()
        self.write_shared()
        decision = decide(self.shard, self._clock.wall_ms())
        assert decision.response is not None
        self._carry_out(decision)
        self.on_decided(key)
        return decision.response if self.log.is_committed(self.replayed_offset) else None

    async def _answered_later(self, key: str, decision: Decision, token: int) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[token] = future
        try:
            self._carry_out(decision)
        except ApiError as error:
            if decision.on_failed is None:
                settle(future, error)
        try:
            self.on_decided(key)
            return await future
        finally:
            self._waiting.pop(token, None)

    async def committed(self) -> None:
        """Wait until everything that the shard has replayed so far is committed. Raises ApiError."""
        if self.log.is_committed(self.replayed_offset):
            return
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._settle_when_committed([(future, None)])
        await future

    def check_active(self) -> None:
        """Raise COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR unless the shard is active."""
        if self.is_loading():
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if not self.is_active:
            raise ApiError(ErrorCode.NOT_COORDINATOR)

    def carry_out(self, decide: Callable[[ShardT], Decision]) -> None:
        """Carry out a decision that no request waits for. Raises ApiError if it cannot be appended."""
        if self.is_active:
            self.write_shared()
            self._carry_out(decide(self.shard))

    def write_shared(self) -> None:
        """Write and replay the decisions that wait to share a write. Call it before reading what they may change.

        If they cannot be appended, their requests get the error.
        """
        shared = self._shared
        if shared is None:
            return
        self._shared = None
        self._sharing.note_written(shared.decision_count)
        if not self.is_active:
            return
        try:
            self._append_and_replay(shared.encoded, shared.records, None)
        except ApiError as error:
            shared.error = error
        else:
            shared.error = None

    def _share_write(self, decision: Decision) -> SharedWrite:
        """Add a decision to those that wait for a write, and return that write. Raises ApiError (no encoding)."""
        assert not decision.replies
        assert not decision.effects
        shared = self._shared
        timestamp_ms = self._clock.wall_ms() if shared is None else shared.timestamp_ms
        encoded = self._encoded(decision.records, timestamp_ms)
        size_bytes = sum(map(_size_bound, encoded))
        if shared is not None and shared.size_bytes + size_bytes > self._max_batch_bytes():
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

    def fail(self) -> None:
        """Mark the shard as failed: its log could not be read."""
        self.state = HostState.FAILED

    def close(self, code: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """Stop serving; pending requests fail with `code`."""
        self.state = HostState.CLOSED
        self.cancel()
        if self._shared is not None:
            self._shared.error, self._shared = ApiError(code), None
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            settle(future, ApiError(code))

    # -- decide, append, replay -----------------------------------------------------------------------------------

    def _carry_out(self, decision: Decision, write: TransactionalWrite | None = None) -> None:
        """Append and replay a decision's records, then handle its replies. Raises ApiError if the append fails."""
        if decision.records:
            try:
                self._write(decision, write)
            except ApiError as error:
                self._settle_failed(decision, error)
                raise
        if decision.replies:
            self._settle_when_committed(self._take_waiting(decision.replies))
        if decision.effects:
            self._carry_out_when_committed(decision.effects)

    def _settle_failed(self, decision: Decision, error: ApiError) -> None:
        if decision.on_failed is not None:
            answers = self._take_waiting(decision.on_failed(error.code))
        else:
            answers = [(future, error) for future, _ in self._take_waiting(decision.replies)]
        for future, response in answers:
            settle(future, response)

    def _encoded(self, records: Sequence[Any], timestamp_ms: int) -> list[NewRecord]:
        encode_record = self.coordinator_log.codec.encode_record
        try:
            return [encode_record(record, timestamp_ms) for record in records]
        except EncodeError as error:
            self._logger.error("Could not encode a record for %s: %s", self.partition.topic_partition, error)
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR) from error

    def _write(self, decision: Decision, write: TransactionalWrite | None) -> None:
        assert self._shared is None, "those that share a write were decided before"
        encoded = self._encoded(decision.records, self._clock.wall_ms())
        if decision.is_atomic:
            self._append_and_replay(encoded, decision.records, write)
            return
        for start, end in self._cuts(encoded):
            self._append_and_replay(encoded[start:end], decision.records[start:end], write)

    def _append_and_replay(
        self, encoded: Sequence[NewRecord], records: Sequence[Any], write: TransactionalWrite | None
    ) -> None:
        base_offset = self._append(encoded, write)
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

    def _append(self, encoded: Sequence[NewRecord], write: TransactionalWrite | None) -> int:
        """Append one batch and return its base offset. Raises ApiError with the code for the coordinator's clients."""
        append = PartitionAppend(self.partition, b"")
        compression = self.coordinator_log.compression()
        if write is not None or compression != NONE or not self._append_own(append, encoded):
            append.records = bytearray(self._batch_of(encoded, compression, write))
            append.verification = None if write is None else write.verification
            self._replica_manager.append_records([append], required_acks=ALL_ACKS, origin=AppendOrigin.COORDINATOR)
        if append.base_offset < 0:
            code = ErrorCode(append.error_code)
            if code is not self._append_refusal:  # log it once, not for each request
                self._append_refusal = code
                self._logger.warning("Could not append to %s: %s", self.partition.topic_partition, code.name)
            raise ApiError(_TRANSLATED.get(code, code))
        self._append_refusal = None
        return append.base_offset

    def _append_own(self, append: PartitionAppend, encoded: Sequence[NewRecord]) -> bool:
        """Append a batch as it is encoded here; False if it must be checked like any other (own_append.py)."""
        now_ms, base_sequence = encoded[0][0], self.coordinator_log.base_sequence

        def write(log: "Log", leader_epoch: int) -> bool:
            return append_own_records(
                log, encoded, leader_epoch=leader_epoch, now_ms=now_ms, base_sequence=base_sequence
            )

        return self._replica_manager.append_own(append, write)

    def _batch_of(self, encoded: Sequence[NewRecord], compression: int, write: TransactionalWrite | None) -> bytes:
        if write is None:
            return build_batch(encoded, compression=compression, base_sequence=self.coordinator_log.base_sequence)
        return build_batch(
            encoded,
            compression=compression,
            producer_id=write.producer_id,
            producer_epoch=write.producer_epoch,
            base_sequence=FIRST_SEQUENCE,
            is_transactional=True,
        )

    def append_markers(self, markers: "Sequence[Marker]") -> "list[PartitionAppend]":
        """End transactions in this partition: append their markers and replay them.

        Returns the append of each marker, to wait for like any other append. Raises ApiError as `check_active` does.
        """
        from kafkapy.runtime.markers import append_markers

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

    def _cuts(self, encoded: Sequence[NewRecord]) -> Iterable[tuple[int, int]]:
        """Yield index ranges of records, each of which fits into one batch."""
        limit = self._max_batch_bytes()
        start, size_bytes = 0, HEADER_BYTES
        for index, record in enumerate(encoded):
            record_bytes = _size_bound(record)
            if index > start and size_bytes + record_bytes > limit:
                yield start, index
                start, size_bytes = index, HEADER_BYTES
            size_bytes += record_bytes
        yield start, len(encoded)

    def _max_batch_bytes(self) -> int:
        return min(self.log.config.max_message_bytes, self.log.config.segment_bytes)

    # -- once committed -------------------------------------------------------------------------------------------

    def _take_waiting(self, replies: Iterable[Any]) -> list[tuple[asyncio.Future[Any], Any]]:
        """Return the futures of the replies' requests, without those that are no longer waiting."""
        taken = ((self._waiting.pop(reply.token, None), reply.response) for reply in replies)
        return [(future, response) for future, response in taken if future is not None]

    def _settle_when_committed(self, answers: list[tuple[asyncio.Future[Any], Any]]) -> None:
        if self.log.is_committed(self.replayed_offset):
            for future, response in answers:
                settle(future, response)
            return
        self._watch(CommitWait(self, answers))

    def _carry_out_when_committed(self, effects: Sequence[Any]) -> None:
        if self.log.is_committed(self.replayed_offset):
            for effect in effects:
                self.carry_out_effect(effect)
            return
        self._watch(EffectWait(self, effects, self.replayed_offset))

    def watch_effects(self, effects: Sequence[Any], required_offset: int) -> None:
        """After a time-out, keep waiting for the commit of these effects' records: the decision stands."""
        if self.is_active:
            self._watch(EffectWait(self, effects, required_offset))

    def _watch(self, operation: DelayedOperation) -> None:
        timeout_ms = self.coordinator_log.commit_timeout_ms()
        self._replica_manager.wait_for_commit(operation, self.partition, timeout_ms=timeout_ms)


def _size_bound(record: NewRecord) -> int:
    """Return an upper bound of the record's size in a batch."""
    _, key, value, _ = record
    return len(key or b"") + len(value or b"") + RECORD_OVERHEAD_BYTES
