"""Decide what the cleaner keeps of a batch: nothing, its header, some of its records, or all of it.

No IO. The rules are those of Apache Kafka's Cleaner:

* A record is kept if it is the last of its key, or above the offsets covered by the offset map. A record without a key
  is dropped.
* A tombstone (null value), and a marker whose transaction has no data left, are kept until their delete horizon. The
  first pass that reads them writes it into the batch: base timestamp = now + delete.retention.ms, attribute bit 6,
  timestamp deltas relative to that (KIP-534). In old formats the segment file's modification time decides.
* Data of aborted transactions is dropped.
* The last batch of each known producer is kept at least as an empty header, which carries its last sequence number and
  epoch. So is the last batch of a pass's range, so that the log end offset stays the same.
* Messages of magic 0 and 1 are converted to magic 2, one batch per message or wrapper.

Retained records keep their bytes and are compressed with the same codec. Deviation: Apache Kafka recomputes the base
timestamp of a batch that loses records. Here it stays, because the records' deltas then stay. Deviation: Apache Kafka
writes a batch with a wrong CRC with a new one. Here it is refused (CorruptRecordError), because its data are not what
was sent. Deviation: Apache Kafka marks a partition as uncleanable if no message of magic 0 or 1 is retained at the end
of a pass. Here they become an empty batch, because the log is in order.
"""

from collections.abc import Mapping
from itertools import count

from kafkapy.named_tuple import NamedTuple
from kafkapy.record.batch import (
    BATCH_HEADER,
    CODEC_MASK,
    CREATE_TIME,
    DELETE_HORIZON_FLAG,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    NO_TIMESTAMP,
    RecordBatch,
)
from kafkapy.record.builder import BatchFields, build_batch_of, seal
from kafkapy.record.columns import (
    RecordColumns,
    join_records,
    latest_timestamp_delta,
    record_columns,
    record_starts,
    with_base_timestamp,
)
from kafkapy.record.compression import compress
from kafkapy.record.errors import CorruptRecordError
from kafkapy.seams import ReadableBuffer
from kafkapy.storage.cleaner.offset_map import CachedOffsets, OffsetMap
from kafkapy.storage.cleaner.retained_offsets import RetainedOffsets
from kafkapy.storage.cleaner.transactions import CleanedTransactions


class LastRecord(NamedTuple):
    """A producer's last write. last_data_offset: None if only markers of its epoch are known."""

    last_data_offset: int | None
    producer_epoch: int


class KeptBatch(NamedTuple):
    """A batch to write: its bytes, and the fields that Segment.append needs."""

    data: ReadableBuffer
    size_bytes: int
    last_offset: int
    max_timestamp: int
    record_count: int


class BatchFilter:
    """Filters batches, which must be passed in log order. Counts the records read and kept."""

    def __init__(
        self,
        offset_map: OffsetMap,
        retained: RetainedOffsets,
        transactions: CleanedTransactions,
        *,
        last_records: Mapping[int, LastRecord],
        end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        """end_offset: where the pass ends; the batch that ends there is kept. now_ms: compared with delete horizons."""
        self.keeps_legacy_tombstones = True
        self.records_read = 0
        self.records_kept = 0
        self.records_without_key = 0
        self._latest_offset = offset_map.latest_offset
        self._offsets = CachedOffsets(offset_map)
        self._retained = retained
        self._transactions = transactions
        self._last_records = last_records
        self._end_offset = end_offset
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms

    def keep(self, batch: RecordBatch) -> KeptBatch | None:
        """Return the retained part of the next batch, or None. Raises RecordsError if the batch is damaged."""
        if not batch.has_valid_crc():
            raise CorruptRecordError(f"the CRC of the batch at offset {batch.last_offset} does not fit")
        kept = self._keep_legacy(batch) if batch.magic < 2 else self._keep(batch)
        if kept is not None:
            self.records_kept += kept.record_count
            return kept
        if self._is_last_of_producer(batch) or batch.next_offset == self._end_offset:
            return _empty(batch)
        return None

    def trim(self) -> None:
        """Bound the cache of offsets; call it after each chunk."""
        self._offsets.trim()

    def _is_last_of_producer(self, batch: RecordBatch) -> bool:
        last = self._last_records.get(batch.producer_id) if batch.has_producer_id else None
        if last is None:
            return False
        if last.last_data_offset is not None:
            return batch.last_offset == last.last_data_offset
        return batch.is_control and batch.producer_epoch == last.producer_epoch

    def _keep(self, batch: RecordBatch) -> KeptBatch | None:
        self.records_read += batch.record_count
        may_discard = self._transactions.may_discard(batch)
        horizon_ms = batch.delete_horizon_ms
        if may_discard and (not batch.is_control or (horizon_ms is not None and horizon_ms <= self._now_ms)):
            return None
        if batch.record_count == 0:
            return None
        if batch.is_control:
            return self._keep_control(batch, needs_horizon=may_discard and horizon_ms is None)
        if self._retained.covers(batch):
            return self._keep_judged(batch)
        return self._keep_records(batch, is_judged=False)

    def _keep_control(self, batch: RecordBatch, *, needs_horizon: bool) -> KeptBatch:
        """Keep a marker; `needs_horizon`: its transaction has no records left, so it goes when the horizon passes."""
        payload = batch.records_payload()
        columns = record_columns(payload, batch.record_count)
        if needs_horizon:
            return self._with_horizon(batch, payload, columns, list(range(batch.record_count)))
        return _whole(batch)

    def _keep_judged(self, batch: RecordBatch) -> KeptBatch | None:
        """Keep the records that are marked in the retained offsets, of a batch that these cover."""
        verdict = self._retained.judge(batch)
        self.records_without_key += verdict.without_key
        if not verdict.kept:
            return None
        if not verdict.kept_tombstones:
            if verdict.kept == batch.record_count:
                return _whole(batch)
            if not self._retained.has_disorder and batch.record_count == batch.next_offset - batch.base_offset:
                return self._keep_values(batch)
        return self._keep_records(batch, is_judged=True)

    def _keep_records(self, batch: RecordBatch, *, is_judged: bool) -> KeptBatch | None:
        """Keep the last record of each key; tombstones get a delete horizon, and go when it has passed."""
        payload = batch.records_payload()
        columns = record_columns(payload, batch.record_count)
        if is_judged:
            indexes = self._retained.indexes(batch, columns.offset_deltas)
        else:
            indexes = self._last_of_their_keys(batch, columns)
        indexes = self._unexpired(batch, columns, indexes)
        if not indexes:
            return None
        has_tombstones = bool(columns.null_values) and not set(indexes).isdisjoint(columns.null_values)
        if has_tombstones and batch.delete_horizon_ms is None:
            return self._with_horizon(batch, payload, columns, indexes)
        if len(indexes) == batch.record_count:
            return _whole(batch)
        records = join_records(payload, columns.starts, indexes)
        return _rewritten(batch, payload, columns.starts, indexes, records, horizon_ms=None)

    def _keep_values(self, batch: RecordBatch) -> KeptBatch:
        """Keep some records of a batch covered by the marks, without tombstones and with a record at each offset."""
        payload = batch.records_payload()
        starts = record_starts(payload, batch.record_count)
        indexes = self._retained.values_of_sequence(batch)
        return _rewritten(batch, payload, starts, indexes, join_records(payload, starts, indexes), horizon_ms=None)

    def _last_of_their_keys(self, batch: RecordBatch, columns: RecordColumns) -> list[int]:
        """Return the indexes of the records to keep, by looking up their keys."""
        keys, base_offset, latest_offset = columns.keys, batch.base_offset, self._latest_offset
        if base_offset > latest_offset:
            return list(range(batch.record_count))
        offsets = [base_offset + delta for delta in columns.offset_deltas]
        if None in keys or batch.last_offset > latest_offset:
            indexes = [index for index in range(batch.record_count) if self._is_last(keys[index], offsets[index])]
        else:
            last_offsets = self._offsets.of(keys)  # type: ignore[arg-type]  # none of them is None
            indexes = [at for at, own, last in zip(count(), offsets, last_offsets, strict=False) if own >= last]
        return indexes

    def _unexpired(self, batch: RecordBatch, columns: RecordColumns, indexes: list[int]) -> list[int]:
        """Remove the tombstones whose delete horizon has passed from `indexes`."""
        horizon_ms = batch.delete_horizon_ms
        if not columns.null_values or horizon_ms is None or horizon_ms > self._now_ms:
            return indexes
        covered = self._latest_offset - batch.base_offset
        expired = {index for index in columns.null_values if columns.offset_deltas[index] <= covered}
        return [index for index in indexes if index not in expired]

    def _is_last(self, key: bytes | None, offset: int) -> bool:
        if offset > self._latest_offset:
            return True
        if key is None:
            self.records_without_key += 1
            return False
        return offset >= self._offsets[key]

    def _with_horizon(
        self, batch: RecordBatch, payload: bytes, columns: RecordColumns, indexes: list[int]
    ) -> KeptBatch:
        moved_by_ms = self._horizon_ms - batch.base_timestamp
        records = with_base_timestamp(payload, columns.starts, indexes, moved_by_ms=moved_by_ms)
        return _rewritten(batch, payload, columns.starts, indexes, records, horizon_ms=self._horizon_ms)

    def _keep_legacy(self, batch: RecordBatch) -> KeptBatch | None:
        records = list(batch.records())
        self.records_read += len(records)
        kept = [
            record
            for record in records
            if self._is_last(record.key, record.offset)
            and (record.value is not None or self.keeps_legacy_tombstones or record.offset > self._latest_offset)
        ]
        if not kept:
            return None
        is_append_time = batch.timestamp_type == LOG_APPEND_TIME
        has_tombstone = any(record.value is None for record in kept)
        fields = BatchFields(
            base_offset=kept[0].offset,
            compression=batch.compression,
            timestamp_type=LOG_APPEND_TIME if is_append_time else CREATE_TIME,
            max_timestamp=batch.max_timestamp if is_append_time else None,
            delete_horizon_ms=self._horizon_ms if has_tombstone else None,
        )
        data = build_batch_of(kept, fields)
        max_timestamp = batch.max_timestamp if is_append_time else max(record.timestamp_ms for record in kept)
        return KeptBatch(data, len(data), kept[-1].offset, max_timestamp, len(kept))


def _whole(batch: RecordBatch) -> KeptBatch:
    return KeptBatch(batch.raw(), batch.size_bytes, batch.last_offset, batch.max_timestamp, batch.record_count)


def _rewritten(
    batch: RecordBatch,
    payload: bytes,
    starts: list[int],
    indexes: list[int],
    records: bytes,
    *,
    horizon_ms: int | None,
) -> KeptBatch:
    """Return the batch with only `records`, those at `indexes`; horizon_ms: the delete horizon to set, if any."""
    if batch.timestamp_type == LOG_APPEND_TIME:
        max_timestamp = batch.max_timestamp
    else:
        at_most = batch.max_timestamp - batch.base_timestamp
        max_timestamp = batch.base_timestamp + latest_timestamp_delta(payload, starts, indexes, at_most=at_most)
    if batch.compression:
        records = compress(batch.compression, records)
    attributes, base_timestamp = batch.attributes, batch.base_timestamp
    if horizon_ms is not None:
        attributes, base_timestamp = attributes | DELETE_HORIZON_FLAG, horizon_ms
    data = _sealed(batch, attributes, base_timestamp, max_timestamp, len(indexes), records)
    return KeptBatch(data, len(data), batch.last_offset, max_timestamp, len(indexes))


def _empty(batch: RecordBatch) -> KeptBatch:
    """Return the batch without records; it still carries the producer's id, epoch and last sequence number."""
    attributes = batch.attributes & ~(CODEC_MASK | DELETE_HORIZON_FLAG)
    if batch.magic < 2:
        attributes &= LOG_APPEND_TIME_FLAG if batch.magic else 0
    data = _sealed(batch, attributes, NO_TIMESTAMP, batch.max_timestamp, 0, b"")
    return KeptBatch(data, len(data), batch.last_offset, batch.max_timestamp, 0)


def _sealed(
    batch: RecordBatch, attributes: int, base_timestamp: int, max_timestamp: int, record_count: int, records: bytes
) -> bytes:
    """Return a batch of magic 2 with the same offsets and producer fields, and these records."""
    header = BATCH_HEADER.pack(
        batch.base_offset, HEADER_BYTES - LOG_OVERHEAD_BYTES + len(records), batch.partition_leader_epoch, 2, 0,
        attributes, batch.last_offset - batch.base_offset, base_timestamp, max_timestamp, batch.producer_id,
        batch.producer_epoch, batch.base_sequence, record_count,
    )  # fmt: skip
    return seal(header, records)
