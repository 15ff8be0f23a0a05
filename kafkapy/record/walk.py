"""The loop over the records of a batch: the only work that a leader does per record.

`walk_records` verifies that the payload holds exactly the number of records in the header, and returns what the checks
of validate.py need. Interpreted, there are four implementations; each leaves what it cannot handle to the next:

* `all_alike` does what `same_shape` does for batches of 6 to 64 records of one layout, as a producer for many
  partitions sends them. 2.5 us a batch; one by one, ten records take 4.5 and 23 take 9.
* `same_shape` checks up to 4096 records at a time. Records of equal layout (fixed-size payloads such as measurements)
  lie at equal distances, so each byte of their structure forms a column that a strided slice checks at once. Where the
  layout changes (timestamps need a byte more 64 ms after the first), it stops, and the walk goes on with the next
  layout. 0.02 to 0.1 us a record.
* `_walk_fast` is a straight loop over records as producers write them, without an allocation per record. 0.28 us.
* `_walk_with_care` handles rare encodings (lengths of three and more bytes, padded varints) and damaged records: it
  accepts what Kafka's reader accepts and reports what is wrong with the rest. 2 us.

Compiled by mypyc, `_walk_with_care` works on native integers and is the fastest for all records: only it is used. 0.02
to 0.06 us. (A slice of `bytes` is always a copy in compiled code, so the loop gets the positions of the
records' begin and end.)
"""

from collections.abc import Callable
from typing import Final

from kafkapy.named_tuple import NamedTuple
from kafkapy.native import i64
from kafkapy.record.alike import (
    BLOCK,
    FEWER_IN_RUN,
    MAX_ALIKE,
    MAX_IN_RUN,
    MIN_ALIKE,
    MIN_IN_RUN,
    MIN_RUN,
    all_alike,
    same_shape,
)
from kafkapy.record.errors import InvalidRecordsError
from kafkapy.record.varint import read_varint, read_varlong


class WalkedRecords(NamedTuple):
    """The result of walking a batch's records. Indexes are relative to the first record, deltas to the base."""

    max_timestamp_delta: int
    index_of_max_timestamp: int
    min_timestamp_delta: int
    null_key_count: int
    has_sequential_offsets: bool
    """Whether the offset deltas are 0, 1, 2, ..."""


def walk_records(payload: bytes, record_count: int, pause: Callable[[], None] | None = None) -> WalkedRecords:
    """Walk the records of an uncompressed payload. Raises InvalidRecordsError unless it holds exactly record_count.

    pause() is called every few thousand records, so that a worker can let other threads run.
    """
    return walk_records_in(payload, 0, len(payload), record_count, pause)


def walk_records_in(
    data: bytes, start: int, end: int, record_count: int, pause: Callable[[], None] | None = None
) -> WalkedRecords:
    """Like walk_records, for the payload data[start:end]; mostly it is not copied."""
    if MIN_ALIKE <= record_count <= MAX_ALIKE and not IS_COMPILED:
        found = all_alike(data, start, end, record_count)
        if found is not None:
            return WalkedRecords(found[0], found[1], 0, found[2], True)
    return walk_one_by_one(data, start, end, record_count, pause)


def walk_one_by_one(
    data: bytes, start: int, end: int, record_count: int, pause: Callable[[], None] | None = None
) -> WalkedRecords:
    """Like walk_records_in, without looking for records that are all alike."""
    if not IS_COMPILED and record_count <= end - start:  # else the fast walk would go on far beyond the end
        try:
            walk = _walk_fast(data, start, end, record_count, pause)
        except (IndexError, InvalidRecordsError):  # it may have misread an unusual encoding
            walk = None
        if walk is not None:
            return walk
    if start == 0 and end == len(data):
        return _walk_with_care(data, 0, end, record_count, pause)
    try:
        return _walk_with_care(data, start, end, record_count, pause)
    except InvalidRecordsError:  # it may have read what lies behind the end: walk a copy, for what is wrong with it
        return _walk_with_care(data[start:end], 0, end - start, record_count, pause)


IS_COMPILED: Final = not hasattr(read_varint, "__code__")
_PAUSE_AFTER = 2048
"""Records between two pauses: half a millisecond, or several in _walk_with_care."""


_WRONG = 1 << 40
"""In the tables below: a byte that the fast walk does not handle. It moves the position far beyond any payload."""

_ONE_BYTE = [1 + (byte >> 1) if byte < 0x80 and not byte & 1 else _WRONG for byte in range(256)]
"""Indexed by a one-byte length: the distance from that byte to the end of the field."""

_FIRST_OF_TWO = [2 + (byte - 0x80 >> 1) if byte >= 0x80 and not byte & 1 else _WRONG for byte in range(256)]
_SECOND_OF_TWO = [byte << 6 if 0 < byte < 0x80 else _WRONG for byte in range(256)]
"""Indexed by the bytes of a two-byte length: the sum of both entries is that distance from the first byte."""


def _walk_fast(
    data: bytes, start: int, end_of_data: int, record_count: int, pause: Callable[[], None] | None = None
) -> WalkedRecords | None:
    """Walk records in the usual encoding; return None or raise if one has another encoding, valid or not.

    Records that are longer than they should be lead beyond the end, from where nothing leads back.

    On CPython 3.11 a subscript costs 15 ns and decoding a varint 35. So lengths come from tables, the offset delta is
    compared with the bytes that it must have (lowest seven bits, then the rest), and a timestamp is decoded only if it
    differs from the previous one. Unpacking ten bytes by one struct call was as fast for one kind of record and slower
    for others. Timestamps stay in zigzag form: even values increase with the delta, odd values are negative deltas.
    """
    # One piece, as a call for each record costs more than a fifth of its walk. Its parts: a round checks a run of equal
    # layout by columns (same_shape), as long as there are some; else records one by one up to the next multiple of 64,
    # each in the order of its fields: length and attributes, timestamp delta, offset delta, key, value, headers.
    one_byte, first_of_two, second_of_two = _ONE_BYTE, _FIRST_OF_TWO, _SECOND_OF_TWO
    position = start
    null_keys = index_of_max = first_index = 0
    pause_at = 0 if pause is not None else record_count
    last_raw = max_raw = min_raw = -1
    shape_tries = 2 if record_count >= MIN_RUN else 0
    max_in_run = MIN_IN_RUN
    while first_index < record_count:
        if first_index >= pause_at:
            pause_at += _PAUSE_AFTER
            assert pause is not None, "without one, pause_at is out of reach"
            pause()
        if shape_tries:
            same_offset_bytes = BLOCK - first_index % BLOCK if first_index >= 64 else 64 - first_index
            max_here = min(record_count - first_index, max_in_run, same_offset_bytes)
            try:
                run = same_shape(data, position, max_here, first_index)
            except (IndexError, ValueError):
                run = None
            if run is not None:
                in_this_round, position, run_null_keys, raw, index = run
                null_keys += run_null_keys
                if raw > max_raw:
                    max_raw = raw
                    index_of_max = first_index + index
                first_index += in_this_round
                is_longer = in_this_round == max_here or in_this_round > FEWER_IN_RUN
                max_in_run = MAX_IN_RUN if is_longer else FEWER_IN_RUN
                shape_tries = 2
                continue
            max_in_run = MIN_IN_RUN
            shape_tries -= 1

        offset_high = first_index >> 6
        offset_third = offset_high >> 7
        offset_fourth = offset_third >> 7
        if offset_fourth:
            if offset_fourth > 127:
                return None
            offset_third = offset_third & 0x7F | 0x80
        offset_second = offset_high & 0x7F | 0x80 if offset_third else offset_high
        index_in_64 = first_index & 63
        in_this_round = min(record_count - first_index, 64 - index_in_64)
        low_start = (0x80 if offset_high else 0) + 2 * index_in_64
        for offset_low in range(low_start, low_start + 2 * in_this_round, 2):
            length = data[position]
            if length < 0x80:
                end = position + one_byte[length]
                position += 2  # the length, and the attributes, which are unused
            else:
                end = position + first_of_two[length] + second_of_two[data[position + 1]]
                position += 3

            raw = data[position]
            if raw != last_raw:  # last_raw is -1 after a timestamp of several bytes
                last_raw = raw
                if raw >= 0x80:
                    last_raw = -1
                    second = data[position + 1]
                    if second < 0x80:
                        raw = raw & 0x7F | second << 7
                        position += 1
                    else:
                        raw, position = _raw_timestamp(data, position)
                if raw & 1:
                    min_raw = max(min_raw, raw)
                elif raw > max_raw:
                    max_raw = raw
                    index_of_max = first_index - index_in_64 + ((offset_low & 0x7F) >> 1)

            if data[position + 1] != offset_low:
                return None
            if offset_high:
                if data[position + 2] != offset_second:
                    return None
                position += 3
                if offset_third:
                    if data[position] != offset_third:
                        return None
                    position += 1
                    if offset_fourth:
                        if data[position] != offset_fourth:
                            return None
                        position += 1
            else:
                position += 2

            length = data[position]
            if length == 1:
                null_keys += 1
                position += 1
            elif length < 0x80:
                position += one_byte[length]
            else:
                position += first_of_two[length] + second_of_two[data[position + 1]]

            length = data[position]
            if length >= 0x80:
                position += first_of_two[length] + second_of_two[data[position + 1]]
            elif length == 1:
                position += 1
            else:
                position += one_byte[length]

            if data[position]:
                position = _skip_headers(data, position, end_of_data)
            else:
                position += 1
            if position != end:
                return None
        first_index += in_this_round
    if position != end_of_data or max_raw < 0:
        return None
    return WalkedRecords(max_raw >> 1, index_of_max, -(min_raw + 1) >> 1 if min_raw > 0 else 0, null_keys, True)


def _raw_timestamp(data: bytes, position: int) -> tuple[int, int]:
    """Return a timestamp delta in zigzag form and the position of its last byte."""
    number, end = _long_number(data, position)
    delta = int(number)  # doubled, it may not fit a machine word
    return (delta << 1 if delta >= 0 else (-delta << 1) - 1), end - 1


def _skip_headers(data: bytes, position: i64, end: i64) -> i64:
    """Return the position after the headers at `position`, of records up to `end`. Raises IndexError if they go on."""
    count, position = _number(data, position)
    if count < 0 or count > end - position:
        raise InvalidRecordsError(f"a record with {count} headers")
    while count:
        length: i64 = data[position]
        if length & 0x81:  # of several bytes, or null
            length, position = _number(data, position)
            if length < 0:
                raise InvalidRecordsError("a header without a key")
            position += length
        else:
            position += 1 + (length >> 1)
        length = data[position]
        if length & 0x81:
            length, position = _number(data, position)
            if length > 0:
                position += length
        else:
            position += 1 + (length >> 1)
        count -= 1
    return position


def _walk_with_care(
    data: bytes, start: i64, end: i64, record_count: int, pause: Callable[[], None] | None = None
) -> WalkedRecords:
    """Walk the records of data[start:end] in any encoding.

    Raises InvalidRecordsError if a record is damaged. Its text is exact only if `data` ends at `end`: otherwise a
    record that goes on behind `end` is said to hold more bytes than it claims.
    """
    position: i64 = start
    index: i64 = 0
    null_keys: i64 = 0
    index_of_max: i64 = 0
    least: i64 = 0
    most: i64 = 0
    is_sequential = True
    is_in_headers = False
    try:
        for index in range(i64(record_count)):
            if pause is not None and not index % _PAUSE_AFTER:
                pause()
            length, body = _number(data, position)
            record_end: i64 = body + length
            if length < 0 or record_end > end:
                raise InvalidRecordsError(f"record {index} claims {length} bytes where {end - body} are left")
            timestamp_delta, position = _long_number(data, body + 1)
            if timestamp_delta > most or not index:
                most = timestamp_delta
                index_of_max = index
            if timestamp_delta < least:
                least = timestamp_delta
            offset_delta, position = _number(data, position)
            if offset_delta != index:
                is_sequential = False
            key_length, position = _number(data, position)
            if key_length >= 0:
                position += key_length
            else:
                null_keys += 1
            value_length, position = _number(data, position)
            if value_length > 0:
                position += value_length
            is_in_headers = True  # for the message only: the end of the data raises the same in both
            position = _skip_headers(data, position, end) if data[position] else position + 1
            is_in_headers = False
            if position != record_end:
                raise InvalidRecordsError(f"record {index} claims {length} bytes and holds {position - body}")
    except IndexError as error:
        what = f"record {index} ends within its headers" if is_in_headers else "the records end within a record"
        raise InvalidRecordsError(what) from error
    if position != end:
        raise InvalidRecordsError(f"{end - position} bytes behind the {record_count} records of the batch")
    return WalkedRecords(most, index_of_max, least, null_keys, is_sequential)


def _number(data: bytes, position: i64) -> tuple[i64, i64]:
    """Read a zigzag int32 like read_varint, fast for a single byte. Raises IndexError, InvalidRecordsError."""
    first: i64 = data[position]
    if first < 0x80:
        return (first >> 1) ^ -(first & 1), position + 1
    try:
        return read_varint(data, position)
    except ValueError as error:
        raise _endless(position) from error


def _long_number(data: bytes, position: i64) -> tuple[i64, i64]:
    """Read a zigzag int64 like read_varlong, fast for a single byte. Raises IndexError, InvalidRecordsError."""
    first: i64 = data[position]
    if first < 0x80:
        return (first >> 1) ^ -(first & 1), position + 1
    try:
        return read_varlong(data, position)
    except ValueError as error:
        raise _endless(position) from error


def _endless(position: i64) -> InvalidRecordsError:
    return InvalidRecordsError(f"a number at byte {position} of the records does not end")
