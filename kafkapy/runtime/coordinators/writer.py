"""Writes the records of a coordinator's decisions to its partition: encodes them, cuts them into batches, appends."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafkapy.dataclass import dataclass
from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.primitives import EncodeError
from kafkapy.record.batch import HEADER_BYTES, NO_SEQUENCE
from kafkapy.record.builder import BatchFields, NewRecord, build_batch
from kafkapy.record.compression import NONE
from kafkapy.record.validate import AppendOrigin
from kafkapy.replication.delayed_produce import PartitionAppend
from kafkapy.replication.replica_manager import ALL_ACKS, NOT_WRITTEN, ReplicaManager
from kafkapy.storage.log.own_append import append_own_records

if TYPE_CHECKING:
    from kafkapy.metrics.coordinators import CoordinatorCounts
    from kafkapy.replication.hosted_partitions import HostedPartition
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


class RecordCodec(Protocol):
    """Encodes and decodes the records of one kind; a module with these functions satisfies it."""

    def encode_record(self, record: Any, timestamp_ms: int, /) -> NewRecord: ...

    def decode_record(self, key: bytes | None, value: bytes | None, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class CoordinatorLog:
    """The way in which a kind of coordinator writes and reads its topic; the callables return current config values."""

    codec: RecordCodec
    compression: Callable[[], int]
    commit_timeout_ms: Callable[[], int]
    load_buffer_bytes: Callable[[], int]
    base_sequence: int = NO_SEQUENCE
    """In batches without a producer: Kafka's group coordinator writes 0, its transaction coordinator none."""
    counts: "CoordinatorCounts | None" = None
    """What appends are counted in, if anywhere."""


@dataclass(frozen=True, slots=True)
class TransactionalWrite:
    """The producer in whose transaction a decision's records are written, with its verification guard."""

    producer_id: int
    producer_epoch: int
    verification: "VerificationGuard | None" = None


class CoordinatorWriter:
    """Appends to one partition. Owned by the ShardHost, which replays what was appended."""

    def __init__(
        self,
        partition: "HostedPartition",
        coordinator_log: CoordinatorLog,
        replica_manager: ReplicaManager,
        logger: logging.Logger,
    ) -> None:
        self._partition = partition
        self._coordinator_log = coordinator_log
        self._replica_manager = replica_manager
        self._logger = logger
        self._append_refusal: ErrorCode | None = None
        """The error of the last append; None if it succeeded."""

    def encoded(self, records: Sequence[Any], timestamp_ms: int) -> list[NewRecord]:
        """Return the records as they are written. Raises ApiError UNKNOWN_SERVER_ERROR if one cannot be encoded."""
        encode_record = self._coordinator_log.codec.encode_record
        try:
            return [encode_record(record, timestamp_ms) for record in records]
        except EncodeError as error:
            self._logger.error("Could not encode a record for %s: %s", self._partition.topic_partition, error)
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR) from error

    def cuts(self, encoded: Sequence[NewRecord]) -> Iterable[tuple[int, int]]:
        """Yield index ranges of records, each of which fits into one batch."""
        limit = self.max_batch_bytes()
        start, size_bytes = 0, HEADER_BYTES
        for index, record in enumerate(encoded):
            record_bytes = size_bound(record)
            if index > start and size_bytes + record_bytes > limit:
                yield start, index
                start, size_bytes = index, HEADER_BYTES
            size_bytes += record_bytes
        yield start, len(encoded)

    def max_batch_bytes(self) -> int:
        assert self._partition.log is not None
        config = self._partition.log.config
        return min(config.max_message_bytes, config.segment_bytes)

    def append(self, encoded: Sequence[NewRecord], write: TransactionalWrite | None) -> int:
        """Append one batch and return its base offset. Raises ApiError with the code for the coordinator's clients.

        Most batches are written as they are encoded here, without a check of what this process has just made
        (own_append.py); compressed ones, those of transactions, and what that cannot write are checked like any other.
        """
        compression, counts = self._coordinator_log.compression(), self._coordinator_log.counts
        began_ns = 0 if counts is None else counts.now_ns()
        base_offset = NOT_WRITTEN

        def write_own(log: "Log", leader_epoch: int) -> bool:
            now_ms, base_sequence = encoded[0][0], self._coordinator_log.base_sequence
            return append_own_records(
                log, encoded, leader_epoch=leader_epoch, now_ms=now_ms, base_sequence=base_sequence
            )

        try:
            if write is None and compression == NONE:
                base_offset = self._replica_manager.write_own(self._partition, write_own)
            if base_offset == NOT_WRITTEN:
                base_offset = self._append_any(encoded, compression, write)
        except ApiError as error:
            code = ErrorCode(error.code)
            if code is not self._append_refusal:  # log it once, not for each request
                self._append_refusal = code
                self._logger.warning("Could not append to %s: %s", self._partition.topic_partition, code.name)
            raise ApiError(_TRANSLATED.get(code, code)) from error
        self._append_refusal = None
        if counts is not None:
            counts.record_flush(began_ns)
        return base_offset

    def _append_any(self, encoded: Sequence[NewRecord], compression: int, write: TransactionalWrite | None) -> int:
        """Append a batch that is checked like any other; return its base offset. Raises ApiError."""
        records = bytearray(self._batch_of(encoded, compression, write))
        append = PartitionAppend(self._partition, records, verification=None if write is None else write.verification)
        self._replica_manager.append_records([append], required_acks=ALL_ACKS, origin=AppendOrigin.COORDINATOR)
        if append.base_offset < 0:
            raise ApiError(append.error_code, append.error_message)
        return append.base_offset

    def _batch_of(self, encoded: Sequence[NewRecord], compression: int, write: TransactionalWrite | None) -> bytes:
        if write is None:
            base_sequence = self._coordinator_log.base_sequence
            return build_batch(encoded, BatchFields(compression=compression, base_sequence=base_sequence))
        fields = BatchFields(
            compression=compression,
            producer_id=write.producer_id,
            producer_epoch=write.producer_epoch,
            base_sequence=FIRST_SEQUENCE,
            is_transactional=True,
        )
        return build_batch(encoded, fields)


def size_bound(record: NewRecord) -> int:
    """Return an upper bound of the record's size in a batch."""
    _, key, value, _ = record
    return len(key or b"") + len(value or b"") + RECORD_OVERHEAD_BYTES
