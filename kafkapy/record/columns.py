"""The records of a batch by columns: what the cleaner asks of them, without an object a record.

`record_columns` walks a payload (inflated, its CRC known to be good) and notes where each record begins, its offset
delta, its key, and whether its value is null; `record_starts` notes the first of these alone. Bytes of records are
copied as they are (`join_records`), so headers and whatever a producer wrote are not touched. A record's layout is in
batch.py.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kafkapy.record.errors import InvalidRecordsError
from kafkapy.record.varint import encode_varint, read_varint, read_varlong


class RecordColumns(NamedTuple):
    """A payload's records. `starts` has one entry more than there are records: the payload's end."""

    starts: list[int]
    offset_deltas: list[int]
    keys: list[bytes | None]
    null_values: list[int]
    """The indexes of the records without a value: tombstones."""


def record_columns(payload: bytes, record_count: int) -> RecordColumns:
    """Return the columns of an uncompressed payload. Raises InvalidRecordsError unless it holds record_count, no more.

    0.4 us a record. Numbers of one byte, and of two where they are common (a record's length, its offset delta), are
    read here, all others by a call.
    """
    starts: list[int] = []
    deltas: list[int] = []
    keys: list[bytes | None] = []
    null_values: list[int] = []
    position = 0
    try:
        for index in range(record_count):
            starts.append(position)
            length = payload[position]
            if length < 0x80 and not length & 1:
                end = position + 1 + (length >> 1)
                position += 2  # over the attributes, too, which no record uses
            else:
                second = payload[position + 1]
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

            delta = payload[position]
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

            if payload[position] & 1:  # a zigzag number that is odd is negative: null
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
    """Return RecordColumns.starts of a payload whose records were looked at before: 0.1 us a record. Raises as that."""
    starts: list[int] = []
    add = starts.append
    position = 0
    try:
        for _ in range(record_count):
            add(position)
            length = payload[position]
            if length < 0x80:
                position += 1 + (length >> 1)
            else:
                second = payload[position + 1]
                if second < 0x80:
                    position += 2 + (length - 0x80 >> 1) + (second << 6)
                else:
                    length, position = read_varint(payload, position)
                    position += length
    except (IndexError, ValueError) as error:
        raise InvalidRecordsError("the records of a batch end within a record") from error
    if position != len(payload):
        raise InvalidRecordsError(f"{len(payload) - position} bytes behind the {record_count} records of a batch")
    add(position)
    return starts


def join_records(payload: bytes, starts: Sequence[int], indexes: Sequence[int]) -> bytes:
    """Return the bytes of the records at `indexes`, which rise, as they are; neighbours are copied together."""
    parts = []
    first = previous = indexes[0]
    for index in indexes[1:]:
        if index != previous + 1:
            parts.append(payload[starts[first] : starts[previous + 1]])
            first = index
        previous = index
    parts.append(payload[starts[first] : starts[previous + 1]])
    return b"".join(parts)


def latest_timestamp_delta(payload: bytes, starts: Sequence[int], indexes: Iterable[int], *, at_most: int) -> int:
    """Return the largest timestamp delta of the records at `indexes`; no record has one above `at_most`.

    Timestamps most often rise, so the search goes from the end and stops where none can be larger.
    """
    latest: int | None = None
    for index in reversed(list(indexes)):
        delta, _ = _timestamp_delta(payload, starts[index])
        if latest is None or delta > latest:
            latest = delta
            if latest >= at_most:
                break
    assert latest is not None, "at least one record is asked for"
    return latest


def with_base_timestamp(payload: bytes, starts: Sequence[int], indexes: Iterable[int], *, moved_by_ms: int) -> bytes:
    """Return the records at `indexes` for a batch whose base timestamp lies `moved_by_ms` later; all else is kept."""
    parts: list[bytes] = []
    for index in indexes:
        delta, behind_delta = _timestamp_delta(payload, starts[index])
        rest = payload[behind_delta : starts[index + 1]]
        _, body = read_varint(payload, starts[index])
        timestamp = encode_varint(delta - moved_by_ms)
        parts += (encode_varint(1 + len(timestamp) + len(rest)), payload[body : body + 1], timestamp, rest)
    return b"".join(parts)


def _timestamp_delta(payload: bytes, start: int) -> tuple[int, int]:
    """Return a record's timestamp delta and the position behind it."""
    body = start + 1
    if payload[start] >= 0x80:
        _, body = read_varint(payload, start)
    return read_varlong(payload, body + 1)
