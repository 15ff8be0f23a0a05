"""Look things up in a log: offsets by timestamp, for ListOffsets; aborted transactions, for the cleaner."""

from typing import TYPE_CHECKING

from kafkapy.record.batch import NO_TIMESTAMP
from kafkapy.storage.segment.time_index import TimestampOffset
from kafkapy.storage.segment.time_search import Searched, find_largest, find_timestamp
from kafkapy.storage.segment.txn_index import AbortedTransaction

if TYPE_CHECKING:
    from kafkapy.storage.log.log import Log


def offset_for_timestamp(
    log: "Log", timestamp_ms: int, *, wait: bool = False, searched: Searched | None = None
) -> TimestampOffset | None:
    """Return the first record at or after `timestamp_ms`, or None.

    The caller compares the result with the high watermark or last stable offset. Raises NeedsWarming unless `wait`;
    HeavySearch only if `searched` is given (empty for the first call).
    """
    log.log_dir.check_online()
    with log.failures("searching"):
        for segment in log.segments:
            if log.local_log.largest_timestamp_ms(segment) >= timestamp_ms:
                return find_timestamp(segment, timestamp_ms, log.log_start_offset, wait=wait, searched=searched)
    return None


def offset_of_max_timestamp(
    log: "Log", *, wait: bool = False, searched: Searched | None = None
) -> TimestampOffset | None:
    """Return the first record that has the log's largest timestamp, or None if no record has a timestamp.

    Raises as offset_for_timestamp does.
    """
    log.log_dir.check_online()
    with log.failures("searching"):
        latest = max(log.segments, key=lambda segment: segment.largest_timestamp.timestamp_ms)
        return find_largest(latest, wait=wait, searched=searched)


def aborted_transactions(log: "Log", start_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """Return the aborted transactions that overlap [start_offset, end_offset). Blocks shortly."""
    segment = log.segments.floor(start_offset)
    if segment is None:
        return []
    return log.local_log.reader.aborted_transactions(start_offset, end_offset, segment, wait=True)


def earliest_offset(log: "Log") -> TimestampOffset:
    """Return the log start offset and its leader epoch (-1 if unknown); the timestamp is -1."""
    entry = log.leader_epochs.earliest
    is_known = entry is not None and entry.start_offset <= log.log_start_offset
    return TimestampOffset(NO_TIMESTAMP, log.log_start_offset, entry.leader_epoch if entry and is_known else -1)


def segment_times(log: "Log") -> list[tuple[int, int]]:
    """Return (first offset, modification time in ms) of each segment. Raises StorageError."""
    with log.failures("looking at the segments of"):
        return [
            (max(segment.base_offset, log.log_start_offset), log.local_log.modified_ms(segment))
            for segment in log.segments
        ]
