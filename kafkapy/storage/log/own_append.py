"""Append batches that this broker encodes itself: a coordinator's records, and transaction markers.

The bytes, indexes and producer state are the same as after append_as_leader with AppendOrigin.COORDINATOR. But the
batch is encoded at its offset, and is not parsed and checked again: its writer knows what it holds. Only the simple
case is handled: an uncompressed batch with CreateTime that fits, without a roll. In other cases nothing is changed, and
the caller uses append_as_leader, which also reports the errors. A record takes 7 us with its encoding, in place of 19
(CPython 3.11, without the disk).
"""

from collections.abc import Sequence

from kafkapy.named_tuple import NamedTuple
from kafkapy.record.append_rules import AppendOrigin
from kafkapy.record.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from kafkapy.record.builder import BatchFields, NewRecord, build_batch, build_batch_of_one, encode_record
from kafkapy.record.control import EndTxnMarker, build_end_txn_marker
from kafkapy.storage.log.append import AppendedBatch, PlacedBatch
from kafkapy.storage.log.log import Log
from kafkapy.storage.producers.entry import ProducerBatch, TransactionMarker
from kafkapy.storage.producers.state import PreparedAppend


class ProducerMarker(NamedTuple):
    """A transaction marker to append: the end of one producer's transaction."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int


def append_own_records(
    log: Log, records: Sequence[NewRecord], *, leader_epoch: int, now_ms: int, base_sequence: int = NO_SEQUENCE
) -> bool:
    """Append one batch of records, all with a key and the timestamp now_ms; False, with nothing changed, if it cannot.

    Raises ApiError (no space), StorageError (the disk failed); the log is then unchanged.
    """
    if not log.takes_own_batches or log.log_dir.is_full or log.log_dir.offline_reason is not None:
        return False
    base_offset = log.log_end_offset
    # One record without headers, as of a commit of one offset: a third of the time of build_batch.
    if len(records) == 1 and not records[0][3]:
        _, key, value, _ = records[0]
        batch = build_batch_of_one(
            encode_record(key, value),
            now_ms,
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            producer=(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, base_sequence),
        )
    else:
        batch = build_batch(
            records, BatchFields(base_offset=base_offset, leader_epoch=leader_epoch, base_sequence=base_sequence)
        )
    size_bytes = len(batch)
    if size_bytes > log.client_rules.max_message_bytes:
        return False
    appended = PlacedBatch(size_bytes, base_offset, base_offset + len(records) - 1, now_ms, leader_epoch)
    return _write(log, batch, [appended], now_ms, None)


def append_own_markers(
    log: Log, markers: Sequence[ProducerMarker], *, leader_epoch: int, now_ms: int, transaction_version: int
) -> bool:
    """Append markers by one write; False, with nothing changed, if they must go through append_as_leader.

    transaction_version: determines the producer epochs that are accepted (KIP-1228). Raises ApiError
    (INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED: for any of the markers; no space), StorageError (the disk
    failed); the log is then unchanged.
    """
    if not log.takes_own_batches or log.log_dir.is_full or log.log_dir.offline_reason is not None:
        return False
    data: list[bytes] = []
    appended: list[PlacedBatch] = []
    of_producers: list[ProducerBatch] = []
    for offset, (producer_id, epoch, is_commit, coordinator_epoch) in enumerate(markers, log.log_end_offset):
        if producer_id < 0:  # an administrator may send any: it has no place in the producers' state
            return False
        batch = build_end_txn_marker(
            EndTxnMarker(is_commit, coordinator_epoch),
            producer_id=producer_id,
            producer_epoch=epoch,
            timestamp_ms=now_ms,
            base_offset=offset,
            leader_epoch=leader_epoch,
        )
        data.append(batch)
        appended.append(PlacedBatch(len(batch), offset, offset, now_ms, leader_epoch))
        marker = TransactionMarker(not is_commit, coordinator_epoch, now_ms)
        of_producers.append(
            ProducerBatch(producer_id, epoch, NO_SEQUENCE, NO_SEQUENCE, offset, offset, now_ms, True, marker)
        )
    if len(data[0]) > log.client_rules.max_message_bytes:
        return False
    prepared = log.producer_state.prepare(
        of_producers, AppendOrigin.COORDINATOR, transaction_version=transaction_version
    )
    return _write(log, data[0] if len(data) == 1 else b"".join(data), appended, now_ms, prepared)


def _write(
    log: Log, data: bytes, batches: Sequence[AppendedBatch], now_ms: int, prepared: PreparedAppend | None
) -> bool:
    if len(data) > log.config.segment_bytes or log.must_roll(len(data), now_ms, batches[-1].last_offset, now_ms):
        return False
    log.write_batches(log.segments.active, [data], len(data), batches, now_ms, (), prepared)
    return True
