"""The batches in a run of bytes: views of each (`batches`, `batch_at`), or their headers alone (`scan_headers`).

Of any magic: batches (2, batch.py) and the messages of older logs (0 and 1, legacy.py).
"""

from collections.abc import Iterator

from kafkapy.record.batch import (
    ATTRIBUTES_POSITION,
    BATCH_HEADER,
    CRC_POSITION,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MIN_MESSAGE_BYTES,
    BatchHeader,
    RecordBatch,
)
from kafkapy.record.crc import crc32c
from kafkapy.record.errors import CorruptRecordError
from kafkapy.seams import ReadableBuffer


def batch_at(data: ReadableBuffer, position: int = 0) -> RecordBatch:
    """Return the view of the batch (magic 2) or message (magic 0, 1) at `position`. Raises CorruptRecordError."""
    if len(data) - position <= MAGIC_POSITION:
        raise CorruptRecordError(f"a batch in {len(data) - position} bytes")
    magic = data[position + MAGIC_POSITION]
    if magic == 2:
        return RecordBatch(data, position)
    if magic > 2:
        raise CorruptRecordError(f"magic {magic}, which does not exist")
    from kafkapy.record.legacy import LegacyBatch  # imported only for old logs

    return LegacyBatch(data, position)


def batches(data: ReadableBuffer) -> Iterator[RecordBatch]:
    """Yield the complete batches of `data` in order; stop at a truncated one.

    Raises CorruptRecordError for an impossible length or magic.
    """
    position = 0
    end = len(data)
    while end - position >= LOG_OVERHEAD_BYTES:
        length = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
        if length < MIN_MESSAGE_BYTES:
            raise CorruptRecordError(f"a batch with length {length} at byte {position}")
        if end - position > MAGIC_POSITION and data[position + MAGIC_POSITION] > 2:
            raise CorruptRecordError(f"magic {data[position + MAGIC_POSITION]} at byte {position}")
        if end - position < LOG_OVERHEAD_BYTES + length:
            return
        yield batch_at(data, position)
        position += LOG_OVERHEAD_BYTES + length


def scan_headers(data: ReadableBuffer, position: int = 0) -> Iterator[BatchHeader]:
    """Yield the header of each complete batch from `position` on, without checking CRC or records.

    Stops at a truncated batch. Raises CorruptRecordError for an impossible length or magic.
    """
    unpack_from = BATCH_HEADER.unpack_from
    new_header = BatchHeader._make
    size = len(data)
    last_start = size - HEADER_BYTES
    while position <= last_start:
        offset, length, leader_epoch, magic, crc, attributes, delta, base_ms, max_ms, pid, pepoch, sequence, count = (
            unpack_from(data, position)
        )
        if magic != 2 or length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
            break
        batch_bytes = length + 12
        if position + batch_bytes > size:
            return
        yield new_header(
            (
                position, batch_bytes, offset, offset + delta, leader_epoch, magic, crc, attributes, base_ms, max_ms,
                pid, pepoch, sequence, count,
            )
        )  # fmt: skip
        position += batch_bytes
    if position < size:
        yield from _scan_slowly(data, position)


def _scan_slowly(data: ReadableBuffer, position: int) -> Iterator[BatchHeader]:
    """Continue scan_headers at anything but a complete batch of magic 2: old messages, a truncated tail, garbage."""
    for batch in batches(memoryview(data)[position:]):
        is_shallow = batch.magic < 2
        yield BatchHeader(
            position + batch.position,
            batch.size_bytes,
            batch.last_offset if is_shallow else batch.base_offset,
            batch.last_offset,
            batch.partition_leader_epoch,
            batch.magic,
            batch.crc,
            batch.attributes,
            batch.base_timestamp,
            batch.max_timestamp,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.record_count,
        )


def has_valid_crc(data: ReadableBuffer, position: int, size_bytes: int) -> bool:
    """Return whether the checksum of the batch or message of `size_bytes` at `position` is correct."""
    view = memoryview(data)
    if size_bytes >= HEADER_BYTES and view[position + MAGIC_POSITION] == 2:
        crc = int.from_bytes(view[position + CRC_POSITION : position + ATTRIBUTES_POSITION], "big")
        return crc == crc32c(view[position + ATTRIBUTES_POSITION : position + size_bytes])
    try:
        return batch_at(view[: position + size_bytes], position).has_valid_crc()
    except CorruptRecordError:
        return False
