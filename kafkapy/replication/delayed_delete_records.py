"""A DeleteRecords that waits until all replicas have raised their log start offset, or for its timeout."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.timer.purgatory import DelayedOperation

if TYPE_CHECKING:
    from kafkapy.replication.hosted_partitions import HostedPartition

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

    def is_settled(self) -> bool:
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
        self._pending = [deletion for deletion in self._pending if not deletion.is_settled()]
        return not self._pending and self.complete()

    def on_expiration(self) -> None:
        for deletion in self._pending:
            deletion.error_code = REQUEST_TIMED_OUT

    def on_complete(self) -> None:
        self._on_done()
