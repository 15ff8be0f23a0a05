"""One producer's state in a partition: its epoch, its last five batches, its open transaction.

No IO here. `StagedProducer` holds the changes of an append in progress, and the rules for epochs and sequences.
"""

from typing import Final

from kafkapy.errors import ApiError
from kafkapy.named_tuple import NamedTuple
from kafkapy.record.batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP
from kafkapy.record.validate import AppendOrigin
from kafkapy.storage.errors import (
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    TRANSACTION_COORDINATOR_FENCED,
)
from kafkapy.types import INT32_MAX

MAX_BATCHES_KEPT: Final = 5
"""Idempotent clients keep at most five requests in flight."""
MAX_INT16: Final = 0x7FFF
"""The largest producer epoch, an int16."""
NO_TRANSACTION: Final = -1


class TransactionMarker:
    """The content of a transaction marker (a control record)."""

    __slots__ = ("coordinator_epoch", "is_abort", "timestamp_ms")

    def __init__(self, is_abort: bool, coordinator_epoch: int, timestamp_ms: int) -> None:
        self.is_abort = is_abort
        self.coordinator_epoch = coordinator_epoch
        self.timestamp_ms = timestamp_ms


class ProducerBatch:
    """A batch with a producer id. marker: only in a control batch. Markers removed by the cleaner are not passed."""

    __slots__ = ("base_offset", "base_sequence", "is_transactional", "last_offset", "last_sequence", "marker",
                 "max_timestamp", "producer_epoch", "producer_id")  # fmt: skip

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        last_sequence: int,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        is_transactional: bool,
        marker: TransactionMarker | None = None,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.last_sequence = last_sequence
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.max_timestamp = max_timestamp
        self.is_transactional = is_transactional
        self.marker = marker


class BatchMetadata(NamedTuple):
    """A batch in the log, as needed to detect and answer a duplicate."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & INT32_MAX if self.last_sequence >= 0 else NO_SEQUENCE

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """The state of one producer. transaction_first_offset is NO_TRANSACTION if no transaction is open."""

    __slots__ = ("batches", "coordinator_epoch", "last_timestamp_ms", "producer_epoch", "producer_id",
                 "transaction_first_offset")  # fmt: skip

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp_ms: int = NO_TIMESTAMP,
        transaction_first_offset: int = NO_TRANSACTION,
        batches: list[BatchMetadata] | None = None,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp_ms = last_timestamp_ms
        self.transaction_first_offset = transaction_first_offset
        self.batches = [] if batches is None else batches

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1

    def add_batch(self, last_sequence: int, last_offset: int, offset_delta: int, timestamp_ms: int) -> None:
        """Add a batch of the current epoch that was written to the log."""
        batches = self.batches
        batches.append(BatchMetadata(last_sequence, last_offset, offset_delta, timestamp_ms))
        if len(batches) > MAX_BATCHES_KEPT:
            del batches[0]
        self.last_timestamp_ms = timestamp_ms

    def move_to_epoch(self, producer_epoch: int) -> None:
        """Set the epoch; if it changes, drop the batches of the old one."""
        if producer_epoch != self.producer_epoch:
            self.batches.clear()
            self.producer_epoch = producer_epoch

    def find_duplicate(self, batch: ProducerBatch) -> BatchMetadata | None:
        """Return the kept batch with the same epoch and sequence numbers, or None."""
        if batch.producer_epoch != self.producer_epoch:
            return None
        for kept in self.batches:
            if kept.last_sequence == batch.last_sequence and kept.first_sequence == batch.base_sequence:
                return kept
        return None


class CompletedTransaction(NamedTuple):
    """A transaction whose marker is in the log, at last_offset."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class VerificationGuard:
    """Identifies a verification of a transaction with its coordinator, before its first batch. Compared by identity."""

    __slots__ = ()


class VerificationState:
    """A verification of a transaction that has not begun in this partition."""

    __slots__ = ("created_ms", "guard", "lowest_sequence", "producer_epoch", "supports_epoch_bump")

    def __init__(
        self,
        guard: VerificationGuard,
        lowest_sequence: int,
        producer_epoch: int,
        supports_epoch_bump: bool,
        created_ms: int,
    ) -> None:
        self.guard = guard
        self.lowest_sequence = lowest_sequence
        self.producer_epoch = producer_epoch
        self.supports_epoch_bump = supports_epoch_bump
        self.created_ms = created_ms


class StagedProducer:
    """One producer's state after an append in progress; ProducerState.commit copies it to `entry`."""

    __slots__ = ("batches", "coordinator_epoch", "entry", "has_marker", "has_transactional_data", "last_timestamp_ms",
                 "origin", "producer_epoch", "started", "transaction_first_offset", "verification")  # fmt: skip

    def __init__(self, entry: ProducerEntry, origin: AppendOrigin, verification: VerificationState | None) -> None:
        self.entry = entry
        self.origin = origin
        self.verification = verification
        self.producer_epoch = entry.producer_epoch
        self.coordinator_epoch = entry.coordinator_epoch
        self.last_timestamp_ms = entry.last_timestamp_ms
        self.transaction_first_offset = entry.transaction_first_offset
        self.batches: list[BatchMetadata] = []
        self.started: list[int] = []
        self.has_marker = False
        self.has_transactional_data = False

    def add_batch(self, batch: ProducerBatch) -> None:
        """Add a batch of records. Raises ApiError if its epoch, sequence or transaction state is invalid."""
        self._check_epoch(batch.producer_epoch, batch.base_offset, transaction_version=0)
        if self.origin is AppendOrigin.CLIENT:
            self._check_sequence(batch)
        if batch.producer_epoch != self.producer_epoch:
            self.batches.clear()
            self.producer_epoch = batch.producer_epoch
        delta = batch.last_offset - batch.base_offset
        self.batches.append(BatchMetadata(batch.last_sequence, batch.last_offset, delta, batch.max_timestamp))
        self.last_timestamp_ms = batch.max_timestamp
        if batch.is_transactional:
            self.has_transactional_data = True
            if self.transaction_first_offset == NO_TRANSACTION:
                self.transaction_first_offset = batch.base_offset
                self.started.append(batch.base_offset)
        elif self.transaction_first_offset != NO_TRANSACTION:
            raise ApiError(
                INVALID_TXN_STATE, f"Producer {batch.producer_id} has an open transaction; this batch is none"
            )

    def add_marker(
        self, batch: ProducerBatch, marker: TransactionMarker, transaction_version: int
    ) -> CompletedTransaction | None:
        """Add a marker; return the ended transaction, or None. Raises ApiError if the marker's writer is fenced."""
        self._check_epoch(batch.producer_epoch, batch.base_offset, transaction_version=transaction_version)
        if self.coordinator_epoch > marker.coordinator_epoch and self.origin is not AppendOrigin.REPLICATION:
            raise ApiError(
                TRANSACTION_COORDINATOR_FENCED,
                f"Coordinator epoch {marker.coordinator_epoch} for producer {batch.producer_id} is older than "
                f"{self.coordinator_epoch}",
            )
        first_offset, self.transaction_first_offset = self.transaction_first_offset, NO_TRANSACTION
        if batch.producer_epoch != self.producer_epoch:
            self.batches.clear()
            self.producer_epoch = batch.producer_epoch
        self.coordinator_epoch = marker.coordinator_epoch
        self.last_timestamp_ms = marker.timestamp_ms
        self.has_marker = True
        if first_offset == NO_TRANSACTION:
            return None
        return CompletedTransaction(batch.producer_id, first_offset, batch.base_offset, marker.is_abort)

    def _check_epoch(self, producer_epoch: int, offset: int, *, transaction_version: int) -> None:
        """Fence an older epoch; from transaction version 2 on, a marker must have a newer epoch (KIP-890).

        A marker with the current epoch is a harmless retry if no transaction is open, or if the epoch cannot increase.
        """
        current = self.producer_epoch
        if producer_epoch > current or (transaction_version < 2 and producer_epoch == current):
            return
        is_retry = producer_epoch == current and (
            self.transaction_first_offset == NO_TRANSACTION or producer_epoch == MAX_INT16
        )
        if is_retry or self.origin is AppendOrigin.REPLICATION:
            return
        raise ApiError(
            INVALID_PRODUCER_EPOCH,
            f"Epoch {producer_epoch} of producer {self.entry.producer_id} at offset {offset} is fenced by {current}",
        )

    def _check_sequence(self, batch: ProducerBatch) -> None:
        """Raise OUT_OF_ORDER_SEQUENCE_NUMBER if a batch before this one is missing."""
        first = batch.base_sequence
        verification = self.verification
        if verification is not None and (
            first > verification.lowest_sequence
            or (verification.supports_epoch_bump and first != 0 and not self.entry.batches)
        ):
            raise self._out_of_order(batch, verification.lowest_sequence)
        if batch.producer_epoch != self.producer_epoch:
            if first != 0 and self.producer_epoch != NO_PRODUCER_EPOCH:
                raise self._out_of_order(batch, NO_SEQUENCE)
            return
        if self.entry.producer_epoch == NO_PRODUCER_EPOCH:
            return  # unknown producer (its records were deleted): any sequence may start
        last = self._last_sequence(batch.producer_epoch)
        if first != last + 1 and not (first == 0 and last == INT32_MAX):
            raise self._out_of_order(batch, last)

    def _last_sequence(self, producer_epoch: int) -> int:
        if self.batches:
            return self.batches[-1].last_sequence
        return self.entry.last_sequence if producer_epoch == self.entry.producer_epoch else NO_SEQUENCE

    def _out_of_order(self, batch: ProducerBatch, last_sequence: int) -> ApiError:
        return ApiError(
            OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Sequence number {batch.base_sequence} of producer {batch.producer_id}, epoch {batch.producer_epoch}, "
            f"at offset {batch.base_offset} does not follow {last_sequence} of epoch {self.producer_epoch}",
        )
