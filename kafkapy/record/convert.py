"""Converts between magic 2 and the message sets of clients older than Kafka 0.11. Source: KIP-31, KIP-32, KIP-98.

Both directions process each record, as in Kafka: about 2 us per record, for old clients only. Records are processed
some hundred at a time: besides its input and output a conversion holds one decompressed batch.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from kafkapy.record.batch import (
    BATCH_HEADER,
    CREATE_TIME,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Record,
    RecordBatch,
)
from kafkapy.record.batches import batches
from kafkapy.record.builder import NewRecord, encode_records, seal
from kafkapy.record.compression import MAX_APPENDED_BYTES, MAX_DECOMPRESSED_BYTES, NONE, ZSTD, compress
from kafkapy.record.errors import (
    UNSUPPORTED_COMPRESSION_TYPE,
    CorruptRecordError,
    InvalidRecordsError,
)
from kafkapy.record.legacy import LegacyBatch, build_message_set
from kafkapy.seams import ReadableBuffer

RECORDS_AT_ONCE: Final = 256
"""Records processed between two pauses of a worker: half a millisecond."""

WRAPPED_BYTES: Final = 256 << 10
"""Approximate uncompressed size of one compressed wrapper message: a larger batch becomes several."""

MESSAGE_OVERHEAD_BYTES: Final = 34
"""The overhead of a message of magic 1: offset, size, CRC, magic, attributes, timestamp, lengths of key and value."""
NO_BOUND: Final = 1 << 62


def up_convert(
    message_set: ReadableBuffer, max_bytes: int = MAX_APPENDED_BYTES, pause: Callable[[], None] | None = None
) -> bytes:
    """Return a producer's message set of magic 0 or 1 as one batch of magic 2 with offsets from 0 on.

    The codec is kept. Messages of magic 0 get NO_TIMESTAMP. A truncated message at the end is dropped. Deviation:
    Apache Kafka refused messages that claim LogAppendTime if the topic has that type. Here they are accepted, because
    their time is replaced anyway. pause() is called now and then. Raises CorruptRecordError (wrong CRC),
    RecordTooLargeError (decompresses beyond max_bytes), and InvalidRecordsError in the cases of Kafka's LogValidator:
    no message, mixed formats, several wrappers.
    """
    first = next(batches(message_set), None)
    if first is None:
        raise InvalidRecordsError("a partition must have messages, and has none")
    codec = first.compression
    payload = bytearray()
    count = base_timestamp = 0
    max_timestamp = NO_TIMESTAMP
    records = _checked_records(message_set, first, max_bytes)
    while some := list(islice(records, RECORDS_AT_ONCE)):
        if not count:  # the first message's time is the base of all deltas, as Kafka's builder has it
            base_timestamp = max_timestamp = some[0][0]
        payload += encode_records(some, range(count, count + len(some)), base_timestamp)
        max_timestamp = max(max_timestamp, max(record[0] for record in some))
        count += len(some)
        if pause is not None:
            pause()
    stored = payload if codec == NONE else compress(codec, payload)
    header = BATCH_HEADER.pack(
        0, HEADER_BYTES - LOG_OVERHEAD_BYTES + len(stored), NO_LEADER_EPOCH, 2, 0, codec, count - 1, base_timestamp,
        max_timestamp, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, count,
    )  # fmt: skip
    return seal(header, stored)


def _checked_records(message_set: ReadableBuffer, first: RecordBatch, max_bytes: int) -> Iterator[NewRecord]:
    for index, message in enumerate(batches(message_set)):
        if index and (message.compression != NONE or first.compression != NONE):
            raise InvalidRecordsError("a compressed message must be the only one of its partition")
        if not isinstance(message, LegacyBatch) or message.magic != first.magic:
            raise InvalidRecordsError(f"a message of magic {message.magic} after one of magic {first.magic}")
        if not message.has_valid_crc():
            raise CorruptRecordError(f"the CRC of a message of magic {message.magic} is wrong")
        for record, inner in message.messages(max_bytes):
            if inner.magic != message.magic:
                raise InvalidRecordsError(f"a message of magic {inner.magic} within one of magic {message.magic}")
            if inner is not message and not inner.has_valid_crc():
                raise CorruptRecordError(f"the CRC of a compressed message of magic {inner.magic} is wrong")
            yield record.timestamp_ms, record.key, record.value, ()


def down_convert(
    data: ReadableBuffer,
    magic: int,
    first_offset: int,
    *,
    max_bytes: int = NO_BOUND,
    max_inflated_bytes: int = MAX_DECOMPRESSED_BYTES,
    pause: Callable[[], None] | None = None,
) -> bytes:
    """Return complete batches as message sets of magic 0 or 1, for a consumer that fetches from first_offset.

    Batches of magic 0 or 1 up to `magic` are copied, control batches are dropped; headers are lost, and for magic 0 the
    timestamps. Of an uncompressed batch only the records from first_offset on are converted; of a compressed one the
    consumer skips earlier records. Conversion stops after the message set that reaches max_bytes; the consumer fetches
    the rest later. It also stops before a zstd batch; if that is the first, raises InvalidRecordsError
    (UNSUPPORTED_COMPRESSION_TYPE). Raises RecordTooLargeError if a batch decompresses beyond max_inflated_bytes.
    """
    converted = bytearray()
    for batch in batches(data):
        if batch.is_control:  # these clients know no transactions, and would take a marker for a record
            continue
        if batch.compression == ZSTD:
            if converted:
                break
            raise InvalidRecordsError("zstd, which clients this old do not know", code=UNSUPPORTED_COMPRESSION_TYPE)
        if batch.magic <= magic:
            converted += batch.raw()
        else:
            for part in _down_convert_batch(batch, magic, first_offset, max_inflated_bytes):
                converted += part
                if pause is not None:
                    pause()
                if len(converted) >= max_bytes:
                    break
        if len(converted) >= max_bytes:
            break
    return bytes(converted)


def _down_convert_batch(batch: RecordBatch, magic: int, first_offset: int, max_inflated_bytes: int) -> Iterator[bytes]:
    """Yield the message sets for a batch."""
    is_append_time = batch.timestamp_type == LOG_APPEND_TIME
    records = batch.records(max_inflated_bytes)
    is_plain = batch.compression == NONE
    if is_plain:
        records = (record for record in records if record.offset >= first_offset)
    while some := _next_records(records, RECORDS_AT_ONCE if is_plain else NO_BOUND):
        if some[-1].offset >= first_offset:
            yield build_message_set(
                some,
                magic=magic,
                compression=batch.compression,
                timestamp_type=LOG_APPEND_TIME if is_append_time else CREATE_TIME,
                append_time_ms=batch.max_timestamp if is_append_time else NO_TIMESTAMP,
            )


def _next_records(records: Iterator[Record], most: int) -> list[Record]:
    """Return the next records: at most `most`, and about WRAPPED_BYTES of messages."""
    some: list[Record] = []
    size_bytes = 0
    for record in records:
        some.append(record)
        size_bytes += MESSAGE_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
        if len(some) >= most or size_bytes >= WRAPPED_BYTES:
            break
    return some
