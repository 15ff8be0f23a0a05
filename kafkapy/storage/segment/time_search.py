"""Find records by timestamp: time index, offset index, batch headers, then the records of one batch.

The last step decompresses a batch and reads its records one by one. If that would block the event loop for long, it
raises HeavySearch: run it on a worker, put the result into `searched`, and repeat the search.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from kafkapy.errors import KafkapyError
from kafkapy.record.batch import LOG_APPEND_TIME, RecordBatch
from kafkapy.record.batches import batch_at
from kafkapy.record.compression import MAX_DECOMPRESSED_BYTES, NONE, inflated_at_most
from kafkapy.record.errors import RecordTooLargeError
from kafkapy.storage.segment.segment import Segment
from kafkapy.storage.segment.time_index import TimestampOffset
from kafkapy.storage.workers import give_way

Place: TypeAlias = tuple[int, int]
"""Identifies a batch: its segment's base offset and its position there."""
Searched: TypeAlias = dict[Place, TimestampOffset | None]
"""Results of workers by batch. Valid for one search only: for its timestamp and start offset."""

LIGHT_RECORDS: Final = 2048
LIGHT_COMPRESSED_BYTES: Final = 64 << 10
LIGHT_INFLATED_BYTES: Final = 1 << 20
"""Limits for a search on the event loop: a few milliseconds of decompression and record parsing."""

RECORDS_BETWEEN_PAUSES: Final = 256


class HeavySearch(KafkapyError):
    """Not a failure: call `run` on a worker, store its result in `searched[place]`, and search again.

    It needs at most needed_bytes of memory.
    """

    def __init__(self, place: Place, run: Callable[[], TimestampOffset | None], needed_bytes: int) -> None:
        super().__init__(place)
        self.place = place
        self.run = run
        self.needed_bytes = needed_bytes


def find_timestamp(
    segment: Segment, timestamp_ms: int, start_offset: int, *, wait: bool = False, searched: Searched | None = None
) -> TimestampOffset | None:
    """Return the first record at or above `start_offset` whose timestamp is at or above `timestamp_ms`.

    Raises NeedsWarming unless `wait`; HeavySearch only if `searched` is given.
    """
    indexed = segment.time_index.lookup(timestamp_ms, wait=wait)
    position = segment.offset_index.lookup(max(indexed.offset, start_offset), wait=wait).position
    for at in segment.scan(position, wait=wait):
        if at.max_timestamp < timestamp_ms or at.last_offset < start_offset:
            continue
        batch = batch_at(segment.read_batch(at, wait=wait))
        found = _search(batch, timestamp_ms, start_offset, (segment.base_offset, at.position), searched)
        if found is not None:
            return found
    return None


def find_largest(segment: Segment, *, wait: bool = False, searched: Searched | None = None) -> TimestampOffset | None:
    """Return the first record that has the segment's largest timestamp, or None.

    Records without a timestamp count as NO_TIMESTAMP (-1), which is the largest if no record has a timestamp.
    """
    largest = segment.largest_timestamp
    position = segment.offset_index.lookup(largest.offset, wait=wait).position
    for at in segment.scan(position, wait=wait):
        if at.max_timestamp == largest.timestamp_ms:
            batch = batch_at(segment.read_batch(at, wait=wait))
            if batch.timestamp_type == LOG_APPEND_TIME:
                return TimestampOffset(at.max_timestamp, batch.base_offset, batch.partition_leader_epoch)
            found = _search(batch, at.max_timestamp, 0, (segment.base_offset, at.position), searched)
            if found is None and at.max_timestamp >= 0:
                return TimestampOffset(at.max_timestamp, at.last_offset, batch.partition_leader_epoch)
            return found
    return None


def _search(
    batch: RecordBatch, timestamp_ms: int, start_offset: int, place: Place, searched: Searched | None
) -> TimestampOffset | None:
    """Return the first record of a batch at or above both timestamp and offset, or None."""
    if searched is None:
        return _first_record(batch, timestamp_ms, start_offset, MAX_DECOMPRESSED_BYTES)
    if place in searched:
        return searched[place]
    is_light = batch.record_count <= LIGHT_RECORDS and (
        batch.compression == NONE or batch.size_bytes <= LIGHT_COMPRESSED_BYTES
    )
    if is_light:
        try:
            return _first_record(batch, timestamp_ms, start_offset, LIGHT_INFLATED_BYTES)
        except RecordTooLargeError:
            pass
    raise HeavySearch(
        place,
        lambda: _first_record(batch, timestamp_ms, start_offset, MAX_DECOMPRESSED_BYTES, pause=give_way),
        inflated_at_most(batch.compression, batch.compressed(), MAX_DECOMPRESSED_BYTES),
    )


def _first_record(
    batch: RecordBatch,
    timestamp_ms: int,
    start_offset: int,
    max_bytes: int,
    *,
    pause: Callable[[], None] | None = None,
) -> TimestampOffset | None:
    for index, record in enumerate(batch.records(max_bytes)):
        if pause is not None and not index % RECORDS_BETWEEN_PAUSES:
            pause()
        if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
            return TimestampOffset(record.timestamp_ms, record.offset, batch.partition_leader_epoch)
    return None
