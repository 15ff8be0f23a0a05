"""Messages of magic 0 and 1, the formats before Kafka 0.11: still read from logs, converted when produced (convert.py).

    0  int64  offset          16 int8   magic
    8  int32  length          17 int8   attributes: bits 0-2 codec, 3 LogAppendTime (magic 1)
    12 uint32 CRC-32 of the   18 int64  timestamp (magic 1 only)
              rest               int32  key length (-1 null), key, int32 value length (-1 null), value

A compressed message (the wrapper) contains others in its value; its offset is that of the last inner message. Inner
messages of magic 0 carry absolute offsets, those of magic 1 relative ones. In magic 1, the timestamp of a wrapper with
LogAppendTime applies to all inner messages (KIP-31, KIP-32).
"""

import struct
import zlib
from collections.abc import Iterable, Iterator

from kafkapy.record.batch import (
    CODEC_MASK,
    CREATE_TIME,
    LOG_APPEND_TIME,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    NO_TIMESTAMP_TYPE,
    Record,
    RecordBatch,
)
from kafkapy.record.compression import MAX_DECOMPRESSED_BYTES, NONE, ZSTD, compress, decompress
from kafkapy.record.errors import CorruptRecordError, InvalidRecordsError
from kafkapy.seams import ReadableBuffer

_HEADER = struct.Struct(">qiIbb")
_CRC_START = 16
_MIN_BYTES = {0: 26, 1: 34}
_KEY_POSITION = {0: 18, 1: 26}
"""By magic: the bytes of a record without key and value, and where its key begins."""


class LegacyBatch(RecordBatch):
    """A message of magic 0 or 1 with the interface of RecordBatch: a plain message or a compressed wrapper.

    The `base_offset` of a wrapper is found by decompressing it at first use; fields that the format lacks are -1.
    """

    __slots__ = ("_base_offset",)

    def __init__(self, data: ReadableBuffer, position: int = 0) -> None:
        self._check(data, position, _MIN_BYTES[0])
        self.data = data
        self.position = position
        offset, length, self.crc, self.magic, self.attributes = _HEADER.unpack_from(data, position)
        assert self.magic in (0, 1)
        self._check(data, position, _MIN_BYTES[self.magic])
        self.size_bytes = LOG_OVERHEAD_BYTES + length
        self.last_offset = offset
        self._base_offset: int | None = offset if self.compression == NONE else None
        self.base_timestamp = self.max_timestamp = (
            int.from_bytes(data[position + 18 : position + 26], "big", signed=True) if self.magic else NO_TIMESTAMP
        )
        self.partition_leader_epoch = NO_LEADER_EPOCH
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        self.record_count = 1 if self.compression == NONE else -1

    @property
    def base_offset(self) -> int:  # type: ignore[override]  # computed here, stored in the slot of magic 2
        if self._base_offset is None:
            self._base_offset = next(self.records()).offset
        return self._base_offset

    @property
    def timestamp_type(self) -> int:
        if self.magic == 0:
            return NO_TIMESTAMP_TYPE
        return LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_FLAG else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return False

    @property
    def is_control(self) -> bool:
        return False

    @property
    def delete_horizon_ms(self) -> int | None:
        return None

    @property
    def last_sequence(self) -> int:
        return NO_SEQUENCE

    def has_valid_crc(self) -> bool:
        return self.crc == zlib.crc32(memoryview(self.data)[self.position + _CRC_START : self.end_position])

    def compressed(self) -> memoryview:
        """Return a wrapper's compressed message set; for a plain message, the message itself."""
        if self.compression == NONE:
            return self.raw()
        _, value = self._key_and_value()
        if value is None:
            raise InvalidRecordsError("a compressed message without a value")
        return memoryview(value)

    def records_payload(self, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
        """Return a wrapper's decompressed message set; for a plain message, the message itself."""
        if self.compression == ZSTD:
            raise InvalidRecordsError(f"zstd in a message of magic {self.magic}")
        return decompress(self.compression, self.compressed(), self.magic, max_bytes)

    def records(self, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
        for record, _ in self.messages(max_bytes):
            yield record

    def messages(self, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> "Iterator[tuple[Record, LegacyBatch]]":
        """Yield each record with the message that holds it: this one, or an inner one. Raises as records does."""
        if self.compression == NONE:
            yield Record(self.last_offset, self.max_timestamp, *self._key_and_value()), self
            return
        payload = self.records_payload(max_bytes)
        base_offset = self._offset_of_relative_zero(payload)
        append_time_ms = self.max_timestamp if self.timestamp_type == LOG_APPEND_TIME else None
        for message in _messages(payload):
            if message.compression != NONE:
                raise InvalidRecordsError("a compressed message within a compressed message")
            timestamp_ms = message.max_timestamp
            if message.magic == 1 and append_time_ms is not None:
                timestamp_ms = append_time_ms
            yield Record(base_offset + message.last_offset, timestamp_ms, *message._key_and_value()), message

    def _offset_of_relative_zero(self, message_set: bytes) -> int:
        """Return the number to add to inner offsets: 0 for magic 0, whose inner offsets are absolute."""
        last_inner_offset = _last_offset(message_set)
        if self.magic == 0 or self.last_offset == 0:  # librdkafka once sent wrappers with offset 0
            return 0
        if self.last_offset < last_inner_offset:
            raise InvalidRecordsError(f"a wrapper at offset {self.last_offset} of messages up to {last_inner_offset}")
        return self.last_offset - last_inner_offset

    def _key_and_value(self) -> tuple[bytes | None, bytes | None]:
        position = self.position + _KEY_POSITION[self.magic]
        key, position = self._read_nullable(position)
        value, position = self._read_nullable(position)
        return key, value

    def _read_nullable(self, position: int) -> tuple[bytes | None, int]:
        length = int.from_bytes(self.data[position : position + 4], "big", signed=True)
        position += 4
        if length > self.end_position - position or position > self.end_position:
            raise InvalidRecordsError(f"a field of {length} bytes in a message of {self.size_bytes}")
        if length < 0:
            return None, position
        return bytes(self.data[position : position + length]), position + length


def _messages(message_set: bytes) -> Iterator[LegacyBatch]:
    """Yield the inner messages of a wrapper; stop at a truncated one, as Kafka does."""
    position = 0
    while len(message_set) - position >= LOG_OVERHEAD_BYTES:
        length = int.from_bytes(message_set[position + 8 : position + 12], "big", signed=True)
        if length >= 0 and position + LOG_OVERHEAD_BYTES + length > len(message_set):
            return
        if length < _MIN_BYTES[0] - LOG_OVERHEAD_BYTES:
            raise CorruptRecordError(f"a message with length {length} within a compressed one")
        if message_set[position + 16] > 1:
            raise InvalidRecordsError(f"magic {message_set[position + 16]} within a compressed message")
        message = LegacyBatch(message_set, position)
        yield message
        position += message.size_bytes


def _last_offset(message_set: bytes) -> int:
    """Return the offset of a wrapper's last inner message, by lengths only; _messages reports other errors."""
    position, last_position = 0, -1
    while len(message_set) - position >= LOG_OVERHEAD_BYTES:
        length = int.from_bytes(message_set[position + 8 : position + 12], "big", signed=True)
        if length < 0 or position + LOG_OVERHEAD_BYTES + length > len(message_set):
            break
        last_position = position
        position += LOG_OVERHEAD_BYTES + length
    if last_position < 0:
        raise InvalidRecordsError("a compressed message that wraps none")
    return int.from_bytes(message_set[last_position : last_position + 8], "big", signed=True)


def build_message_set(
    records: Iterable[Record], *, magic: int, compression: int = NONE, timestamp_type: int = CREATE_TIME,
    level: int | None = None, append_time_ms: int = NO_TIMESTAMP,
) -> bytes:  # fmt: skip
    """Return the records as messages of magic 0 or 1, in one wrapper if a codec is given.

    With LOG_APPEND_TIME the wrapper, or without a codec each message, carries append_time_ms.
    """
    flags = LOG_APPEND_TIME_FLAG if magic and timestamp_type == LOG_APPEND_TIME else 0
    records = list(records)
    if compression == NONE or not records:
        times = [append_time_ms if flags else record.timestamp_ms for record in records]
        return b"".join(
            _message(magic, r.offset, t, flags, r.key, r.value) for r, t in zip(records, times, strict=True)
        )
    base_offset = records[0].offset if magic else 0
    inner = b"".join(_message(magic, r.offset - base_offset, r.timestamp_ms, 0, r.key, r.value) for r in records)
    wrapped = compress(compression, inner, level, magic)
    timestamp_ms = append_time_ms if flags else max(record.timestamp_ms for record in records)
    return _message(magic, records[-1].offset, timestamp_ms, flags | (compression & CODEC_MASK), None, wrapped)


def _message(
    magic: int, offset: int, timestamp_ms: int, attributes: int, key: bytes | None, value: bytes | None
) -> bytes:
    body = b"".join(
        (
            bytes((magic, attributes)),
            timestamp_ms.to_bytes(8, "big", signed=True) if magic else b"",
            b"\xff\xff\xff\xff" if key is None else len(key).to_bytes(4, "big") + key,
            b"\xff\xff\xff\xff" if value is None else len(value).to_bytes(4, "big") + value,
        )
    )
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body
