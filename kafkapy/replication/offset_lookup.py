"""ListOffsets for one partition: by a special timestamp, or by time. Without tiered storage.

    -1  latest          high watermark; last stable offset for read_committed; both O(1)
    -2  earliest        log start offset; O(1)
    -3  max timestamp   the first record that has it (KIP-734)
    -4  earliest local  as -2 (KIP-405)
    -5  latest tiered   none: offset -1 (KIP-1005)
    -6  earliest pending upload    none: offset -1 (KIP-1023)

Other values are milliseconds: the first record at or after that time. Offsets that the reader may not read yet (at or
beyond high watermark or last stable offset) are not returned.
"""

from typing import TYPE_CHECKING, Final

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.replication.fetch_read import end_offset
from kafkapy.storage.log.lookup import earliest_offset, offset_for_timestamp, offset_of_max_timestamp
from kafkapy.storage.log.reader import FetchIsolation
from kafkapy.storage.segment.time_index import TimestampOffset
from kafkapy.storage.segment.time_search import Searched

if TYPE_CHECKING:
    from kafkapy.replication.hosted_partitions import HostedPartition

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
"""The timestamps of ListOffsets that are none: the offset of the largest timestamp, for example."""
MIN_VERSIONS: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""The first version of ListOffsets that supports each special timestamp."""

NOT_FOUND: Final = TimestampOffset(-1, -1, -1)


def is_supported(timestamp_ms: int, version: int) -> bool:
    """Return whether a version of ListOffsets may ask for this timestamp."""
    return timestamp_ms >= 0 or version >= MIN_VERSIONS.get(timestamp_ms, version + 1)


def find_offset(
    partition: "HostedPartition",
    timestamp_ms: int,
    isolation: FetchIsolation,
    *,
    is_from_client: bool,
    searched: Searched | None = None,
) -> TimestampOffset:
    """Return the offset that ListOffsets answers, NOT_FOUND if there is none.

    The caller checks the leadership. Raises ApiError OFFSET_NOT_AVAILABLE to clients while a new leader's high
    watermark has not reached the start of its epoch; NeedsWarming; HeavySearch if `searched` is given; StorageError.
    """
    log = partition.log
    assert log is not None
    if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        return earliest_offset(log)
    # until it has reached its epoch's start, it may be below offsets that the leader before has answered (KIP-207)
    is_lagging = is_from_client and partition.leader_epoch_start_offset > log.high_watermark
    limit = end_offset(log, isolation)
    if timestamp_ms == LATEST:
        if is_lagging:
            raise _not_available(partition)
        return TimestampOffset(-1, limit, partition.leader_epoch)
    if timestamp_ms in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOT_FOUND
    is_max = timestamp_ms == MAX_TIMESTAMP
    if is_max:
        found = offset_of_max_timestamp(log, searched=searched)
    else:
        found = offset_for_timestamp(log, timestamp_ms, searched=searched)
    if found is None or found.offset >= limit:
        if is_lagging:
            raise _not_available(partition)
        return NOT_FOUND
    return found


def _not_available(partition: "HostedPartition") -> ApiError:
    assert partition.log is not None
    message = (
        f"the high watermark {partition.log.high_watermark} of {partition.topic_partition} has not reached the start "
        f"{partition.leader_epoch_start_offset} of leader epoch {partition.leader_epoch}"
    )
    return ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, message)
