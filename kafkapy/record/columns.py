"""The records of a batch as columns, for the log cleaner; no object per record is created.

`record_columns` walks an uncompressed payload whose CRC was checked and returns each record's start position, offset
delta and key, and which values are null; `record_starts` returns the start positions only. `join_records` copies the
bytes of records unchanged, so that headers and all else are preserved. A record's layout is in batch.py.
"""

from struct import unpack
from typing import Final

from kafkapy.named_tuple import NamedTuple
from kafkapy.native import i64
from kafkapy.record.alike import OFFSET_HIGH, OFFSET_LOW
from kafkapy.record.errors import InvalidRecordsError
from kafkapy.record.varint import encode_varint, read_varint, read_varlong
from kafkapy.record.walk import IS_COMPILED

MIN_SIMILAR: Final = 8
"""With fewer records, one by one is as fast."""
MAX_SIMILAR: Final = 8192
"""From this index on, an offset delta takes three bytes."""
ONE_BYTE_DELTAS: Final = 64
"""From this index on, it takes two."""
MAX_SIMILAR_KEY_BYTES: Final = 56
"""The bytes up to the value then lie within a record whose length takes two bytes: it has at least 64."""
_KEY_LENGTH_AT: Final = 5
"""In a record whose length takes two bytes, the timestamp and offset deltas one."""
_FIRST_BYTES: Final = bytes(range(0x80, 0x100, 2))
_SECOND_BYTES: Final = bytes(range(1, 0x80))
"""The second bytes of lengths that take two bytes: at least 64, not negative."""
_ONE_BYTE: Final = bytes(range(0x80))
_NOT_NEGATIVE: Final = bytes(range(0, 0x100, 2))
"""First bytes of numbers that are not negative."""


class RecordColumns(NamedTuple):
    """The columns of a payload. `starts` has one extra entry at the end: the payload's length."""

    starts: list[int]
    offset_deltas: list[int]
    keys: list[bytes | None]
    null_values: list[int]
    """The indexes of the records with a null value (tombstones)."""


def record_columns(payload: bytes, record_count: int) -> RecordColumns:
    """Return the columns of an uncompressed payload. Raises InvalidRecordsError unless it is record_count of them."""
    if not IS_COMPILED and MIN_SIMILAR <= record_count <= MAX_SIMILAR and _may_be_similar(payload):
        columns = _similar(payload, record_count)
        if columns is not None:
            return columns
    return one_by_one(payload, record_count)


def _may_be_similar(payload: bytes) -> bool:
    """Return whether the first two records are such as `_similar` takes: a look at them, as keys may vary in length."""
    if len(payload) < 2 * ONE_BYTE_DELTAS or payload[0] < 0x80 or payload[1] >= 0x80:
        return False
    second = 2 + ((payload[0] & 0x7F) >> 1) + (payload[1] << 6)
    key_length = payload[_KEY_LENGTH_AT]
    return (
        key_length <= 2 * MAX_SIMILAR_KEY_BYTES
        and not key_length & 1
        and second + _KEY_LENGTH_AT < len(payload)
        and payload[second + _KEY_LENGTH_AT] == key_length
    )


def _similar(payload: bytes, record_count: int) -> RecordColumns | None:
    """Return the columns of records with keys of one length, values of any, and a record at each offset, or None.

    Their lengths take two bytes, their timestamps are up to 63 ms after the base. It takes two thirds of `one_by_one`:
    the bytes before the values are copied together, where slices with a stride are columns.
    """
    starts = record_starts(payload, record_count)
    keys: list[bytes | None] = []
    null_values: list[int] = []
    for first, end in ((0, min(record_count, ONE_BYTE_DELTAS)), (ONE_BYTE_DELTAS, record_count)):
        if first < end and not _add_similar(payload, starts, first, end, keys, null_values):
            return None
    return RecordColumns(starts, list(range(record_count)), keys, null_values)


def _add_similar(
    payload: bytes, starts: list[int], first: int, end: int, keys: list[bytes | None], null_values: list[int]
) -> bool:
    """Add the keys and null values of the records [first, end); return False if one is unlike the payload's first."""
    key_length = payload[_KEY_LENGTH_AT]
    key_at = _KEY_LENGTH_AT + 1 if first < ONE_BYTE_DELTAS else _KEY_LENGTH_AT + 2
    width = key_at + (key_length >> 1) + 1
    heads = b"".join([payload[start : start + width] for start in starts[first:end]])
    count = end - first
    if (
        len(heads) != count * width
        or heads[::width].translate(None, _FIRST_BYTES)
        or heads[1::width].translate(None, _SECOND_BYTES)
        or heads[3::width].translate(None, _ONE_BYTE)
        or heads[4::width] != OFFSET_LOW[first:end]
        or (first >= ONE_BYTE_DELTAS and heads[5::width] != OFFSET_HIGH[first:end])
        or heads[key_at - 1 :: width].count(key_length) != count
    ):
        return False
    keys += unpack(f"{key_at}x{key_length >> 1}sx" * count, heads)
    values = heads[width - 1 :: width]  # the first byte of each length
    if values.translate(None, _NOT_NEGATIVE):
        null_values += [first + index for index, byte in enumerate(values) if byte & 1]
    return True


def one_by_one(payload: bytes, record_count: int) -> RecordColumns:
    """Return the columns of any records, as `record_columns`; 0.4 us a record.

    For speed, varints of one byte, and of two bytes for record lengths and offset deltas, are decoded inline.
    """
    # One piece, as a call for each field would double that. Its parts, a record: length and attributes, timestamp delta
    # (skipped), offset delta, key, whether the value is null.
    starts: list[int] = []
    deltas: list[int] = []
    keys: list[bytes | None] = []
    null_values: list[int] = []
    position: i64 = 0
    try:
        for index in range(record_count):
            starts.append(position)
            length: i64 = payload[position]
            end: i64
            if length < 0x80 and not length & 1:
                end = position + 1 + (length >> 1)
                position += 2  # also skips the attributes, which are unused
            else:
                second: i64 = payload[position + 1]
                if second < 0x80 and length >= 0x80 and not length & 1:
                    end = position + 2 + ((length & 0x7F) >> 1) + (second << 6)
                    position += 3
                else:
                    length, position = read_varint(payload, position)
                    end = position + length
                    position += 1
            while payload[position] >= 0x80:
                position += 1
            position += 1

            delta: i64 = payload[position]
            if delta & 0x81:
                second = payload[position + 1]
                if second < 0x80 and delta >= 0x80 and not delta & 1:
                    delta = (delta & 0x7F) >> 1 | second << 6
                    position += 2
                else:
                    delta, position = read_varint(payload, position)
            else:
                delta >>= 1
                position += 1
            deltas.append(delta)

            length = payload[position]
            if length & 0x81:
                length, position = read_varint(payload, position)
            else:
                length >>= 1
                position += 1
            if length < 0:
                keys.append(None)
            else:
                keys.append(payload[position : position + length])
                position += length

            if payload[position] & 1:  # an odd zigzag number is negative: null
                null_values.append(index)
            if position >= end:
                raise InvalidRecordsError(f"record {index} of a batch ends within itself")
            position = end
    except (IndexError, ValueError) as error:
        raise InvalidRecordsError("the records of a batch end within a record") from error
    if position != len(payload):
        raise InvalidRecordsError(f"{len(payload) - position} bytes behind the {record_count} records of a batch")
    starts.append(position)
    return RecordColumns(starts, deltas, keys, null_values)


def record_starts(payload: bytes, record_count: int) -> list[int]:
    """Return RecordColumns.starts of a payload that record_columns has checked; 0.1 us a record, same errors."""
    starts: list[int] = []
    position: i64 = 0
    try:
        for _ in range(record_count):
            starts.append(position)
            length: i64 = payload[position]
            if length < 0x80:
                position += 1 + (length >> 1)
            else:
                second: i64 = payload[position + 1]
                if second < 0x80:
                    position += 2 + (length - 0x80 >> 1) + (second << 6)
                else:
                    length, position = read_varint(payload, position)
                    position += length
    except (IndexError, ValueError) as error:
        raise InvalidRecordsError("the records of a batch end within a record") from error
    if position != len(payload):
        raise InvalidRecordsError(f"{len(payload) - position} bytes behind the {record_count} records of a batch")
    starts.append(position)
    return starts


def join_records(payload: bytes, starts: list[int], indexes: list[int]) -> bytes:
    """Return the unchanged bytes of the records at the increasing `indexes`; adjacent records are copied together."""
    parts = []
    first = previous = indexes[0]
    for index in indexes[1:]:
        if index != previous + 1:
            parts.append(payload[starts[first] : starts[previous + 1]])
            first = index
        previous = index
    parts.append(payload[starts[first] : starts[previous + 1]])
    return b"".join(parts)


def latest_timestamp_delta(payload: bytes, starts: list[int], indexes: list[int], *, at_most: int) -> int:
    """Return the largest timestamp delta of the records at `indexes`; `at_most` is a known upper bound.

    Timestamps usually increase, so the search starts at the end and stops when the bound is reached.
    """
    latest: int | None = None
    for index in reversed(indexes):
        start = starts[index]
        byte = payload[start + 2] if payload[start] < 0x80 else payload[start + 3]  # if the length takes two bytes
        if byte < 0x80 and (payload[start] < 0x80 or payload[start + 1] < 0x80):
            delta = -(byte + 1 >> 1) if byte & 1 else byte >> 1
        else:
            delta, _ = _timestamp_delta(payload, start)
        if latest is None or delta > latest:
            latest = delta
            if latest >= at_most:
                break
    assert latest is not None, "at least one record is requested"
    return latest


def with_base_timestamp(payload: bytes, starts: list[int], indexes: list[int], *, moved_by_ms: int) -> bytes:
    """Return the records at `indexes` re-encoded for a base timestamp that is `moved_by_ms` later."""
    parts: list[bytes] = []
    for index in indexes:
        delta, behind_delta = _timestamp_delta(payload, starts[index])
        rest = payload[behind_delta : starts[index + 1]]
        _, body = read_varint(payload, starts[index])
        timestamp = encode_varint(delta - moved_by_ms)
        parts += (encode_varint(1 + len(timestamp) + len(rest)), payload[body : body + 1], timestamp, rest)
    return b"".join(parts)


def _timestamp_delta(payload: bytes, start: int) -> tuple[int, int]:
    """Return a record's timestamp delta and the position after it."""
    body = start + 1
    if payload[start] >= 0x80:
        _, body = read_varint(payload, start)
    return read_varlong(payload, body + 1)
