"""A Produce with acks=-1 that waits until all in-sync replicas have its records, or for the producer's timeout."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.produce_response import PartitionProduceResponse
from kafkapy.timer.purgatory import DelayedOperation

if TYPE_CHECKING:
    from kafkapy.record.append_rules import ValidatedRecords
    from kafkapy.replication.hosted import HostedPartition
    from kafkapy.storage.errors import NeedsWorker
    from kafkapy.storage.producers.entry import VerificationGuard

REQUEST_TIMED_OUT: Final = int(ErrorCode.REQUEST_TIMED_OUT)


class PartitionAppend:
    """Records for one partition, and the part of the response for their result.

    required_offset: the end of the append; -1 if it failed, has not been made, or is settled. needed: work that a
    worker must do before the append; checked: its result. follow_count: the partition's at the append. verification:
    the guard for the first batch of a transaction (ReplicaManager.start_verification). transaction_version: for the
    markers that a coordinator appends (KIP-1228).
    """

    __slots__ = (
        "checked",
        "follow_count",
        "needed",
        "partition",
        "records",
        "required_offset",
        "response",
        "transaction_version",
        "verification",
    )

    def __init__(
        self,
        partition: "HostedPartition",
        records: memoryview | bytearray | bytes,
        response: PartitionProduceResponse,
        *,
        verification: "VerificationGuard | None" = None,
        transaction_version: int = 0,
    ) -> None:
        self.partition = partition
        self.records = records
        self.response = response
        self.required_offset = -1
        self.follow_count = partition.follow_count
        self.needed: NeedsWorker | None = None
        self.checked: ValidatedRecords | None = None
        self.verification = verification
        self.transaction_version = transaction_version

    def is_settled(self) -> bool:
        """Return whether the response is final: failed, replicated, or (an error) no longer able to be replicated."""
        if self.required_offset < 0:
            return True
        is_done, code = self.partition.acknowledgement(self.required_offset, self.follow_count)
        if is_done:
            self.required_offset = -1
            self.response.error_code = code
        return is_done


class DelayedProduce(DelayedOperation):
    """Completes when every append of a request is settled. At the timeout the others get REQUEST_TIMED_OUT."""

    __slots__ = ("_on_done", "_pending")

    def __init__(self, appends: Sequence[PartitionAppend], on_done: Callable[[], None]) -> None:
        super().__init__()
        self._pending = [append for append in appends if append.required_offset >= 0]
        self._on_done = on_done

    def try_complete(self) -> bool:
        self._pending = [append for append in self._pending if not append.is_settled()]
        return not self._pending and self.complete()

    def on_expiration(self) -> None:
        for append in self._pending:
            append.response.error_code = REQUEST_TIMED_OUT

    def on_complete(self) -> None:
        self._on_done()
