"""A fast check for the plain batches that most producers send.

`check_plain` accepts a batch only if the full validation (validate.py) would accept it and change nothing but its base
offset and leader epoch. All other batches, valid or not, must go through the full validation, which reports errors.
"""

from typing import Final

from kafkapy.record.append_rules import ValidationRules
from kafkapy.record.batch import (
    ATTRIBUTES_POSITION,
    BATCH_HEADER,
    CREATE_TIME,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    TRANSACTIONAL_FLAG,
)
from kafkapy.record.crc import crc32c
from kafkapy.record.errors import InvalidRecordsError
from kafkapy.record.walk import walk_records_in
from kafkapy.types import LEAST_VIEW_BYTES

PLAIN: Final = 0
TRANSACTIONAL: Final = TRANSACTIONAL_FLAG
"""The attributes of plain batches: no compression, CreateTime, no control batch."""
_unpack_header: Final = BATCH_HEADER.unpack_from
_LEAST_RECORD_BYTES: Final = 6
"""The length of an empty record: attributes, two deltas, two lengths, the header count."""


def takes_unchanged(rules: ValidationRules) -> bool:
    """Return whether these rules keep a valid, uncompressed batch with CreateTime unchanged.

    Unless the topic is compacted: then its keys have to be looked at, too.
    """
    return rules.timestamp_type == CREATE_TIME and rules.compression_type in ("producer", "uncompressed")


def check_plain(
    data: bytes, start: int, end: int, *, attributes: int, most_bytes: int, earliest_ms: int, latest_ms: int
) -> tuple[int, ...] | None:
    """Return the header fields (BATCH_HEADER) of data[start:end] if it is a plain batch, otherwise None.

    Plain means: magic 2, these attributes (PLAIN or TRANSACTIONAL), at most most_bytes, correct CRC and records, all
    timestamps within the bounds, and the header's max timestamp that of the records. The caller checks producer id,
    epoch and sequence. If `data` ends at `end`, an IndexError is possible.
    """
    # what is not plain mostly shows in the header: only then the CRC reads all bytes, and last the records are walked
    size = end - start
    if size <= HEADER_BYTES or size > most_bytes:
        return None
    header = _unpack_header(data, start)
    base_offset, length, _, magic, crc, found, delta, base_ms, max_ms, _, _, _, count = header
    if base_offset or magic != 2 or found != attributes or length != size - LOG_OVERHEAD_BYTES:
        return None
    if count != delta + 1 or count < 1 or not earliest_ms <= base_ms <= latest_ms:
        return None
    whole: bytes | memoryview = data if size < LEAST_VIEW_BYTES else memoryview(data)
    if crc != crc32c(whole[start + ATTRIBUTES_POSITION : end]):
        return None
    if count == 1 and _is_one_record(data, start + HEADER_BYTES, end):
        return header if max_ms == base_ms >= -1 else None
    try:
        walk = walk_records_in(data, start + HEADER_BYTES, end, count)
    except InvalidRecordsError:
        return None
    if not walk.has_sequential_offsets or base_ms + walk.min_timestamp_delta < earliest_ms:
        return None
    latest_found_ms = base_ms + walk.max_timestamp_delta
    return header if max_ms == latest_found_ms and -1 <= latest_found_ms <= latest_ms else None


def _is_one_record(data: bytes, at: int, end: int) -> bool:
    """Return whether these bytes are one record without headers, with deltas of 0 and short length fields."""
    length = data[at]
    at += 1
    if length >= 0x80:
        second = data[at]
        at += 1
        if second >= 0x80:
            return False
        length = length & 0x7F | second << 7
    if length & 1 or length < 2 * _LEAST_RECORD_BYTES or at + (length >> 1) != end:
        return False
    key_length = data[at + 3]
    if data[at + 1] or data[at + 2]:
        return False
    at += 4
    if key_length != 1:
        if key_length & 0x81:
            return False
        at += key_length >> 1
        if at >= end:
            return False
    length = data[at]
    at += 1
    if length >= 0x80:
        second = data[at]
        at += 1
        if second >= 0x80:
            return False
        length = length & 0x7F | second << 7
    if length & 1:  # negative: only -1, a null value, is allowed
        return length == 1 and at == end - 1 and not data[at]
    return at + (length >> 1) == end - 1 and not data[end - 1]
