"""A Produce with acks=-1 that waits until all in-sync replicas have its records, or for the producer's timeout."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.timer.purgatory import DelayedOperation

if TYPE_CHECKING:
    from kafkapy.record.append_rules import ValidatedRecords, ValidationStats
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.storage.errors import NeedsWorker
    from kafkapy.storage.producers.entry import VerificationGuard

REQUEST_TIMED_OUT: Final = int(ErrorCode.REQUEST_TIMED_OUT)


class PartitionAppend:
    """Records for one partition, and the outcome of their append.

    error_code, error_message: 0 and None unless refused; record_errors: (index, message) of each refused record.
    base_offset: of the first record, -1 unless appended. log_append_time_ms: -1 with CreateTime. log_start_offset: -1
    with errors whose response lacks it. required_offset: the end of the append; -1 if it failed, has not been made, or
    is final. worker_check: work that a worker must do before the append; checked: its result. follow_count: the
    partition's at the append. verification: the guard for the first batch of a transaction
    (ReplicaManager.start_verification). transaction_version: for the markers that a coordinator appends (KIP-1228).
    stats: if topics are counted, and the batch was compressed or re-encoded.
    """

    __slots__ = (
        "base_offset",
        "checked",
        "error_code",
        "error_message",
        "follow_count",
        "log_append_time_ms",
        "log_start_offset",
        "partition",
        "record_errors",
        "records",
        "required_offset",
        "stats",
        "transaction_version",
        "verification",
        "worker_check",
    )

    def __init__(
        self,
        partition: "HostedPartition",
        records: memoryview | bytearray | bytes,
        *,
        verification: "VerificationGuard | None" = None,
        transaction_version: int = 0,
    ) -> None:
        self.partition = partition
        self.records = records
        self.error_code = 0
        self.error_message: str | None = None
        self.record_errors: Sequence[tuple[int, str]] = ()
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.log_start_offset = -1
        self.required_offset = -1
        self.follow_count = partition.follow_count
        self.worker_check: NeedsWorker | None = None
        self.checked: ValidatedRecords | None = None
        self.stats: ValidationStats | None = None
        self.verification = verification
        self.transaction_version = transaction_version

    def on_appended(
        self, base_offset: int, end_offset: int, log_start_offset: int, log_append_time_ms: int = -1
    ) -> None:
        """Record that the leader's log has the records; the replicas may still have to follow."""
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.required_offset = end_offset
        self.follow_count = self.partition.follow_count

    def refuse(self, error_code: int, message: str | None, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        """Record that the records were not appended, or that the log could not be flushed."""
        self.error_code = error_code
        self.error_message = message
        self.record_errors = record_errors
        self.base_offset = -1
        self.required_offset = -1

    def is_final(self) -> bool:
        """Return whether the outcome is final: failed, replicated, or (an error) no longer able to be replicated."""
        if self.required_offset < 0:
            return True
        is_done, code = self.partition.acknowledgement(self.required_offset, self.follow_count)
        if is_done:
            self.required_offset = -1
            self.error_code = code
        return is_done


class DelayedProduce(DelayedOperation):
    """Completes when every append of a request is final. At the timeout the others get REQUEST_TIMED_OUT."""

    __slots__ = ("_on_done", "_pending")

    def __init__(self, appends: Sequence[PartitionAppend], on_done: Callable[[], None]) -> None:
        super().__init__()
        self._pending = [append for append in appends if append.required_offset >= 0]
        self._on_done = on_done

    def try_complete(self) -> bool:
        self._pending = [append for append in self._pending if not append.is_final()]
        return not self._pending and self.complete()

    def on_expiration(self) -> None:
        for append in self._pending:
            assert append.required_offset >= 0, "an append whose outcome is final times out"
            append.error_code = REQUEST_TIMED_OUT

    def on_complete(self) -> None:
        self._on_done()
