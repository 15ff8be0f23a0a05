"""Requests to the partitions hosted on this broker: append, wait for replicas, wait for data.

Plain calls and callbacks on the event loop's thread. Outcomes are kept by the PartitionAppend or FetchRead:
`append_records` sets them and returns whether they are final. If not, the `wait_for_...` calls keep the request in a
purgatory and call `on_done` exactly once, later. Handlers turn outcomes into responses. After any change of a
partition's offsets, `complete_waiting` has to be called.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kafkapy.errors import ApiError, StorageError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.record.errors import InvalidRecordsError, InvalidSequenceError
from kafkapy.record.validate import AppendOrigin
from kafkapy.replication.delayed_delete_records import RecordDeletions
from kafkapy.replication.delayed_fetch import DelayedFetch, PartitionsWatch
from kafkapy.replication.delayed_produce import DelayedProduce, PartitionAppend
from kafkapy.replication.follower_state import SessionTimes
from kafkapy.replication.follower_watch import FollowerWatches
from kafkapy.replication.hosted_partitions import HostedPartition, HostedPartitions
from kafkapy.replication.partition import Role
from kafkapy.seams import Clock
from kafkapy.storage.errors import NeedsWorker
from kafkapy.storage.log.coalesced_append import CoalescedAppend, Verify
from kafkapy.storage.log.reader import FetchIsolation
from kafkapy.timer.purgatory import DelayedOperation, Purgatory
from kafkapy.timer.wheel import TimingWheel

if TYPE_CHECKING:
    from kafkapy.metadata.delta import MetadataDelta
    from kafkapy.metadata.image import MetadataImage
    from kafkapy.replication.fetch_session import FetchedPartition
    from kafkapy.storage.log.log import Log
    from kafkapy.storage.producers.entry import VerificationGuard

logger = logging.getLogger("kafkapy.replication")

NO_ACKS: Final = 0
ALL_ACKS: Final = -1
NOT_WRITTEN: Final = -1
"""The base offset of an own append that must go the way of all others."""

NOT_LEADER_OR_FOLLOWER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
NOT_ENOUGH_REPLICAS: Final = int(ErrorCode.NOT_ENOUGH_REPLICAS)
KAFKA_STORAGE_ERROR: Final = int(ErrorCode.KAFKA_STORAGE_ERROR)
UNKNOWN_SERVER_ERROR: Final = int(ErrorCode.UNKNOWN_SERVER_ERROR)
CODES_WITHOUT_LOG_START: Final = frozenset((
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_PRODUCER_ID,
))  # fmt: skip
"""Append errors whose response has no log start offset, as in Apache Kafka, where the last one is not answered."""


class ReplicaManager:
    """The partitions hosted on this broker, and the requests that wait for them.

    `wheel` times out waiting requests; runtime/expirer.py advances it.
    """

    def __init__(
        self,
        partitions: HostedPartitions,
        clock: Clock,
        wheel: TimingWheel,
        request_flush: Callable[["Log", Callable[[], None]], None],
    ) -> None:
        """`request_flush(log, on_done)` starts a flush of the log; on_done() is called later, even if it fails."""
        self.node_id = partitions.node_id
        self.partitions = partitions
        self.traffic = partitions.traffic
        self.log_manager = partitions.log_manager
        self.pending_flushes: list[PartitionAppend] = []
        """Appends that reached flush.messages; the caller of append_records takes them in the same turn of the loop."""
        self.on_isr_wanted: Callable[[HostedPartition], None] = _nobody_listens
        """Sends a partition's pending ISR to the controller (runtime/broker/isr_updates.py); set once, at the start."""
        self.on_role_changed: Callable[[HostedPartition], None] = _nobody_listens
        """Called for each partition after metadata, or a failed log directory, has set its role; set once."""
        self.watches = FollowerWatches()
        self._clock = clock
        self._request_flush = request_flush
        self._produces = Purgatory(wheel)
        self.fetches = Purgatory(wheel)
        self.deletions = RecordDeletions(Purgatory(wheel), clock, on_deleted=self.watches.notify)

    def pop_pending_flushes(self) -> list[PartitionAppend]:
        """Return and clear the appends just made whose responses must wait for a flush (flush.messages)."""
        pending, self.pending_flushes = self.pending_flushes, []
        return pending

    @property
    def image(self) -> "MetadataImage":
        """The metadata image that the partitions have applied."""
        return self.partitions.image

    @property
    def waiting_count(self) -> int:
        """The number of waiting requests."""
        return sum(self.waiting_counts.values())

    @property
    def waiting_counts(self) -> dict[str, int]:
        """The number of waiting requests by purgatory (Kafka's names)."""
        return {
            "Produce": self._produces.waiting_count,
            "Fetch": self.fetches.waiting_count,
            "DeleteRecords": self.deletions.waiting.waiting_count,
        }

    @property
    def expired_counts(self) -> dict[str, int]:
        """How many requests timed out in each purgatory; those of followers' sessions are in `watches`."""
        return {"Produce": self._produces.expired_count, "Fetch": self.fetches.expired_count}

    # -- metadata changes -----------------------------------------------------------------------------------------

    def announce(self, image: "MetadataImage") -> None:
        """Announce metadata that `apply_delta` will apply: topics it deletes are not served from now on."""
        self.partitions.announce(image)

    def apply_delta(self, delta: "MetadataDelta", image: "MetadataImage", now_ms: int) -> Iterator[None]:
        """Apply a metadata delta, in steps: create and delete partitions, change roles and configs.

        Each partition is led, or followed, from its own step on: it does not wait for the others of a large change.
        """
        monotonic_ms = self._clock.monotonic_ms()
        for touched in self.partitions.apply(delta, image, now_ms, monotonic_ms=monotonic_ms):
            for partition in touched:
                self.on_role_changed(partition)
                self.complete_waiting(partition)
            yield

    def directory_failed(self, path: str) -> None:
        """Take a failed log directory's partitions offline: new and waiting requests get KAFKA_STORAGE_ERROR."""
        failed = self.partitions.directory_failed(path)
        logger.warning(
            "Stopped serving %d partitions because they are in the failed log directory %s", len(failed), path
        )
        for partition in failed:
            self.on_role_changed(partition)
            self.complete_waiting(partition)

    def complete_waiting(self, partition: HostedPartition) -> None:
        """Complete the waiting requests that a change of the partition's offsets or role allows to complete."""
        if not partition.is_alone:
            self.watches.notify(partition)
        if self.fetches.waiting_count:
            self.fetches.check_and_complete(partition)
        if self._produces.waiting_count:
            self._produces.check_and_complete(partition)
        if self.deletions.waiting.waiting_count:
            self.deletions.waiting.check_and_complete(partition)

    def shutdown(self) -> None:
        """Answer all waiting requests: fetches with the available records, the others with REQUEST_TIMED_OUT.

        Deviation: Apache Kafka closes the connections of requests that are parked when it stops. Here they are answered
        before, because a client then learns what became of them.
        """
        for purgatory in (self.fetches, self._produces, self.deletions.waiting):
            purgatory.expire_all()

    # -- appending ------------------------------------------------------------------------------------------------

    def append_records(
        self,
        appends: Sequence[PartitionAppend],
        *,
        required_acks: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> bool:
        """Append to partitions that this broker leads, setting each append's outcome.

        Returns whether all outcomes are final. If not: for each append with a `worker_check`, set `checked` to its
        result and call this again; with acks=-1 then call `wait_for_replicas`.
        """
        now_ms = self._clock.wall_ms()
        is_done = True
        for append in appends:
            if not self._append(append, required_acks, origin, now_ms):
                is_done = False
        if required_acks != ALL_ACKS:
            return is_done
        for append in appends:
            if append.required_offset >= 0 and not append.is_final():
                is_done = False
        return is_done

    def start_verification(
        self,
        partition: HostedPartition,
        *,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        supports_epoch_bump: bool,
    ) -> "VerificationGuard | None":
        """Return the guard that a transactional batch needs, None if its transaction is already open in the partition.

        With a guard: ask the coordinator, then append with PartitionAppend.verification, or `abandon_verification`.
        supports_epoch_bump: the request adds the partition to the transaction (Produce 12, TxnOffsetCommit 5; KIP-890).
        Raises ApiError INVALID_PRODUCER_EPOCH, and the error of an append if this broker is not the leader.
        """
        log = partition.log
        if partition.role is not Role.LEADER or log is None:
            raise ApiError(partition.check_leader() or KAFKA_STORAGE_ERROR)
        return log.producer_state.start_verification(
            producer_id,
            base_sequence,
            producer_epoch,
            supports_epoch_bump=supports_epoch_bump,
            now_ms=self._clock.wall_ms(),
        )

    def abandon_verification(
        self, partition: HostedPartition, *, producer_id: int, producer_epoch: int, guard: "VerificationGuard"
    ) -> None:
        """End a verification that the coordinator refused with a non-retriable error."""
        if partition.log is not None:
            partition.log.producer_state.abandon_verification(producer_id, producer_epoch, guard)

    def wait_for_replicas(
        self, appends: Sequence[PartitionAppend], *, timeout_ms: int, on_done: Callable[[], None]
    ) -> None:
        """Call on_done() when all in-sync replicas have what append_records appended, or after timeout_ms."""
        waiting = [append for append in appends if append.required_offset >= 0]
        self._produces.try_complete_else_watch(
            DelayedProduce(waiting, on_done),
            [append.partition for append in waiting],
            timeout_ms=max(timeout_ms, 0),
            now_ms=self._clock.monotonic_ms(),
        )

    def wait_for_commit(self, operation: DelayedOperation, partition: HostedPartition, *, timeout_ms: int) -> None:
        """Retry an operation whenever the partition's high watermark or role changes, until it completes."""
        now_ms = self._clock.monotonic_ms()
        self._produces.try_complete_else_watch(operation, [partition], timeout_ms=timeout_ms, now_ms=now_ms)

    def _append(self, append: PartitionAppend, required_acks: int, origin: AppendOrigin, now_ms: int) -> bool:
        """Return whether the append has an outcome; if not, a worker has to check it first."""
        partition = append.partition
        log = partition.log
        if partition.role is not Role.LEADER or log is None:
            append.refuse(partition.check_leader() or KAFKA_STORAGE_ERROR, None)
            self.count_refusal(append)
            return True
        if required_acks == ALL_ACKS and not partition.is_alone and partition.is_under_min_isr:
            append.log_start_offset = log.log_start_offset
            message = f"{len(partition.isr)} in-sync replicas of {partition.topic_partition} {partition.isr}"
            append.refuse(NOT_ENOUGH_REPLICAS, message)
            self.count_refusal(append)
            return True
        try:
            if append.checked is None:
                result = log.append_as_leader(
                    append.records,
                    leader_epoch=partition.leader_epoch,
                    now_ms=now_ms,
                    origin=origin,
                    verification=append.verification,
                    transaction_version=append.transaction_version,
                )
            else:
                result = log.append_checked(
                    append.checked,
                    leader_epoch=partition.leader_epoch,
                    now_ms=now_ms,
                    verification=append.verification,
                )
        except NeedsWorker as needed:
            append.worker_check = needed
            return False
        except (ApiError, StorageError, AssertionError) as error:
            self.refuse_append(append, error)
            self.count_refusal(append, error)
            return True
        traffic = partition.traffic
        if traffic is not None:
            messages = result.last_offset - result.first_offset + 1  # also of a duplicate, as Apache Kafka counts it
            traffic.count_appends(produces=1, size_bytes=len(append.records), messages=messages)
            append.stats = stats = result.stats
            if stats is not None and origin is AppendOrigin.CLIENT:
                traffic.count_conversions(stats.converted_records)
        end_offset = result.last_offset + 1
        append.on_appended(result.first_offset, end_offset, result.log_start_offset, result.log_append_time_ms)
        if end_offset <= log.flush_required_to and log.recovery_point < end_offset:
            self._add_pending_flush(append, origin)
        self.notify_appended(partition)
        if log.flush_required_to < end_offset and partition.is_alone:
            append.required_offset = -1  # it is final
        return True

    def append_own(self, append: PartitionAppend, write: "Callable[[Log, int], bool]") -> bool:
        """Append batches that this broker encodes itself (storage/log/own_append.py), setting the append's outcome.

        write(log, leader epoch) returns whether it wrote them. Returns False, with nothing changed, if they must go
        through `append_records`, which also reports why a partition takes nothing.
        """
        try:
            base_offset = self.write_own(append.partition, write)
        except ApiError as error:
            append.refuse(error.code, error.message)
            return True
        if base_offset == NOT_WRITTEN:
            return False
        log = append.partition.log
        assert log is not None, "what was appended has a log"
        append.on_appended(base_offset, log.log_end_offset, log.log_start_offset)
        return True

    def write_own(self, partition: HostedPartition, write: "Callable[[Log, int], bool]") -> int:
        """Like append_own; return the base offset, NOT_WRITTEN if nothing was written. Raises ApiError."""
        log = partition.log
        if partition.role is not Role.LEADER or log is None or partition.is_under_min_isr:
            return NOT_WRITTEN
        base_offset, traffic = log.log_end_offset, partition.traffic
        start_bytes = 0 if traffic is None else log.segments.active.size
        try:
            if not write(log, partition.leader_epoch):
                return NOT_WRITTEN
        except (ApiError, StorageError, AssertionError) as error:
            append = PartitionAppend(partition, b"")
            self.refuse_append(append, error)
            self.count_refusal(append, error)
            raise ApiError(append.error_code, append.error_message) from error
        end_offset = log.log_end_offset
        assert end_offset > base_offset, f"{log} has not grown by what it took"
        if traffic is not None:
            written_bytes = log.segments.active.size - start_bytes  # own appends do not roll
            traffic.count_appends(produces=1, size_bytes=written_bytes, messages=end_offset - base_offset)
        if end_offset <= log.flush_required_to and log.recovery_point < end_offset:
            self._request_coordinator_flush(partition)
        self.notify_appended(partition)
        return base_offset

    def _add_pending_flush(self, append: PartitionAppend, origin: AppendOrigin) -> None:
        """Delay the response of an append that reached flush.messages until the log is flushed.

        A client's request awaits the flush itself. A coordinator's responses wait for `Log.is_committed`, which is
        checked again after the flush.
        """
        if origin is AppendOrigin.CLIENT:
            self.pending_flushes.append(append)
        else:
            self._request_coordinator_flush(append.partition)

    def _request_coordinator_flush(self, partition: HostedPartition) -> None:
        assert partition.log is not None, "what was appended has a log"
        self._request_flush(partition.log, lambda: self.complete_waiting(partition))

    def begin_coalesced_append(
        self, partition: HostedPartition, required_acks: int, verify: Verify | None = None
    ) -> CoalescedAppend | None:
        """Return an object that coalesces plain batches for a partition led here, or None if that is not possible.

        verify: as CoalescedAppend takes it, for batches of a transaction.
        The caller must write it and call `notify_appended` before anything else runs; with acks=-1 it then checks
        whether the replicas have the batches.
        """
        log = partition.log
        if (
            partition.role is not Role.LEADER
            or log is None
            or (required_acks == ALL_ACKS and partition.is_under_min_isr)
        ):
            return None
        if self.partitions.is_behind and self.partitions.is_deleted(partition):
            return None
        if not CoalescedAppend.is_possible(log):
            return None
        now_ms = self._clock.wall_ms()
        return CoalescedAppend(log, leader_epoch=partition.leader_epoch, now_ms=now_ms, verify=verify)

    def notify_appended(self, partition: HostedPartition) -> None:
        """Advance the high watermark and complete waiting requests after an append."""
        if partition.is_alone:
            log = partition.log
            assert log is not None, "what was appended has a log"
            log.update_high_watermark(log.log_end_offset)
            if self.fetches.waiting_count or self._produces.waiting_count or self.deletions.waiting.waiting_count:
                self.complete_waiting(partition)
            return
        if partition.maybe_advance_high_watermark(self._clock.monotonic_ms()):
            self.complete_waiting(partition)
            return
        if self.fetches.waiting_count:
            self.fetches.check_and_complete(partition)  # followers read up to the log's end
        self.watches.notify(partition)

    def refuse_append(self, append: PartitionAppend, error: Exception) -> None:
        """Set the outcome of a failed append: an ApiError, a StorageError, or a broken invariant."""
        partition = append.partition
        if isinstance(error, ApiError):
            if error.code not in CODES_WITHOUT_LOG_START and partition.log is not None:
                append.log_start_offset = partition.log.log_start_offset
            record_errors = error.record_errors if isinstance(error, InvalidRecordsError) else ()
            append.refuse(error.code, error.message, record_errors)
        elif isinstance(error, StorageError):
            append.refuse(KAFKA_STORAGE_ERROR, error.message)
        else:
            logger.error(
                "Taking partition %s offline until the next start: an append violated an invariant",
                partition.topic_partition,
                exc_info=error,
            )
            partition.go_offline()
            self.complete_waiting(partition)
            append.refuse(UNKNOWN_SERVER_ERROR, None)

    def count_refusal(self, append: PartitionAppend, error: Exception | None = None) -> None:
        """Count an append that was refused, if topics are counted; error: what its log raised, if it got there."""
        if self.traffic is None:
            return
        code = append.error_code
        if append.partition.traffic is not None:
            append.partition.traffic.count_refusal(code, len(append.records))
        is_out_of_sequence = isinstance(error, InvalidSequenceError)
        self.traffic.count_invalid(code, len(append.record_errors), is_out_of_sequence=is_out_of_sequence)

    # -- fetching -------------------------------------------------------------------------------------------------

    def record_follower_fetch(
        self,
        partition: HostedPartition,
        replica_id: int,
        *,
        fetch_offset: int,
        log_start_offset: int,
        leader_end_offset: int,
        broker_epoch: int,
        session: SessionTimes | None = None,
    ) -> int:
        """Record a follower's fetch: advance the high watermark, complete waiting requests, add it to the ISR if due.

        Returns 0, or NOT_LEADER_OR_FOLLOWER (without any change) for a fetch by an earlier incarnation of the broker.
        """
        if partition.role is not Role.LEADER or replica_id not in partition.followers:
            return 0
        if self.partitions.brokers.is_stale(replica_id, broker_epoch):
            return NOT_LEADER_OR_FOLLOWER
        pending = partition.pending_isr
        has_moved = partition.record_follower_fetch(
            replica_id,
            fetch_offset=fetch_offset,
            log_start_offset=log_start_offset,
            now_ms=self._clock.monotonic_ms(),
            leader_end_offset=leader_end_offset,
            broker_epoch=broker_epoch,
            session=session,
        )
        if partition.pending_isr is not pending:
            self.on_isr_wanted(partition)
        if has_moved or self.deletions.waiting.waiting_count:  # these wait for each replica's log start offset
            self.complete_waiting(partition)
        return 0

    def wait_for_data(
        self,
        partitions: Sequence[tuple["FetchedPartition", HostedPartition]],
        *,
        isolation: FetchIsolation,
        min_bytes: int,
        max_wait_ms: int,
        on_done: Callable[[], None],
        reads_followers: bool = False,
        is_held_back: Callable[[HostedPartition], bool] | None = None,
    ) -> DelayedFetch:
        """Call on_done() when min_bytes can be read, a partition has an error, or max_wait_ms has passed.

        It may be called before this returns. To cancel the wait, call `abandon` of the returned operation.
        """
        operation = DelayedFetch(
            partitions,
            isolation=isolation,
            min_bytes=min_bytes,
            on_done=on_done,
            reads_followers=reads_followers,
            is_held_back=is_held_back,
        )
        keys = [partition for _, partition in partitions]
        self.fetches.try_complete_else_watch(operation, keys, timeout_ms=max_wait_ms, now_ms=self._clock.monotonic_ms())
        return operation

    def watch_for_data(
        self, partitions: Sequence[HostedPartition], *, max_wait_ms: int, on_data: Callable[[], None]
    ) -> PartitionsWatch:
        """Call on_data() now, after each append to one of the partitions, and after max_wait_ms; until `abandon`."""
        operation = PartitionsWatch(on_data)
        self.fetches.try_complete_else_watch(
            operation, partitions, timeout_ms=max_wait_ms, now_ms=self._clock.monotonic_ms()
        )
        return operation


def _nobody_listens(_partition: HostedPartition) -> None:
    """The default callback: without other brokers there is no ISR to change and nothing to fetch."""
