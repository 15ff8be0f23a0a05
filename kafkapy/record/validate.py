"""What a leader does with records before they are appended: check them, give them offsets, patch what must differ.

The rules are those of Kafka's LogValidator and of UnifiedLog's first look at a batch. A batch stays as it came but for
fields of its header: base offset and partition leader epoch (outside the CRC), and, where the topic demands it, the
timestamp type and max timestamp (a new CRC). It is written anew only when the topic's compression.type is not that of
the batch; offset deltas that do not count 0, 1, 2 are made to then.

Deviations: a batch that is kept and has other deltas is INVALID_RECORD (Kafka stores an uncompressed one, whose offsets
then lie, and fails with UNKNOWN_SERVER_ERROR at a compressed one); so is one with a producer id and no epoch (Kafka
stores it, or fails in that way where it writes it anew), and so are compressed bytes that do not inflate (Kafka:
UNKNOWN_SERVER_ERROR). Inflating is bounded (compression.py). A batch that is refused as a whole gets a message, which
Kafka gives for records only.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from crc32c import crc32c

from kafkapy.record.batch import (
    ATTRIBUTES_POSITION,
    BATCH_HEADER,
    CODEC_MASK,
    CONTROL_FLAG,
    CREATE_TIME,
    DELETE_HORIZON_FLAG,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Record,
    RecordBatch,
    crc_is_valid,
    increment_sequence,
    scan_headers,
)
from kafkapy.record.builder import encode_records, seal
from kafkapy.record.compression import MAX_DECOMPRESSED_BYTES, NAMES, NONE, ZSTD, compress, decompress
from kafkapy.record.errors import (
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    UNSUPPORTED_COMPRESSION_TYPE,
    CorruptRecordError,
    InvalidRecordsError,
    RecordTooLargeError,
)
from kafkapy.record.varint import read_varint, read_varlong
from kafkapy.record.walk import Walk, walk_records
from kafkapy.seams import ReadableBuffer

MAX_INT64 = (1 << 63) - 1
KEPT_ATTRIBUTES = CODEC_MASK | TRANSACTIONAL_FLAG | CONTROL_FLAG | DELETE_HORIZON_FLAG
"""What a header that is patched keeps of its attributes; the bits that nobody uses stay where nothing is patched."""


class AppendOrigin(Enum):
    """Who appends: what is checked depends on it."""

    CLIENT = "client"
    """A producer: everything is checked."""

    COORDINATOR = "coordinator"
    """A group or transaction coordinator: control records and sequence numbers are its own affair."""

    RAFT_LEADER = "raft_leader"
    """The quorum's leader, which has given offsets and epoch already: only size, CRC and order are checked."""

    REPLICATION = "replication"
    """A leader's log as a follower fetched it: CRC and order."""


@dataclass(frozen=True, slots=True)
class ValidationRules:
    """What a topic's config and the origin of an append demand of it."""

    topic_partition: str = "?"
    """For messages."""

    origin: AppendOrigin = AppendOrigin.CLIENT
    is_compacted: bool = False
    compression_type: str = "producer"
    """As the topic key: "producer", "uncompressed" or a codec's name."""

    compression_level: int | None = None
    """The level of that codec, None for Kafka's default."""

    timestamp_type: int = CREATE_TIME
    timestamp_before_max_ms: int = MAX_INT64
    timestamp_after_max_ms: int = 3_600_000
    max_message_bytes: int = 1_048_588
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES

    def target_codec(self, source_codec: int) -> int:
        if self.compression_type == "producer":
            return source_codec
        return NONE if self.compression_type == "uncompressed" else NAMES.index(self.compression_type)


class BatchSpan(NamedTuple):
    """A batch that may be appended. `position` counts from the start of the joined `data` of its ValidatedRecords."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    is_transactional: bool
    is_control: bool
    record_count: int
    leader_epoch: int


class ValidatedRecords(NamedTuple):
    """Records ready to be appended, whole batches in order. `log_append_time_ms` is -1 unless the topic asks for it."""

    data: list[ReadableBuffer]
    batches: list[BatchSpan]
    size_bytes: int
    first_offset: int
    last_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int
    record_count: int
    log_append_time_ms: int


def validate_produce_records(records: ReadableBuffer | None, api_version: int) -> BatchHeader:
    """Return the header of the one batch that Produce 3 and later may carry for a partition, or refuse them.

    Raises InvalidRecordsError: no batch or several, an old magic (INVALID_RECORD), zstd before version 7
    (UNSUPPORTED_COMPRESSION_TYPE); CorruptRecordError where no batch can be read.
    """
    if records is None:
        records = b""
    header = next(scan_headers(records), None)
    if header is None:
        raise InvalidRecordsError(f"Produce version {api_version} needs a record batch for each partition")
    if header.magic != 2:
        raise InvalidRecordsError(f"Produce version {api_version} takes batches of magic 2, not of {header.magic}")
    if header.attributes & CODEC_MASK == ZSTD and api_version < 7:
        raise InvalidRecordsError(
            f"Produce version {api_version} does not take zstd, which needs version 7",
            code=UNSUPPORTED_COMPRESSION_TYPE,
        )
    if len(records) > header.size_bytes and next(scan_headers(records, header.size_bytes), None) is not None:
        raise InvalidRecordsError(f"Produce version {api_version} takes one record batch for a partition, not several")
    return header


def validate_and_assign(
    records: ReadableBuffer, rules: ValidationRules, *, next_offset: int, leader_epoch: int, now_ms: int
) -> ValidatedRecords:
    """Check records for an append at next_offset and make them what the log will hold.

    The buffer is patched in place where it is writable and the batch is kept, so it must not be used for anything else;
    an incomplete batch at its end is left out. COORDINATOR may append several batches, a CLIENT one.

    Raises InvalidRecordsError (INVALID_RECORD, INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE), RecordTooLargeError,
    CorruptRecordError. On an error the buffer is as it was, but for batches that stood before the one at fault.
    """
    if rules.origin in (AppendOrigin.RAFT_LEADER, AppendOrigin.REPLICATION):
        return check_as_is(records, rules, next_offset=next_offset, leader_epoch=leader_epoch)
    data: list[ReadableBuffer] = []
    spans: list[BatchSpan] = []
    size_bytes = 0
    view = memoryview(records)
    headers = list(scan_headers(view))
    _check_batch_count(headers, rules)
    for header in headers:
        _check_envelope(view, header, rules)
        batch, span = _Append(rules, view, header).run(size_bytes, next_offset, leader_epoch, now_ms)
        data.append(batch)
        spans.append(span)
        size_bytes += span.size_bytes
        next_offset = span.last_offset + 1
    append_time_ms = now_ms if rules.timestamp_type == LOG_APPEND_TIME else NO_TIMESTAMP
    return _validated(data, spans, size_bytes, append_time_ms)


def check_as_is(
    records: ReadableBuffer, rules: ValidationRules, *, next_offset: int, leader_epoch: int
) -> ValidatedRecords:
    """Check batches whose offsets and epochs are given: CRC, order, and for RAFT_LEADER its epoch and the size.

    From a fetched log, batches of a higher epoch than leader_epoch are left out with all that follow (KAFKA-18723).
    The offset of the max timestamp is the last of its batch: the records are not walked. Raises CorruptRecordError,
    RecordTooLargeError, InvalidRecordsError (also where offsets do not rise from next_offset on).
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
        _check_envelope(view, header, rules)
        span = _span_as_is(header)
        if span.last_offset < next_offset or (spans and span.base_offset < next_offset):
            raise InvalidRecordsError(f"a batch up to offset {span.last_offset} where {next_offset} is next")
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
        header.last_offset, header.producer_id, header.producer_epoch, header.base_sequence, _last_sequence(header),
        header.magic == 2 and header.attributes & TRANSACTIONAL_FLAG != 0,
        header.magic == 2 and header.attributes & CONTROL_FLAG != 0, header.record_count, header.leader_epoch,
    )  # fmt: skip


def _last_sequence(header: BatchHeader) -> int:
    if header.base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return increment_sequence(header.base_sequence, header.last_offset - header.base_offset)


def _check_batch_count(headers: list[BatchHeader], rules: ValidationRules) -> None:
    if not headers:
        raise InvalidRecordsError(f"no record batch in an append to {rules.topic_partition}")
    if len(headers) > 1 and rules.origin is AppendOrigin.CLIENT:
        raise InvalidRecordsError(f"{len(headers)} record batches in an append to {rules.topic_partition}, not one")


def _check_envelope(view: memoryview, header: BatchHeader, rules: ValidationRules) -> None:
    """Check what Kafka looks at before anything else: the base offset, the size, the CRC."""
    where = rules.topic_partition
    if rules.origin is AppendOrigin.CLIENT and header.base_offset != 0 and header.magic == 2:
        raise InvalidRecordsError(f"base offset {header.base_offset} in an append to {where}, where 0 must be")
    if rules.origin is not AppendOrigin.REPLICATION and header.size_bytes > rules.max_message_bytes:
        raise _too_large(header.size_bytes, rules)
    if header.magic == 2:
        end = header.position + header.size_bytes
        is_valid = header.crc == crc32c(view[header.position + ATTRIBUTES_POSITION : end])
    else:
        is_valid = crc_is_valid(view, header.position, header.size_bytes)
    if not is_valid:
        raise CorruptRecordError(f"the checksum of a record batch for {where} is wrong (stored: {header.crc})")


def _too_large(size_bytes: int, rules: ValidationRules) -> RecordTooLargeError:
    return RecordTooLargeError(
        f"a record batch of {size_bytes} bytes for {rules.topic_partition}, which takes {rules.max_message_bytes}"
    )


class _Append:
    """One batch on its way into the log."""

    __slots__ = ("codec", "header", "is_append_time_claimed", "payload", "rules", "target", "view")

    def __init__(self, rules: ValidationRules, view: memoryview, header: BatchHeader) -> None:
        self.rules = rules
        self.header = header
        self.view = view[header.position : header.position + header.size_bytes]
        self.codec = header.attributes & CODEC_MASK
        is_kept = self.codec == NONE and header.attributes & CONTROL_FLAG  # control records stay as they are
        self.target = NONE if is_kept else rules.target_codec(self.codec)
        self.is_append_time_claimed = header.attributes & LOG_APPEND_TIME_FLAG != 0
        """By a producer, which may not: all records then have the header's max timestamp, whatever they say."""
        self.payload = b""

    def run(self, position: int, base_offset: int, leader_epoch: int, now_ms: int) -> tuple[ReadableBuffer, BatchSpan]:
        """Return the batch as it will be stored, and its span."""
        header = self.header
        self._check_header()
        self.payload = self._inflated()
        walk = walk_records(self.payload, header.record_count)
        self._check_records(walk, now_ms)
        if self.rules.timestamp_type == LOG_APPEND_TIME:
            max_timestamp, index_of_max = now_ms, 0
        else:
            max_timestamp = max(header.base_timestamp + walk.max_timestamp_delta, NO_TIMESTAMP)
            index_of_max = walk.index_of_max_timestamp
            if self.is_append_time_claimed:
                max_timestamp, index_of_max = header.max_timestamp, 0
        batch = self._stored(walk, base_offset, leader_epoch, max_timestamp)
        span = BatchSpan(
            position, len(batch), base_offset, base_offset + header.record_count - 1, max_timestamp,
            base_offset + index_of_max, header.producer_id, header.producer_epoch, header.base_sequence,
            _last_sequence(header), header.attributes & TRANSACTIONAL_FLAG != 0, header.attributes & CONTROL_FLAG != 0,
            header.record_count, leader_epoch,
        )  # fmt: skip
        return batch, span

    def _check_header(self) -> None:
        header = self.header
        where = self.rules.topic_partition
        if header.magic != 2:
            raise InvalidRecordsError(f"messages of magic {header.magic} for {where}: only magic 2 is appended")
        count = header.record_count
        if count <= 0 or count != header.last_offset - header.base_offset + 1:
            raise InvalidRecordsError(
                f"a batch for {where} that counts {count} records at offsets "
                f"{header.base_offset} to {header.last_offset}"
            )
        if self.rules.origin is not AppendOrigin.CLIENT:
            return
        if header.attributes & CONTROL_FLAG:
            raise InvalidRecordsError(f"control records from a client for {where}")
        if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
            raise InvalidRecordsError(
                f"a batch for {where} of producer id {header.producer_id} with epoch {header.producer_epoch} "
                f"and sequence {header.base_sequence}"
            )

    def _inflated(self) -> bytes:
        payload = self.view[HEADER_BYTES:]
        if self.codec == NONE:
            return bytes(payload)
        try:
            return decompress(self.codec, payload, 2, self.rules.max_decompressed_bytes)
        except CorruptRecordError as error:  # the CRC is right: sending the same again would not help
            raise InvalidRecordsError(f"a batch for {self.rules.topic_partition}: {error.message}") from error

    def _check_records(self, walk: Walk, now_ms: int) -> None:
        rules = self.rules
        base_timestamp = self.header.base_timestamp
        has_null_keys = rules.is_compacted and walk.null_key_count > 0
        if self.is_append_time_claimed:
            has_wrong_times = True
        elif rules.timestamp_type == LOG_APPEND_TIME:
            has_wrong_times = False
        else:
            has_wrong_times = (
                base_timestamp + walk.min_timestamp_delta < now_ms - rules.timestamp_before_max_ms
                or base_timestamp + walk.max_timestamp_delta > _latest_ms(rules, now_ms)
            )
        if has_null_keys or has_wrong_times:
            self._refuse_records(now_ms)
        if not walk.has_sequential_offsets and self.target == self.codec:
            raise InvalidRecordsError(f"offset deltas of a batch for {rules.topic_partition} do not count from 0 on")

    def _refuse_records(self, now_ms: int) -> None:
        """Raise with an error for each record at fault; Kafka names the timestamps where both kinds are found."""
        errors = list(self._record_errors(now_ms))
        if not errors:
            return  # only records without a timestamp were out of range
        record_errors = [(index, message) for index, _, message in errors]
        if any(code == INVALID_TIMESTAMP for _, code, _ in errors):
            message = "One or more records have been rejected due to invalid timestamp"
            raise InvalidRecordsError(message, code=INVALID_TIMESTAMP, record_errors=record_errors)
        shown = ", ".join(f"RecordError(batchIndex={index}, message='{text}')" for index, text in record_errors[:3])
        raise InvalidRecordsError(
            f"One or more records have been rejected due to {len(errors)} record errors in total, "
            f"and only showing the first three errors at most: [{shown}]",
            record_errors=record_errors,
        )

    def _record_errors(self, now_ms: int) -> Iterator[tuple[int, int, str]]:
        """Yield (index, code, message)."""
        rules = self.rules
        earliest_ms, latest_ms = now_ms - rules.timestamp_before_max_ms, _latest_ms(rules, now_ms)
        for index, record in enumerate(self._records()):
            timestamp_ms = record.timestamp_ms
            if rules.is_compacted and record.key is None:
                message = (
                    f"Compacted topic cannot accept message without key in topic partition {rules.topic_partition}"
                )
                yield index, INVALID_RECORD, message
            elif rules.timestamp_type == CREATE_TIME and timestamp_ms != NO_TIMESTAMP:
                if not earliest_ms <= timestamp_ms <= latest_ms:
                    message = (
                        f"Timestamp {timestamp_ms} of message with offset {record.offset} is out of range. "
                        f"The timestamp should be within [{earliest_ms}, {latest_ms}]"
                    )
                    yield index, INVALID_TIMESTAMP, message
            elif self.is_append_time_claimed:
                message = (
                    f"Invalid timestamp type in message with offset {record.offset}. "
                    "Producer should not set timestamp type to LogAppendTime."
                )
                yield index, INVALID_TIMESTAMP, message

    def _records(self) -> Iterator[Record]:
        """Yield the records, from the payload that is inflated already."""
        header = self.header
        attributes = header.attributes & ~CODEC_MASK
        return RecordBatch(
            self._with_header(
                0, header.leader_epoch, attributes, header.base_timestamp, header.max_timestamp, self.payload
            )
        ).records()

    def _with_header(
        self,
        base_offset: int,
        leader_epoch: int,
        attributes: int,
        base_timestamp: int,
        max_timestamp: int,
        payload: bytes | bytearray,
    ) -> bytes:
        header = self.header
        return seal(
            BATCH_HEADER.pack(
                base_offset, HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload), leader_epoch, 2, 0, attributes,
                header.last_offset - header.base_offset, base_timestamp, max_timestamp, header.producer_id,
                header.producer_epoch, header.base_sequence, header.record_count,
            ),
            payload,
        )  # fmt: skip

    def _stored(self, walk: Walk, base_offset: int, leader_epoch: int, max_timestamp: int) -> ReadableBuffer:
        """Return the batch as the log holds it: patched, or written anew where the codec is another."""
        if self.target == self.codec:
            return self._patched(base_offset, leader_epoch, max_timestamp)
        base_timestamp, payload = self._rewritten(walk)
        batch = self._with_header(
            base_offset,
            leader_epoch,
            self.header.attributes & TRANSACTIONAL_FLAG | self._time_flag | self.target,
            base_timestamp,
            max_timestamp,
            compress(self.target, payload, self.rules.compression_level),
        )
        if len(batch) > self.rules.max_message_bytes:
            raise _too_large(len(batch), self.rules)
        return batch

    def _rewritten(self, walk: Walk) -> tuple[int, bytes | bytearray]:
        """Return (base timestamp, payload) as Kafka's builder has them: offsets from 0, times from the first record."""
        base_timestamp = self.header.base_timestamp
        if (
            walk.has_sequential_offsets
            and not self.is_append_time_claimed
            and _first_timestamp_delta(self.payload) == 0
        ):
            return base_timestamp, self.payload
        records = [(record.timestamp_ms, record.key, record.value, record.headers) for record in self._records()]
        return records[0][0], encode_records(records, range(len(records)), records[0][0])

    @property
    def _time_flag(self) -> int:
        return LOG_APPEND_TIME_FLAG if self.rules.timestamp_type == LOG_APPEND_TIME else 0

    def _patched(self, base_offset: int, leader_epoch: int, max_timestamp: int) -> memoryview:
        view = memoryview(bytearray(self.view)) if self.view.readonly else self.view
        header = self.header
        view[:8] = base_offset.to_bytes(8, "big")
        view[12:16] = leader_epoch.to_bytes(4, "big", signed=True)
        if header.attributes & LOG_APPEND_TIME_FLAG != self._time_flag or max_timestamp != header.max_timestamp:
            view[21:23] = (header.attributes & KEPT_ATTRIBUTES | self._time_flag).to_bytes(2, "big")
            view[35:43] = max_timestamp.to_bytes(8, "big", signed=True)
            view[17:21] = crc32c(view[ATTRIBUTES_POSITION:]).to_bytes(4, "big")
        return view


def _first_timestamp_delta(payload: bytes) -> int:
    _, body = read_varint(payload, 0)
    return read_varlong(payload, body + 1)[0]


def _latest_ms(rules: ValidationRules, now_ms: int) -> int:
    return min(now_ms + rules.timestamp_after_max_ms, MAX_INT64)
