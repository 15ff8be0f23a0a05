"""Decisions of one shard that share a write: their records become one batch of the partition.

An append costs a batch header, a CRC and a system call, whatever the number of its records. If many members commit
offsets at the same time, their decisions wait for the end of the event loop's pass. Then all of their records are
appended as one batch, replayed, and answered. If the append fails, each of the requests fails. Apache Kafka's group
coordinator does the same with group.coordinator.append.linger.ms=-1, but replays first, and reverts if it must.

Only decisions may wait that do not depend on each other's records: each is made before those of the others are
replayed. See ShardHost.call.
"""

from collections.abc import Sequence
from typing import Any, Final

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.record.batch import HEADER_BYTES
from kafkapy.record.builder import NewRecord

WRITTEN_AT_ONCE: Final = 2
"""Decisions of a millisecond that are written at once, before others wait: waiting has its cost, too."""
WRITTEN_AT_ONCE_AFTER_LONE: Final = 32
"""Decisions that are written at once after one has waited and no other came."""


class SharedWrite:
    """The records of decisions that wait to be written as one batch, of at most size_bytes.

    error: what each of the requests fails with. It is NOT_COORDINATOR until the batch is written and replayed, so that
    they fail if the host is closed before that.
    """

    __slots__ = ("decision_count", "encoded", "error", "records", "size_bytes", "timestamp_ms")

    def __init__(self, timestamp_ms: int) -> None:
        self.timestamp_ms = timestamp_ms
        self.encoded: list[NewRecord] = []
        self.records: list[Any] = []
        self.size_bytes = HEADER_BYTES
        self.decision_count = 0
        self.error: ApiError | None = ApiError(ErrorCode.NOT_COORDINATOR)

    def add(self, encoded: Sequence[NewRecord], records: Sequence[Any], size_bytes: int) -> None:
        """Add the records of a decision, in both forms."""
        self.encoded += encoded
        self.records += records
        self.size_bytes += size_bytes
        self.decision_count += 1


class SharingRule:
    """Whether a decision waits for others: only if more than two were made in the same millisecond.

    A request that waits is parked and resumed, which is in vain if no other comes. A client that sends one request
    after the other may have several answered in a millisecond, too, so the rule also looks at what came of waiting.
    """

    __slots__ = ("_count", "_now_ms", "_skipped")

    def __init__(self) -> None:
        self._now_ms = 0
        self._count = 0
        """Decisions in the millisecond _now_ms."""
        self._skipped = 0
        """Decisions still to be written at once, after one that waited alone."""

    def is_crowded(self, now_ms: int) -> bool:
        """Count a decision, and return whether it should wait for others."""
        if now_ms != self._now_ms:
            self._now_ms = now_ms
            self._count = 0
        self._count += 1
        if self._count <= WRITTEN_AT_ONCE:
            return False
        if self._skipped:
            self._skipped -= 1
            return False
        return True

    def mark_written(self, decision_count: int) -> None:
        """Count how many decisions have shared a write."""
        if decision_count == 1:
            self._skipped = WRITTEN_AT_ONCE_AFTER_LONE
