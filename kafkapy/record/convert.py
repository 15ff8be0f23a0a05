"""Records between magic 2 and the message sets of clients older than Kafka 0.11. Source: KIP-31, KIP-32, KIP-98.

Both ways go through records one by one, as in Kafka: about 2 us each. Only old clients pay for it.
"""

from kafkapy.record.batch import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP, RecordBatch, batches
from kafkapy.record.builder import NewRecord, build_batch
from kafkapy.record.compression import MAX_DECOMPRESSED_BYTES, NONE, ZSTD
from kafkapy.record.errors import (
    UNSUPPORTED_COMPRESSION_TYPE,
    CorruptRecordError,
    InvalidRecordsError,
)
from kafkapy.record.legacy import LegacyBatch, build_message_set
from kafkapy.seams import ReadableBuffer


def up_convert(message_set: ReadableBuffer, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """Return a producer's message set of magic 0 or 1 as one batch of magic 2 with offsets from 0 on.

    The codec stays. Messages of magic 0 have no time: NO_TIMESTAMP. A message cut short at the end is left out. One
    that claims LogAppendTime is as good as any (a deviation: Kafka refused it where the topic has that type).
    Raises CorruptRecordError (a CRC), RecordTooLargeError (inflates beyond max_bytes), and InvalidRecordsError where
    Kafka's LogValidator refuses: no message, mixed formats, several wrappers.
    """
    messages = list(batches(message_set))
    if not messages:
        raise InvalidRecordsError("a partition must have messages, and has none")
    first = messages[0]
    codec = max(message.compression for message in messages)
    if codec != NONE and len(messages) > 1:
        raise InvalidRecordsError("a compressed message must be the only one of its partition")
    records: list[NewRecord] = []
    for message in messages:
        if not isinstance(message, LegacyBatch) or message.magic != first.magic:
            raise InvalidRecordsError(f"a message of magic {message.magic} after one of magic {first.magic}")
        records += _checked_records(message, max_bytes)
    return build_batch(records, compression=codec)


def _checked_records(message: LegacyBatch, max_bytes: int) -> list[NewRecord]:
    if not message.is_valid():
        raise CorruptRecordError(f"the CRC of a message of magic {message.magic} is wrong")
    records: list[NewRecord] = []
    for record, inner in message.messages(max_bytes):
        if inner.magic != message.magic:
            raise InvalidRecordsError(f"a message of magic {inner.magic} within one of magic {message.magic}")
        if inner is not message and not inner.is_valid():
            raise CorruptRecordError(f"the CRC of a compressed message of magic {inner.magic} is wrong")
        records.append((record.timestamp_ms, record.key, record.value, ()))
    return records


def down_convert(data: ReadableBuffer, magic: int, first_offset: int) -> bytes:
    """Return whole batches as message sets of magic 0 or 1 for a consumer that asked for first_offset.

    Older formats stay as they are, control batches are left out, headers are lost, as are the times for magic 0. A
    batch that was not compressed begins at first_offset, since its messages then stand alone; a compressed one stays
    whole, and the consumer skips. Raises InvalidRecordsError (UNSUPPORTED_COMPRESSION_TYPE) at a batch in zstd with
    nothing before it; else the answer ends there.
    """
    parts: list[bytes] = []
    for batch in batches(data):
        if batch.is_control:
            continue
        if batch.compression == ZSTD:
            if parts:
                break
            raise InvalidRecordsError("zstd, which clients this old do not know", code=UNSUPPORTED_COMPRESSION_TYPE)
        parts.append(bytes(batch.raw()) if batch.magic <= magic else _down_convert_batch(batch, magic, first_offset))
    return b"".join(parts)


def _down_convert_batch(batch: RecordBatch, magic: int, first_offset: int) -> bytes:
    records = batch.records()
    if batch.compression == NONE:
        records = (record for record in records if record.offset >= first_offset)
    is_append_time = batch.timestamp_type == LOG_APPEND_TIME
    return build_message_set(
        records,
        magic=magic,
        compression=batch.compression,
        timestamp_type=LOG_APPEND_TIME if is_append_time else CREATE_TIME,
        append_time_ms=batch.max_timestamp if is_append_time else NO_TIMESTAMP,
    )
