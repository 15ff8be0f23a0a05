"""Rebuild producer state from a log: load the newest snapshot, then replay the batches and markers after it."""

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from kafkapy.record.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchHeader, increment_sequence, last_sequence
from kafkapy.record.batches import batch_at
from kafkapy.record.errors import CorruptRecordError
from kafkapy.record.validate import AppendOrigin
from kafkapy.seams import ReadableBuffer
from kafkapy.storage.producers.entry import MAX_BATCHES_KEPT, BatchMetadata
from kafkapy.storage.producers.snapshots import ProducerSnapshots
from kafkapy.storage.producers.state import ProducerBatch, ProducerState, TransactionMarker
from kafkapy.storage.segment.scan import ScannedBatch, scan_batches
from kafkapy.storage.segment.segment import Segment
from kafkapy.storage.segment.segments import Segments
from kafkapy.storage.segment.txn_index import AbortedTransaction

TAIL_BYTES: Final = 8 << 20
"""How much of a log's end is searched for its producers' last batches: space for five of the largest, and others."""

logger = logging.getLogger("kafkapy.storage")


def producer_batch(header: BatchHeader, data: ReadableBuffer) -> ProducerBatch | None:
    """Return the ProducerBatch of a batch with a producer id; None if it is a marker removed by the cleaner.

    `data` holds the batch at header.position. Raises RecordsError if a control batch cannot be parsed.
    """
    marker = None
    if header.attributes & CONTROL_FLAG:
        marker = read_marker(data, header.position)
        if marker is None:
            return None
    last = header.base_sequence
    if last >= 0:
        last = increment_sequence(last, header.last_offset - header.base_offset)
    return ProducerBatch(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        last,
        header.base_offset,
        header.last_offset,
        header.max_timestamp,
        header.attributes & TRANSACTIONAL_FLAG != 0,
        marker,
    )


def read_marker(data: ReadableBuffer, position: int) -> TransactionMarker | None:
    """Return the transaction marker in a control batch, None if its record was removed by the cleaner.

    Key: int16 version, int16 type (0 abort, 1 commit); value: int16 version, int32 coordinator epoch. KIP-98.
    """
    record = next(batch_at(data, position).records(), None)
    if record is None or record.key is None or record.value is None:
        return None
    control_type = int.from_bytes(record.key[2:4], "big", signed=True)
    if control_type not in (0, 1):
        return None
    return TransactionMarker(
        is_abort=control_type == 0,
        coordinator_epoch=int.from_bytes(record.value[2:6], "big", signed=True),
        timestamp_ms=record.timestamp_ms,
    )


def replay_producer_batch(producers: ProducerState, batch: ProducerBatch | None) -> Sequence[AbortedTransaction]:
    """Apply a batch that is in the log to the state; return the transactions that it aborts."""
    if batch is None:
        return ()
    prepared = producers.prepare((batch,), AppendOrigin.REPLICATION)
    aborted = producers.aborted_by(prepared)
    producers.commit(prepared)
    for completed in prepared.completed:
        producers.complete(completed)
    return aborted


def rebuild_producers(
    producers: ProducerState,
    snapshots: ProducerSnapshots,
    segments: Segments,
    *,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
    was_clean_shutdown: bool,
) -> None:
    """Bring `producers` to `end_offset`: load the newest snapshot at or below it, then replay the batches after it.

    Takes snapshots at the last two segments' base offsets and at the end, so that the next rebuild is short. After a
    clean stop without any snapshot there were no producers.
    """
    assert end_offset >= 0, f"a log up to {end_offset}"
    active = segments.active if len(segments) else None
    previous = segments.before(active) if active is not None else None
    snapshot_at = {segment.base_offset for segment in (previous, active) if segment is not None}
    if snapshots.latest is None and was_clean_shutdown:
        for offset in sorted({*snapshot_at, end_offset}):
            producers.record_end_offset(offset)
            snapshots.write_if_there_is_room(producers)
        return
    # truncated to an offset up to which all batches were seen, and none had a producer: nothing to read again
    had_none = producers.is_empty and producers.map_end_offset >= end_offset
    truncate_and_reload(producers, snapshots, log_start_offset, end_offset, now_ms)
    if end_offset > producers.map_end_offset and not had_none:
        for segment in segments.between(producers.map_end_offset, end_offset):
            start_offset = max(segment.base_offset, producers.map_end_offset, log_start_offset)
            producers.record_end_offset(start_offset)
            if segment.base_offset in snapshot_at:
                snapshots.write_if_there_is_room(producers)
            _replay_segment(producers, segment, start_offset, end_offset)
    producers.record_end_offset(end_offset)
    snapshots.write_if_there_is_room(producers)


def truncate_and_reload(
    producers: ProducerState, snapshots: ProducerSnapshots, log_start_offset: int, end_offset: int, now_ms: int
) -> None:
    """Delete snapshots outside the log and load the newest one left, unless the state is already at end_offset."""
    snapshots.delete_outside(log_start_offset, end_offset)
    if end_offset == producers.map_end_offset:
        producers.on_high_watermark(log_start_offset)
        snapshots.last_offset = snapshots.latest if snapshots.latest is not None else log_start_offset
        return
    found = snapshots.read_latest()
    snapshots.last_offset, entries = found if found is not None else (log_start_offset, [])
    assert found is None or found[0] <= end_offset, f"a snapshot at {snapshots.last_offset} of a log up to {end_offset}"
    producers.load(entries, snapshots.last_offset, now_ms)


def _replay_segment(producers: ProducerState, segment: Segment, start_offset: int, end_offset: int) -> None:
    first = segment.find_batch(start_offset, wait=True)
    if first is None:
        return
    for scanned in scan_batches(segment, first.position):
        if scanned.header.base_offset >= end_offset:
            return
        if scanned.header.producer_id >= 0:
            replay_producer_batch(producers, producer_batch(scanned.header, scanned.chunk))


def recall_batches(producers: ProducerState, segments: Segments) -> None:
    """Restore the producers' batches before their last one, as far as the log's tail holds them. Blocks.

    A snapshot holds only one batch per producer. After a broker was killed, an idempotent client resends up to five
    batches, which may all be in the log, and duplicates are only detected among known batches. Deviation: Apache Kafka
    knows only the last batch after a recovery. Here the last five are found again, because several requests of a
    connection may be appended before the first response is sent.
    """
    if not producers.producers:
        return
    found: dict[int, deque[BatchMetadata]] = {each: deque(maxlen=MAX_BATCHES_KEPT) for each in producers.producers}
    try:
        for header, _, _ in _tail(segments):
            entry = producers.producers.get(header.producer_id)
            is_records = header.base_sequence >= 0 and not header.attributes & CONTROL_FLAG
            if entry is not None and is_records and header.producer_epoch == entry.producer_epoch:
                delta = header.last_offset - header.base_offset
                found[header.producer_id].append(
                    BatchMetadata(last_sequence(header), header.last_offset, delta, header.max_timestamp)
                )
    except CorruptRecordError as error:
        logger.warning("Could not read the end of %s for its producers: %s", segments.active.log.path, error)
        return
    for entry in producers.producers.values():
        batches = found[entry.producer_id]
        # A tail that does not end with the producer's last batch says nothing about the batches before that one.
        if batches and entry.batches and batches[-1][:2] == entry.batches[-1][:2]:
            entry.batches[:-1] = list(batches)[:-1]


def _tail(segments: Segments) -> Iterator[ScannedBatch]:
    """Yield the batches of about the last TAIL_BYTES of the log."""
    starts = []
    room = TAIL_BYTES
    for segment in reversed(segments.all()):
        start = segment.offset_index.lookup_position(max(segment.size - room, 0), wait=True)
        starts.append((segment, start))
        room -= segment.size - start
        if room <= 0:
            break
    for segment, start in reversed(starts):
        yield from scan_batches(segment, start)
