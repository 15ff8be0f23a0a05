"""Finding records by time: time index, offset index, batch headers, and then the records of one batch.

That last step inflates a batch and reads its records one by one. Where it would take the event loop long it raises
HeavySearch instead: a worker runs it, its result goes into `searched`, and the search is made again.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from kafkapy.errors import KafkapyError
from kafkapy.record.batch import LOG_APPEND_TIME, RecordBatch, batch_at
from kafkapy.record.compression import MAX_DECOMPRESSED_BYTES, NONE, inflated_at_most
from kafkapy.record.errors import RecordTooLargeError
from kafkapy.storage.segment.segment import Segment
from kafkapy.storage.segment.time_index import TimestampOffset
from kafkapy.storage.workers import give_way

Place: TypeAlias = tuple[int, int]
"""A batch: its segment's base offset, its position there."""
Searched: TypeAlias = dict[Place, TimestampOffset | None]
"""What workers have found in batches; of one search only, whose time and start they were asked for."""

LIGHT_RECORDS: Final = 2048
LIGHT_COMPRESSED_BYTES: Final = 64 << 10
LIGHT_INFLATED_BYTES: Final = 1 << 20
"""What the event loop may be asked to inflate and to read record by record: some milliseconds of work."""

RECORDS_BETWEEN_PAUSES: Final = 256


class HeavySearch(KafkapyError):
    """Not a failure: run `run` on a worker, note its result in `searched` under `place`, and search again.

    It takes at most needed_bytes of memory.
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

    Raises NeedsWarming unless `wait`; HeavySearch where `searched` is given.
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
    """Return the record that has the segment's largest timestamp, the first of them; None where there is none.

    Records without a timestamp have NO_TIMESTAMP (-1), which is the largest where no record has another.
    """
    largest = segment.largest
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
    """Return the first record of a batch at or above both, None where there is none."""
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
