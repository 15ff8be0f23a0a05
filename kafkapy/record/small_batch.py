"""A fast check for the plain batches that most producers send.

`check_plain` accepts a batch only if the full validation (validate.py) would accept it and change nothing but its base
offset and leader epoch. All other batches, valid or not, must go through the full validation, which reports errors.
"""

from typing import Final, TypeAlias

from kafkapy.record.alike import MAX_ALIKE, MIN_ALIKE, all_alike
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
from kafkapy.record.walk import IS_COMPILED, walk_one_by_one
from kafkapy.types import MIN_VIEW_BYTES

PLAIN: Final = 0
TRANSACTIONAL: Final = TRANSACTIONAL_FLAG
"""The attributes of plain batches: no compression, CreateTime, no control batch."""
HeaderFields: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""The fields of BATCH_HEADER."""
PlainBounds: TypeAlias = tuple[int, int, int]
"""(most bytes of a batch, earliest timestamp, latest timestamp); this one may be beyond what a header can hold."""
unpack_header: Final = BATCH_HEADER.unpack_from
_MIN_LENGTH: Final = 6
"""What the length field of an empty record says: alike.MIN_RECORD_BYTES without the field itself."""


def takes_unchanged(rules: ValidationRules) -> bool:
    """Return whether these rules keep a valid, uncompressed batch with CreateTime unchanged.

    Unless the topic is compacted: then its keys have to be looked at, too.
    """
    return rules.timestamp_type == CREATE_TIME and rules.compression_type in ("producer", "uncompressed")


def check_plain(header: HeaderFields, data: bytes, start: int, end: int, bounds: PlainBounds) -> bool:
    """Return whether data[start:end], of more than HEADER_BYTES, is a plain batch; `header` is its header, unpacked.

    Plain means: magic 2, not larger than the bounds allow, correct CRC and records, all timestamps within the bounds,
    and the header's max timestamp that of the records. The caller checks the attributes (PLAIN or TRANSACTIONAL),
    producer id, epoch and sequence. If `data` ends at `end`, an IndexError is possible.
    """
    # what is not plain mostly shows in the header: only then the CRC reads all bytes, and last the records are walked
    size = end - start
    base_offset, length, _, magic, crc, _, delta, base_ms, max_ms, _, _, _, count = header
    max_bytes, earliest_ms, latest_ms = bounds
    if size > max_bytes or base_offset or magic != 2 or length != size - LOG_OVERHEAD_BYTES:
        return False
    if count != delta + 1 or count < 1 or not earliest_ms <= base_ms <= latest_ms:
        return False
    whole: bytes | memoryview = data if size < MIN_VIEW_BYTES else memoryview(data)
    if crc != crc32c(whole[start + ATTRIBUTES_POSITION : end]):
        return False
    if count == 1 and _is_one_record(data, start + HEADER_BYTES, end):
        return max_ms == base_ms >= -1
    if MIN_ALIKE <= count <= MAX_ALIKE and not IS_COMPILED:
        alike = all_alike(data, start + HEADER_BYTES, end, count)
        if alike is not None:
            return max_ms == base_ms + alike[0] and -1 <= max_ms <= latest_ms
    try:
        walk = walk_one_by_one(data, start + HEADER_BYTES, end, count)
    except InvalidRecordsError:
        return False
    if not walk.has_sequential_offsets or base_ms + walk.min_timestamp_delta < earliest_ms:
        return False
    return max_ms == base_ms + walk.max_timestamp_delta and -1 <= max_ms <= latest_ms


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
    if length & 1 or length < 2 * _MIN_LENGTH or at + (length >> 1) != end:
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
