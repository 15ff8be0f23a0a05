"""Views of record batches and their records.

A batch of magic 2 (KIP-98): a big-endian header of 61 bytes, then its records, compressed together if a codec is set:

    0  int64  base offset              21  int16  attributes              43  int64  producer id
    8  int32  length of the rest       23  int32  last offset delta       51  int16  producer epoch
    12 int32  partition leader epoch   27  int64  base timestamp          53  int32  base sequence
    16 int8   magic                    35  int64  max timestamp           57  int32  record count
    17 uint32 CRC-32C of the bytes from 21 on

Attributes: bits 0-2 codec, 3 LogAppendTime, 4 transactional, 5 control, 6 base timestamp is a delete horizon. A record
is varint length, int8 attributes, varlong timestamp delta, varint offset delta, key, value (varint length, -1 null),
varint header count, headers (key and value alike). legacy.py has messages of magic 0 and 1; batches.py
chooses the class by magic. A view does not own its bytes: it is valid while the caller keeps them unchanged.
"""

import struct
from collections.abc import Iterator

from kafkapy.named_tuple import NamedTuple
from kafkapy.record.compression import MAX_DECOMPRESSED_BYTES, decompress
from kafkapy.record.crc import crc32c
from kafkapy.record.errors import CorruptRecordError, InvalidRecordsError
from kafkapy.record.varint import read_varint, read_varlong
from kafkapy.seams import ReadableBuffer
from kafkapy.types import INT32_MAX

BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")
LOG_OVERHEAD_BYTES = 12
"""Size of base offset and length, the fields that the length does not include."""
HEADER_BYTES = 61
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
MIN_MESSAGE_BYTES = 14
"""The smallest length field: an empty message of magic 0."""

CODEC_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1
NO_TIMESTAMP_TYPE = -1
CREATE_TIME = 0
LOG_APPEND_TIME = 1


class Record(NamedTuple):
    """A record as a consumer sees it. Header keys keep bytes that are not UTF-8 as surrogates (surrogateescape)."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class BatchHeader(NamedTuple):
    """The position, size and header fields of a batch, as found by scan_headers.

    Messages of magic 0 and 1 have no base offset in their header: their base_offset is the last offset, as in Kafka's
    shallow iteration. Fields that their format lacks are -1, and so is record_count if they are compressed.
    """

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


class RecordBatch:
    """A view of the batch of magic 2 at `position` of `data`. The header is parsed at once, the records on demand.

    Raises CorruptRecordError if the header is truncated, or the length field does not fit the data.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "crc",
        "data",
        "last_offset",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "position",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size_bytes",
    )

    attributes: int
    base_offset: int
    base_sequence: int
    base_timestamp: int
    crc: int
    data: ReadableBuffer
    last_offset: int
    magic: int
    max_timestamp: int
    partition_leader_epoch: int
    position: int
    producer_epoch: int
    producer_id: int
    record_count: int
    size_bytes: int

    def __init__(self, data: ReadableBuffer, position: int = 0) -> None:
        self._check(data, position, HEADER_BYTES)
        self.data = data
        self.position = position
        (
            self.base_offset,
            length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        ) = BATCH_HEADER.unpack_from(data, position)
        self.last_offset = self.base_offset + last_offset_delta
        self.size_bytes = LOG_OVERHEAD_BYTES + length
        if self.magic != 2:
            raise CorruptRecordError(f"magic {self.magic} where a batch of magic 2 must be")

    @staticmethod
    def _check(data: ReadableBuffer, position: int, min_bytes: int) -> None:
        remaining = len(data) - position
        if remaining < min_bytes:
            raise CorruptRecordError(f"a batch of at least {min_bytes} bytes in {remaining} bytes")
        size_bytes = LOG_OVERHEAD_BYTES + int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
        if not min_bytes <= size_bytes <= remaining:
            raise CorruptRecordError(f"a batch of {size_bytes} bytes, which must be {min_bytes} to {remaining}")

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1

    @property
    def end_position(self) -> int:
        return self.position + self.size_bytes

    @property
    def compression(self) -> int:
        """The codec number (compression.py)."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """CREATE_TIME or LOG_APPEND_TIME; NO_TIMESTAMP_TYPE for magic 0."""
        return LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_FLAG else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def delete_horizon_ms(self) -> int | None:
        """From when on tombstones and markers of the batch may be removed (KIP-534); None until the cleaner sets it."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset - self.base_offset)

    def raw(self) -> memoryview:
        """Return the whole batch without copying."""
        return memoryview(self.data)[self.position : self.end_position]

    def has_valid_crc(self) -> bool:
        """Return whether the CRC is correct."""
        return self.crc == crc32c(memoryview(self.data)[self.position + ATTRIBUTES_POSITION : self.end_position])

    def records_payload(self, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
        """Return the bytes of the records, decompressed if necessary.

        Raises RecordTooLargeError before they exceed max_bytes, CorruptRecordError if decompression fails.
        """
        return decompress(self.compression, self.compressed(), self.magic, max_bytes)

    def compressed(self) -> memoryview:
        """Return the bytes of the records as stored, possibly compressed, without copying."""
        return memoryview(self.data)[self.position + HEADER_BYTES : self.end_position]

    def records(self, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
        """Yield the records in order. Raises InvalidRecordsError if one is malformed, and as records_payload does."""
        if self.record_count == 0:
            return
        if self.record_count < 0:
            raise InvalidRecordsError(f"a batch that counts {self.record_count} records")
        append_time_ms = self.max_timestamp if self.timestamp_type == LOG_APPEND_TIME else None
        yield from records_in(
            self.records_payload(max_bytes), self.record_count, self.base_offset, self.base_timestamp, append_time_ms
        )

    def offset_of_max_timestamp(self) -> int:
        """Return the offset of the first record with the batch's max timestamp; the last offset if there is none."""
        if self.timestamp_type == LOG_APPEND_TIME:
            return self.base_offset
        for record in self.records():
            if record.timestamp_ms == self.max_timestamp:
                return record.offset
        return self.last_offset

    def __repr__(self) -> str:
        return (
            f"RecordBatch(magic={self.magic}, offsets=[{self.base_offset}, {self.last_offset}], "
            f"leader_epoch={self.partition_leader_epoch}, producer_id={self.producer_id}, "
            f"attributes={self.attributes:#x}, size_bytes={self.size_bytes})"
        )


def records_in(
    payload: bytes, record_count: int, base_offset: int, base_timestamp: int, append_time_ms: int | None
) -> Iterator[Record]:
    """Yield the records of an uncompressed payload. Raises InvalidRecordsError if one is malformed."""
    position = 0
    for _ in range(record_count):
        record, position = _read_record(payload, position, base_offset, base_timestamp, append_time_ms)
        yield record
    if position != len(payload):
        raise InvalidRecordsError(f"{len(payload) - position} bytes behind the last record of the batch")


def _read_record(
    payload: bytes, position: int, base_offset: int, base_timestamp: int, append_time_ms: int | None
) -> tuple[Record, int]:
    """Return the record at `position` and the position after it. Raises InvalidRecordsError.

    For speed, non-negative one-byte varints (neither bit 7 nor bit 0 is set) are decoded inline.
    """
    try:
        length, body = read_varint(payload, position)
        end = body + length
        if length < 0 or end > len(payload):
            raise InvalidRecordsError(f"a record of {length} bytes in {len(payload) - body} bytes")
        at = body + 2  # after the attributes, which no record uses, and a delta of one byte
        timestamp_delta = payload[body + 1]
        if timestamp_delta & 0x81:
            timestamp_delta, at = read_varlong(payload, body + 1)
        else:
            timestamp_delta >>= 1
        offset_delta, at = read_varint(payload, at)
        key, at = _read_nullable(payload, at, end)
        value, at = _read_nullable(payload, at, end)
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if payload[at]:
            headers, at = _read_headers(payload, at, end)
        else:
            at += 1
    except (IndexError, ValueError) as error:
        raise InvalidRecordsError(f"a record at byte {position} of the batch's records is malformed") from error
    if at != end:
        raise InvalidRecordsError(f"a record of {length} bytes holds {at - body}")
    timestamp_ms = base_timestamp + timestamp_delta if append_time_ms is None else append_time_ms
    return Record(base_offset + offset_delta, timestamp_ms, key, value, headers), end


def _read_nullable(payload: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length = payload[position]
    if length & 0x81:
        length, position = read_varint(payload, position)
        if length < 0:
            return None, position
    else:
        length >>= 1
        position += 1
    field_end = position + length
    if field_end > end:
        raise ValueError("a field is longer than its record")
    return payload[position:field_end], field_end


def _read_headers(payload: bytes, position: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    header_count, position = read_varint(payload, position)
    if not 0 <= header_count <= end - position:
        raise ValueError("a header count that its record cannot hold")
    headers = []
    for _ in range(header_count):
        key, position = _read_nullable(payload, position, end)
        if key is None:
            raise ValueError("a header without a key")
        value, position = _read_nullable(payload, position, end)
        headers.append((key.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position


def increment_sequence(sequence: int, increment: int) -> int:
    """Add to a producer's sequence number, which wraps from 2**31 - 1 to 0."""
    return (sequence + increment) & INT32_MAX


def last_sequence(header: BatchHeader) -> int:
    """Return the sequence number of a batch's last record, NO_SEQUENCE if it has none."""
    if header.base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return increment_sequence(header.base_sequence, header.last_offset - header.base_offset)
