"""What a fetch requests of a partition, and the outcome of reading it, which handlers turn into a response."""

from typing import Final, Protocol

from kafkapy.seams import FileRegion
from kafkapy.types import OffsetAndEpoch

UNKNOWN_OFFSET: Final = -1
NO_RECORDS: Final = b""


class FetchPosition(Protocol):
    """A partition of a fetch request. Fetch's generated struct has these fields."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int


class PartitionRead:
    """The outcome of reading a partition.

    error_code: 0 unless it could not be read; then the offsets are -1. records: a region that must be sent or released.
    aborted: (first offset, producer id) of each aborted transaction, in order of offset; None unless READ_COMMITTED.
    diverging: where the reader's log diverges from this one (KIP-595), None if it does not. preferred_read_replica: the
    broker that the reader should ask instead (KIP-392), -1 for none.
    """

    __slots__ = (
        "aborted",
        "diverging",
        "error_code",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "preferred_read_replica",
        "records",
    )

    def __init__(
        self,
        error_code: int,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        records: FileRegion | bytes,
        aborted: list[tuple[int, int]] | None = None,
        diverging: OffsetAndEpoch | None = None,
    ) -> None:
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.records = records
        self.aborted = aborted
        self.diverging = diverging
        self.preferred_read_replica = -1

    def release(self) -> None:
        """Unpin the records, which will not be sent."""
        records, self.records = self.records, NO_RECORDS
        if isinstance(records, FileRegion):
            records.release()


def failed_read(error_code: int) -> PartitionRead:
    """Return the outcome for a partition that could not be read."""
    return PartitionRead(error_code, UNKNOWN_OFFSET, UNKNOWN_OFFSET, UNKNOWN_OFFSET, NO_RECORDS)
