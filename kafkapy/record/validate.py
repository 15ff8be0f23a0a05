"""A leader's validation of records before an append: check them, assign offsets, patch header fields.

The rules are those of Kafka's LogValidator and of UnifiedLog's analysis of a batch. A batch is kept except for header
fields: base offset and partition leader epoch (outside the CRC), and, if the topic requires it, timestamp type and max
timestamp (with a new CRC). It is re-encoded only if the topic's compression.type differs from the batch's codec; offset
deltas are then renumbered 0, 1, 2, ...

Deviation: Apache Kafka stores an uncompressed batch with wrong offset deltas, and one with a producer id and no epoch,
and answers UNKNOWN_SERVER_ERROR to a compressed or re-encoded one, and to data that cannot be decompressed. Here all
are INVALID_RECORD, because a producer retries the other. Deviation: Apache Kafka answers UNKNOWN_SERVER_ERROR to an
unknown codec. Here it is UNSUPPORTED_COMPRESSION_TYPE, because that says what is wrong. Deviation: Apache Kafka has
messages for single records only, and any number of them. Here a batch that is refused as a whole has one, too, and
their number is bounded, because a batch may have thousands.
"""

from collections.abc import Callable

from kafkapy.record.append_rules import AppendOrigin, BatchSpan, ValidatedRecords, ValidationRules, ValidationStats
from kafkapy.record.batch import (
    ATTRIBUTES_POSITION,
    BATCH_HEADER,
    CONTROL_FLAG,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    last_sequence,
)
from kafkapy.record.batches import has_valid_crc, scan_headers
from kafkapy.record.crc import crc32c
from kafkapy.record.errors import CorruptRecordError, InvalidRecordsError, TooHeavyError
from kafkapy.record.leader_batch import LIGHT_BYTES, LIGHT_RECORDS, LeaderBatch, too_large
from kafkapy.seams import ReadableBuffer

__all__ = [
    "AppendOrigin",
    "BatchSpan",
    "ValidatedRecords",
    "ValidationRules",
    "ValidationStats",
    "check_as_is",
    "place",
    "validate_and_assign",
]


def validate_and_assign(
    records: ReadableBuffer,
    rules: ValidationRules,
    *,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
    is_on_loop: bool = False,
    pause: Callable[[], None] | None = None,
) -> ValidatedRecords:
    """Check records for an append at next_offset; return them as the log will store them.

    A writable buffer is patched in place if the batch is kept, so callers must not use it for anything else. An
    incomplete batch at its end is dropped. COORDINATOR may append several batches, CLIENT only one. is_on_loop: raise
    TooHeavyError if this would take long; a worker then calls it for offset 0, with pause, and `place` sets the offset.

    Raises InvalidRecordsError (INVALID_RECORD, INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE), RecordTooLargeError,
    CorruptRecordError. On an error the buffer is unchanged, except for batches before the invalid one.
    """
    if rules.origin in (AppendOrigin.RAFT_LEADER, AppendOrigin.REPLICATION):
        return check_as_is(records, rules, next_offset=next_offset, leader_epoch=leader_epoch)
    view = memoryview(records)
    append_time_ms = now_ms if rules.timestamp_type == LOG_APPEND_TIME else NO_TIMESTAMP
    header = _only_header(view)
    if header is not None:  # a single batch, as producers send
        checked = _enveloped(rules, view, header, is_on_loop, pause)
        batch, span = checked.run(0, next_offset, leader_epoch, now_ms)
        return ValidatedRecords(
            [batch], [span], span.size_bytes, next_offset, span.last_offset, span.max_timestamp,
            span.offset_of_max_timestamp, span.record_count, append_time_ms, checked.stats,
        )  # fmt: skip
    data: list[ReadableBuffer] = []
    spans: list[BatchSpan] = []
    size_bytes = 0
    headers = list(scan_headers(view))
    _check_batch_count(headers, rules)
    for header in headers:
        own = view[header.position : header.position + header.size_bytes]
        checked = _enveloped(rules, own, header, is_on_loop, pause)
        batch, span = checked.run(size_bytes, next_offset, leader_epoch, now_ms)
        data.append(batch)
        spans.append(span)
        size_bytes += span.size_bytes
        next_offset = span.last_offset + 1
    return _validated(data, spans, size_bytes, append_time_ms)


def _only_header(data: ReadableBuffer) -> BatchHeader | None:
    """Return the header if `data` is exactly one batch of magic 2, otherwise None."""
    size = len(data)
    if size < HEADER_BYTES:
        return None
    offset, length, leader_epoch, magic, crc, attributes, delta, base_ms, max_ms, pid, pepoch, sequence, count = (
        BATCH_HEADER.unpack_from(data)
    )
    if magic != 2 or length + LOG_OVERHEAD_BYTES != size:
        return None
    return BatchHeader(
        0, size, offset, offset + delta, leader_epoch, 2, crc, attributes, base_ms, max_ms, pid, pepoch, sequence, count
    )


def _enveloped(
    rules: ValidationRules, batch: memoryview, header: BatchHeader, is_on_loop: bool, pause: Callable[[], None] | None
) -> LeaderBatch:
    """Check what a batch says of itself as a whole; return it for the check of its records."""
    if is_on_loop and (header.size_bytes > LIGHT_BYTES or header.record_count > LIGHT_RECORDS):
        raise TooHeavyError
    _check_envelope(batch, header, rules)
    return LeaderBatch(rules, batch, header, is_on_loop, pause)


def place(validated: ValidatedRecords, *, next_offset: int, leader_epoch: int) -> ValidatedRecords:
    """Set the offset and leader epoch of a batch that was validated for offset 0, before its offset was known."""
    (batch,) = validated.data
    (span,) = validated.batches
    assert span.base_offset == 0, "it has no place yet"
    view = memoryview(batch)
    if view.readonly:
        view = memoryview(bytearray(batch))
    view[:8] = next_offset.to_bytes(8, "big")
    view[12:16] = leader_epoch.to_bytes(4, "big", signed=True)
    span = span._replace(
        base_offset=next_offset,
        last_offset=span.last_offset + next_offset,
        offset_of_max_timestamp=span.offset_of_max_timestamp + next_offset,
        leader_epoch=leader_epoch,
    )
    placed = _validated([view], [span], validated.size_bytes, validated.log_append_time_ms)
    return placed._replace(stats=validated.stats)


def check_as_is(
    records: ReadableBuffer, rules: ValidationRules, *, next_offset: int, leader_epoch: int
) -> ValidatedRecords:
    """Check batches that already have offsets and epochs: CRC, order, and for RAFT_LEADER the epoch and the size.

    With REPLICATION, batches of a higher epoch than leader_epoch, and all that follow, are dropped (KAFKA-18723). The
    offset of the max timestamp is set to the batch's last offset, as the records are not walked. Raises
    CorruptRecordError, RecordTooLargeError, InvalidRecordsError (also if offsets do not increase from next_offset).
    """
    view = memoryview(records)
    spans: list[BatchSpan] = []
    size_bytes = 0
    for header in scan_headers(view):
        if rules.origin is AppendOrigin.RAFT_LEADER and header.leader_epoch != leader_epoch:
            raise InvalidRecordsError(
                f"a batch of leader epoch {header.leader_epoch} from the leader of {leader_epoch}"
            )
        if rules.origin is AppendOrigin.REPLICATION and header.leader_epoch > leader_epoch >= 0:
            break
        _check_envelope(view[header.position : header.position + header.size_bytes], header, rules)
        span = _span_as_is(header)
        # A compressed message set of magic 0 or 1 has only its last offset outside: for the first one Kafka compares
        # that, rather than inflate it.
        first_offset = span.base_offset if header.magic == 2 or spans else span.last_offset
        if first_offset < next_offset:
            raise InvalidRecordsError(f"a batch at offset {first_offset} where {next_offset} is next")
        spans.append(span)
        next_offset = span.last_offset + 1
        size_bytes += span.size_bytes
    return _validated([view[:size_bytes]], spans, size_bytes, NO_TIMESTAMP)


def _validated(
    data: list[ReadableBuffer], spans: list[BatchSpan], size_bytes: int, append_time_ms: int
) -> ValidatedRecords:
    if len(spans) == 1:
        span = spans[0]
        latest, record_count = span, span.record_count
    elif spans:
        latest = max(spans, key=lambda span: span.max_timestamp)
        record_count = sum(span.record_count for span in spans)
    else:
        return ValidatedRecords([], [], 0, -1, -1, NO_TIMESTAMP, -1, 0, append_time_ms)
    return ValidatedRecords(
        data, spans, size_bytes, spans[0].base_offset, spans[-1].last_offset, latest.max_timestamp,
        latest.offset_of_max_timestamp, record_count, append_time_ms,
    )  # fmt: skip


def _span_as_is(header: BatchHeader) -> BatchSpan:
    return BatchSpan(
        header.position, header.size_bytes, header.base_offset, header.last_offset, header.max_timestamp,
        header.last_offset, header.producer_id, header.producer_epoch, header.base_sequence, last_sequence(header),
        header.magic == 2 and header.attributes & TRANSACTIONAL_FLAG != 0,
        header.magic == 2 and header.attributes & CONTROL_FLAG != 0, header.record_count, header.leader_epoch,
    )  # fmt: skip


def _check_batch_count(headers: list[BatchHeader], rules: ValidationRules) -> None:
    if not headers:
        raise InvalidRecordsError(f"no record batch in an append to {rules.topic_partition}")
    if len(headers) > 1 and rules.origin is AppendOrigin.CLIENT:
        raise InvalidRecordsError(f"{len(headers)} record batches in an append to {rules.topic_partition}, not one")


def _check_envelope(batch: memoryview, header: BatchHeader, rules: ValidationRules) -> None:
    """Check what Kafka checks first: the base offset, the size, the CRC.

    The size is the batch's as it was sent (max.message.bytes); a re-encoded one is checked once more (leader_batch.py).
    """
    origin = rules.origin
    if header.base_offset and origin is AppendOrigin.CLIENT and header.magic == 2:
        raise InvalidRecordsError(
            f"base offset {header.base_offset} in an append to {rules.topic_partition}, where 0 must be"
        )
    if header.size_bytes > rules.max_message_bytes and origin is not AppendOrigin.REPLICATION:
        raise too_large(header.size_bytes, rules)
    if header.magic == 2:
        is_intact = header.crc == crc32c(batch[ATTRIBUTES_POSITION:])
    else:
        is_intact = has_valid_crc(batch, 0, header.size_bytes)
    if not is_intact:
        raise CorruptRecordError(
            f"the checksum of a record batch for {rules.topic_partition} is wrong (stored: {header.crc})"
        )
