"""Runs one coordinator shard on its partition: decide -> append -> replay -> answer once committed.

Append and replay are plain calls with nothing awaited between, so the shard equals its log at all times. An answer
leaves when the high watermark has passed all that the shard had replayed when it was given, so that no failover takes
back what a client was told; with nobody else in the ISR that is at once, and the request never suspends. Where the
partition moves away or its log fails, what waits is told to look for another coordinator.

One timer in the wheel wakes the groups that are due. Longer work (expiry, loading) is done in slices.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kafkapy.errors import ApiError
from kafkapy.group.decision import GroupDecision, Reply
from kafkapy.group.records import CoordinatorRecord, encode_record
from kafkapy.group.shard import GroupShard
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.produce_response import PartitionProduceResponse
from kafkapy.protocol.primitives import EncodeError
from kafkapy.record.builder import NewRecord, build_batch
from kafkapy.record.validate import AppendOrigin
from kafkapy.replication.delayed_produce import PartitionAppend
from kafkapy.replication.replica_manager import ALL_ACKS, ReplicaManager
from kafkapy.seams import Clock
from kafkapy.timer.purgatory import DelayedOperation
from kafkapy.timer.wheel import TimerEntry, TimingWheel

if TYPE_CHECKING:
    from kafkapy.replication.hosted import HostedPartition
    from kafkapy.storage.log.log import Log

logger = logging.getLogger("kafkapy.group")

Decide: TypeAlias = Callable[[GroupShard, int, int], GroupDecision]
"""Given the shard, the request's token and the monotonic time in ms."""

RECORD_OVERHEAD_BYTES: Final = 40
"""What a record has beside key and value, at most, and its share of the batch's header: for cutting batches."""
GROUPS_PER_SLICE: Final = 100
"""Groups whose offsets are looked at for expiry before others get their turn: about a millisecond."""

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
"""What an append can fail with, as a client of the coordinator is told; it knows nothing of the log below."""


class HostState(Enum):
    LOADING = "reads its log"
    ACTIVE = "serves"
    FAILED = "could not read its log"
    CLOSED = "has lost its partition"


class ShardHost(TimerEntry):
    """See the module's text. Made when the partition becomes led here; `activate` once its log is replayed."""

    def __init__(
        self,
        partition: "HostedPartition",
        shard: GroupShard,
        *,
        replica_manager: ReplicaManager,
        clock: Clock,
        wheel: TimingWheel,
    ) -> None:
        super().__init__()
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.shard = shard
        self.state = HostState.LOADING
        self.replayed_offset = self.log.log_start_offset
        """All before it is in the shard."""
        self._replica_manager = replica_manager
        self._clock = clock
        self._wheel = wheel
        self._next_token = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        """Requests that a later decision answers, by token."""

    @property
    def log(self) -> "Log":
        """The partition's log, another one once the replica has moved to another log directory."""
        assert self.partition.log is not None
        return self.partition.log

    @property
    def is_led_here(self) -> bool:
        """Whether the partition is still the one that the shard was loaded from."""
        return self.partition.is_leader and self.partition.leader_epoch == self.leader_epoch

    def is_loading(self) -> bool:
        return self.state is HostState.LOADING and self.is_led_here

    @property
    def has_failed(self) -> bool:
        return self.state is HostState.FAILED

    # -- requests -------------------------------------------------------------------------------------------------

    async def call(self, group_id: str, decide: Decide) -> Any:
        """Decide, append, replay; return the response once committed. Raises ApiError."""
        self.check_active()
        token = self._next_token
        self._next_token += 1
        decision = decide(self.shard, token, self._clock.monotonic_ms())
        if decision.response is None:
            return await self._answered_later(group_id, decision, token)
        self._carry_out(decision)
        self._note_deadline(group_id)
        await self.committed()
        return decision.response

    async def _answered_later(self, group_id: str, decision: GroupDecision, token: int) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[token] = future
        try:
            self._carry_out(decision)
        except ApiError as error:
            if decision.on_failed is None:
                _settle(future, error)
        try:
            self._note_deadline(group_id)
            return await future
        finally:
            self._waiting.pop(token, None)

    async def committed(self) -> None:
        """Wait until all that the shard has replayed so far is committed. Raises ApiError."""
        if self.log.high_watermark >= self.replayed_offset:
            return
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._settle_when_committed([(future, None)])
        await future

    def check_active(self) -> None:
        """Raise COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR unless the shard can be asked."""
        if self.is_loading():
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if self.state is not HostState.ACTIVE or not self.is_led_here:
            raise ApiError(ErrorCode.NOT_COORDINATOR)

    # -- the shard's life -----------------------------------------------------------------------------------------

    def activate(self) -> None:
        """The log has been replayed: begin to serve."""
        assert self.state is HostState.LOADING
        self.state = HostState.ACTIVE
        self.shard.on_loaded(self._clock.monotonic_ms())
        self._arm()

    def fail(self) -> None:
        """The log could not be read."""
        self.state = HostState.FAILED

    def close(self, code: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """Stop serving; requests that wait are answered with `code`."""
        self.state = HostState.CLOSED
        self.cancel()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            _settle(future, ApiError(code))

    def on_timeout(self, now_ms: int) -> None:
        """Wake the groups whose time has come."""
        if self.state is not HostState.ACTIVE or not self.is_led_here:
            return
        for group_id in self.shard.due_groups(now_ms):
            try:
                self._carry_out(self.shard.on_time(group_id, now_ms))
            except ApiError as error:
                logger.warning("Group %s: what the time demands was not written: %s", group_id, error)
            self.shard.note_deadline(group_id)
        self._arm()

    async def expire_offsets(self) -> None:
        """Remove what has expired, in slices."""
        for index, group_id in enumerate(list(self.shard.groups)):
            if self.state is not HostState.ACTIVE or not self.is_led_here:
                return
            self._carry_out(self.shard.expire(group_id))
            if index % GROUPS_PER_SLICE == GROUPS_PER_SLICE - 1:
                await asyncio.sleep(0)

    def carry_out(self, decide: Callable[[GroupShard], GroupDecision]) -> None:
        """Carry out what nobody waits for. Raises ApiError where it cannot be appended."""
        if self.state is HostState.ACTIVE and self.is_led_here:
            self._carry_out(decide(self.shard))

    def _note_deadline(self, group_id: str) -> None:
        self.shard.note_deadline(group_id)
        deadline_ms = self.shard.deadline_ms()
        if deadline_ms is not None and (not self.is_scheduled or deadline_ms < self.deadline_ms):
            self._arm()

    def _arm(self) -> None:
        deadline_ms = self.shard.deadline_ms()
        self.cancel()
        if deadline_ms is not None and self.state is HostState.ACTIVE:
            self._wheel.add(self, deadline_ms)

    # -- decide, append, replay -----------------------------------------------------------------------------------

    def _carry_out(self, decision: GroupDecision) -> None:
        """Append and replay a decision's records, see to its replies. Raises ApiError where they are not appended."""
        if decision.records:
            try:
                self._write(decision)
            except ApiError as error:
                self._settle_failed(decision, error)
                raise
        if decision.replies:
            self._settle_when_committed(self._take_waiting(decision.replies))

    def _settle_failed(self, decision: GroupDecision, error: ApiError) -> None:
        if decision.on_failed is not None:
            replies = decision.on_failed(error.code)
        else:
            replies = [Reply(reply.token, error) for reply in decision.replies]
        for future, response in self._take_waiting(replies):
            _settle(future, response)

    def _write(self, decision: GroupDecision) -> None:
        timestamp_ms = self._clock.wall_ms()
        try:
            encoded = [encode_record(record, timestamp_ms) for record in decision.records]
        except EncodeError as error:
            logger.error("A record of the group coordinator cannot be written: %s", error)
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
        if decision.is_atomic:
            self._append_and_replay(encoded, decision.records)
            return
        for start, end in self._cuts(encoded):
            self._append_and_replay(encoded[start:end], decision.records[start:end])

    def _append_and_replay(self, encoded: Sequence[NewRecord], records: Sequence[CoordinatorRecord]) -> None:
        compression = self.shard.settings.config.offsets_topic_compression_codec
        batch = bytearray(build_batch(encoded, compression=compression))
        base_offset = self._append(batch)
        try:
            for offset, record in enumerate(records, base_offset):
                self.shard.replay(record, offset)
        except Exception:
            logger.critical("%s: a record was appended but not replayed", self.partition.topic_partition)
            self.fail()
            raise
        self.replayed_offset = base_offset + len(records)

    def _append(self, batch: bytearray) -> int:
        """Append one batch and return its base offset. Raises ApiError with a code of the coordinator's own."""
        response = PartitionProduceResponse()
        append = PartitionAppend(self.partition, batch, response)
        self._replica_manager.append_records([append], required_acks=ALL_ACKS, origin=AppendOrigin.COORDINATOR)
        if response.base_offset < 0:
            code = ErrorCode(response.error_code)
            logger.warning("Could not append to %s: %s", self.partition.topic_partition, code.name)
            raise ApiError(_TRANSLATED.get(code, code))
        return response.base_offset

    def _cuts(self, encoded: Sequence[NewRecord]) -> Iterable[tuple[int, int]]:
        """Yield ranges of records that fit a batch each."""
        limit = min(self.log.config.max_message_bytes, self.log.config.segment_bytes)
        start = size_bytes = 0
        for index, (_, key, value, _) in enumerate(encoded):
            record_bytes = len(key or b"") + len(value or b"") + RECORD_OVERHEAD_BYTES
            if index > start and size_bytes + record_bytes > limit:
                yield start, index
                start, size_bytes = index, 0
            size_bytes += record_bytes
        yield start, len(encoded)

    # -- answers --------------------------------------------------------------------------------------------------

    def _take_waiting(self, replies: Iterable[Reply]) -> list[tuple[asyncio.Future[Any], Any]]:
        """Return the futures that the replies are for; of those that have given up, nothing."""
        taken = ((self._waiting.pop(reply.token, None), reply.response) for reply in replies)
        return [(future, response) for future, response in taken if future is not None]

    def _settle_when_committed(self, answers: list[tuple[asyncio.Future[Any], Any]]) -> None:
        if self.log.high_watermark >= self.replayed_offset:
            for future, response in answers:
                _settle(future, response)
            return
        self._replica_manager.wait_for_commit(
            CommitWait(self, answers), self.partition, timeout_ms=self.shard.settings.config.offsets_commit_timeout_ms
        )


class CommitWait(DelayedOperation):
    """Answers that leave once all that the shard has replayed is committed, or with an error when that takes long."""

    __slots__ = ("_answers", "_error", "_host", "_required_offset")

    def __init__(self, host: ShardHost, answers: list[tuple[asyncio.Future[Any], Any]]) -> None:
        super().__init__()
        self._host = host
        self._answers = answers
        self._required_offset = host.replayed_offset
        self._error: ApiError | None = None

    def try_complete(self) -> bool:
        if not self._host.is_led_here:
            self._error = ApiError(ErrorCode.NOT_COORDINATOR)
        elif self._host.log.high_watermark < self._required_offset:
            return False
        return self.complete()

    def on_expiration(self) -> None:
        self._error = ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The records were not replicated in time.")

    def on_complete(self) -> None:
        for future, response in self._answers:
            _settle(future, self._error or response)


def _settle(future: asyncio.Future[Any], response: Any) -> None:
    """Answer one request, unless whoever asked has gone."""
    if future.done():
        return
    if isinstance(response, ApiError):
        future.set_exception(response)
    else:
        future.set_result(response)
