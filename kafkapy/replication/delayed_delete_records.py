"""DeleteRecords to partitions led here: raise log start offsets, then wait until all replicas have raised theirs."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kafkapy.errors import ApiError, StorageError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.seams import Clock
from kafkapy.timer.purgatory import DelayedOperation, Purgatory

if TYPE_CHECKING:
    from kafkapy.replication.hosted_partitions import HostedPartition

HIGH_WATERMARK_OFFSET: Final = -1
"""The offset in a DeleteRecords request that stands for the high watermark."""
KAFKA_STORAGE_ERROR: Final = int(ErrorCode.KAFKA_STORAGE_ERROR)
REQUEST_TIMED_OUT: Final = int(ErrorCode.REQUEST_TIMED_OUT)
INVALID_LOW_WATERMARK: Final = -1


class PartitionDeletion:
    """One partition's deletion up to `offset`, and its outcome.

    error_code: 0 unless it failed; low_watermark: the smallest log start offset of a replica, -1 if it failed.
    required_offset: the low watermark to wait for; -1 if the deletion failed, has not been tried, or is done.
    """

    __slots__ = ("error_code", "low_watermark", "offset", "partition", "required_offset")

    def __init__(self, partition: "HostedPartition", offset: int) -> None:
        self.partition = partition
        self.offset = offset
        self.error_code = 0
        self.low_watermark = INVALID_LOW_WATERMARK
        self.required_offset = -1

    def is_final(self) -> bool:
        """Return whether the outcome is final: all replicas start at or after the offset, or we are not the leader."""
        if self.required_offset < 0:
            return True
        code = self.partition.check_leader()
        self.error_code = code
        self.low_watermark = INVALID_LOW_WATERMARK if code else self.partition.low_watermark
        if code == 0 and self.low_watermark < self.required_offset:
            return False
        self.required_offset = -1
        return True


class DelayedDeleteRecords(DelayedOperation):
    """Completes when every partition's low watermark has reached its offset."""

    __slots__ = ("_on_done", "_pending")

    def __init__(self, deletions: list[PartitionDeletion], on_done: Callable[[], None]) -> None:
        super().__init__()
        self._pending = deletions
        self._on_done = on_done

    def try_complete(self) -> bool:
        self._pending = [deletion for deletion in self._pending if not deletion.is_final()]
        return not self._pending and self.complete()

    def on_expiration(self) -> None:
        for deletion in self._pending:
            assert deletion.required_offset >= 0, "a deletion whose outcome is final times out"
            deletion.error_code = REQUEST_TIMED_OUT

    def on_complete(self) -> None:
        self._on_done()


class RecordDeletions:
    """Deletes records below an offset. Each PartitionDeletion keeps its outcome."""

    def __init__(self, waiting: Purgatory, clock: Clock, on_deleted: "Callable[[HostedPartition], None]") -> None:
        """waiting: holds the requests that wait for replicas. on_deleted: called when a log start offset was raised."""
        self.waiting = waiting
        self._clock = clock
        self._on_deleted = on_deleted

    def delete(self, deletions: Sequence[PartitionDeletion]) -> bool:
        """Raise log start offsets, setting each deletion's outcome; return whether all are final. If not, `wait`."""
        is_done = True
        for deletion in deletions:
            try:
                deletion.required_offset = self._delete(deletion)
            except ApiError as error:
                deletion.error_code = error.code
            except StorageError:
                deletion.error_code = KAFKA_STORAGE_ERROR
            else:
                is_done &= deletion.is_final()
        return is_done

    def wait(self, deletions: Sequence[PartitionDeletion], *, timeout_ms: int, on_done: Callable[[], None]) -> None:
        """Call on_done() when all replicas have the log start offsets that `delete` set, or after timeout_ms."""
        unfinished = [deletion for deletion in deletions if deletion.required_offset >= 0]
        assert unfinished, "a request would wait for nothing"
        self.waiting.try_complete_else_watch(
            DelayedDeleteRecords(unfinished, on_done),
            [deletion.partition for deletion in unfinished],
            timeout_ms=max(timeout_ms, 0),
            now_ms=self._clock.monotonic_ms(),
        )

    def _delete(self, deletion: PartitionDeletion) -> int:
        """Raise one log start offset; return the offset that all replicas have to reach."""
        partition = deletion.partition
        code, log = partition.check_leader(), partition.log
        if code or log is None:
            raise ApiError(code or KAFKA_STORAGE_ERROR)
        if log.config.is_compacted and not log.config.is_deleted_by_retention:
            raise ApiError(ErrorCode.POLICY_VIOLATION, f"{partition.topic_partition} is compacted, not deleted")
        offset = log.high_watermark if deletion.offset == HIGH_WATERMARK_OFFSET else deletion.offset
        if offset < 0:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} of {partition.topic_partition}")
        log.maybe_increment_log_start_offset(offset)
        assert offset <= log.log_start_offset <= log.high_watermark, f"{log} was to begin at {offset}"
        self._on_deleted(partition)
        return offset
