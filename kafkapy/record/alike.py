"""Records of one layout, checked by columns: those that differ only in timestamp, offset and content.

They lie at equal distances, so each byte of their structure forms a column, which a strided slice reads at once. Only
the interpreter needs this: see walk.py, whose parts these are.
"""

from typing import Final

from kafkapy.record.varint import read_varint

MIN_ALIKE: Final = 6
"""With fewer records, one by one is as fast."""
MAX_ALIKE: Final = 64
"""From this index on, an offset delta takes two bytes."""
MIN_RECORD_BYTES: Final = 7
"""Its length, attributes, two deltas, the lengths of key and value, the header count."""

MIN_RUN = 24
"""With fewer records, looking for an equal layout does not pay."""

_EVEN_BYTES = bytes(range(0, 128, 2))
_LOW_BYTES = bytes(range(128, 256, 2))
_ASCII_BYTES = bytes(range(128))
"""Bytes of timestamp deltas that are not negative: the only one, the first and the second of two."""
MIN_IN_RUN = 64
MAX_IN_RUN = 4096
FEWER_IN_RUN = 256
"""Records checked at a time, after the first 64. A run costs 6 us whatever its length, so 64 KiB of small records
should be at most two runs, and the 10,000 of a large batch few. After a short run, ended by a change of the layout, the
next is short, too, in case there are many changes."""

BLOCK = 8192
OFFSET_LOW = bytes(range(0, 128, 2)) + 127 * bytes(range(128, 256, 2))
OFFSET_HIGH = b"".join(64 * bytes((high,)) for high in range(128))
_OFFSET_MIDDLE = b"".join(64 * bytes((high,)) for high in range(128, 256))
"""Indexed by an offset delta: the first byte of its varint, and the second byte (from 64 on). From 8192 on these two
repeat themselves, the second as _OFFSET_MIDDLE, and the third one counts blocks of 8192."""


def all_alike(data: bytes, start: int, end: int, count: int) -> tuple[int, int, int] | None:
    """Check all records of a batch, MAX_ALIKE at most, that have timestamps up to 63 ms after the base.

    Return (largest timestamp delta, its index, number of null keys), None if they have no common layout, or headers.
    Records of various sizes mostly fail at once: their size is no multiple of the count.
    """
    # if all records have one size, data[at:end:stride] is one byte of each: C compares such a column at once
    stride, rest = divmod(end - start, count)
    if rest or stride < MIN_RECORD_BYTES:
        return None
    first = data[start]
    if first < 0x80:
        time_at, length = start + 2, first
    else:
        second = data[start + 1]
        if second >= 0x80 or data[start + 1 : end : stride].count(second) != count:
            return None
        time_at, length = start + 3, first & 0x7F | second << 7
    if length & 1 or time_at - 1 + (length >> 1) != start + stride or data[start:end:stride].count(first) != count:
        return None
    offset_at, key_at = time_at + 1, time_at + 2
    key_length = data[key_at]
    if key_length == 1:
        value_at = key_at + 1
    elif key_length & 0x81:
        return None
    else:
        value_at = key_at + 1 + (key_length >> 1)
    headers_at = start + stride - 1
    if value_at >= headers_at:
        return None
    first = data[value_at]
    if first < 0x80:
        value, length = value_at + 1, 0 if first == 1 else first
    else:
        second = data[value_at + 1]
        if second >= 0x80 or data[value_at + 1 : end : stride].count(second) != count:
            return None
        value, length = value_at + 2, first & 0x7F | second << 7
    if (
        length & 1
        or value + (length >> 1) != headers_at
        or data[key_at:end:stride].count(key_length) != count
        or data[value_at:end:stride].count(first) != count
        or data[headers_at:end:stride].count(0) != count
        or data[offset_at:end:stride] != OFFSET_LOW[:count]
    ):
        return None
    null_key_count = count if key_length == 1 else 0
    times = data[time_at:end:stride]
    if not data[time_at] and times.count(0) == count:  # all in the same millisecond
        return 0, 0, null_key_count
    latest = _largest(times, _EVEN_BYTES)
    if latest < 0:
        return None
    return latest >> 1, times.index(latest), null_key_count


def same_shape(data: bytes, start: int, count: int, first_index: int) -> tuple[int, int, int, int, int] | None:
    """Check up to `count` records, from index first_index on, that differ in structure only by timestamp and offset.

    All of them have offset deltas of the same number of bytes. Returns (number of records, end position, number of null
    keys, largest timestamp delta as zigzag, its index). Returns None, or raises IndexError or ValueError, if fewer than
    MIN_RUN have the layout of the first, they have headers, or a timestamp is before the base or more than 8191 ms
    after it.
    """
    # One piece: small requests have one or two runs, for which each call more is a hundredth of the request. Its parts:
    # the first record's size, which all have; its layout; the columns that are equal; offset deltas; timestamps.
    # Lengths are decoded inline, as a call would cost twice as much; odd ones are negative.
    first = data[start]
    if first & 1:
        return None
    if first < 0x80:
        body, length = start + 1, first >> 1
    elif data[start + 1] < 0x80:
        body, length = start + 2, (first & 0x7F | data[start + 1] << 7) >> 1
    else:
        length, body = read_varint(data, start)
        if length < 0:
            return None
    stride = body + length - start
    if start + stride * count > len(data):
        count = (len(data) - start) // stride
        if count < MIN_RUN:
            return None
    span = stride * (count - 1) + 1
    sizes = data[start : start + span : stride]
    if sizes != bytes((first,)) * count:
        count -= len(sizes.lstrip(data[start : start + 1]))
        if count < MIN_RUN:
            return None  # records of different sizes usually fail here
        span = stride * (count - 1) + 1

    time_bytes = 1 if data[body + 1] < 0x80 else 2
    offset_at = body + 1 + time_bytes
    block, first_in_block = divmod(first_index, BLOCK)
    key_at = offset_at + (3 if block else 2 if first_index >= 64 else 1)
    has_null_keys = data[key_at] == 1
    if has_null_keys:
        key = value_at = key_at + 1
    else:
        key_length, key = read_varint(data, key_at)
        has_null_keys = key_length < 0
        value_at = key + max(key_length, 0)
    first = data[value_at]
    if first >= 0x80 and not first & 1 and data[value_at + 1] < 0x80:
        value = value_at + 2
        headers_at = value + ((first & 0x7F | data[value_at + 1] << 7) >> 1)
    else:
        value_length, value = read_varint(data, value_at)
        headers_at = value + max(value_length, 0)
    if headers_at != start + stride - 1 or data[headers_at]:
        return None

    columns = [*range(start + 1, body), *range(key_at, key), *range(value_at, value), headers_at]
    for column in columns:
        found = data[column : column + span : stride]
        if found != data[column : column + 1] * count:
            count -= len(found.lstrip(data[column : column + 1]))
            if count < MIN_RUN:
                return None
            span = stride * (count - 1) + 1
    if block:
        low_at = 64 + first_index % 64
        low, high = OFFSET_LOW[low_at : low_at + count], _OFFSET_MIDDLE
        if block > 127 or data[offset_at + 2 : offset_at + 2 + span : stride] != bytes((block,)) * count:
            return None
    else:
        low, high = OFFSET_LOW[first_index : first_index + count], OFFSET_HIGH
    if data[offset_at : offset_at + span : stride] != low:
        return None
    if (
        first_index >= 64
        and data[offset_at + 1 : offset_at + 1 + span : stride] != high[first_in_block : first_in_block + count]
    ):
        return None
    times = _latest_of_run(data, body + 1, time_bytes, span, stride)
    if times is None:
        return None
    return count, start + stride * count, count if has_null_keys else 0, times[0], times[1]


def _latest_of_run(data: bytes, at: int, time_bytes: int, span: int, stride: int) -> tuple[int, int] | None:
    """Return (largest timestamp delta as zigzag, its index), None if one is negative or of another length."""
    first = data[at : at + span : stride]
    if time_bytes == 1:
        latest = _largest(first, _EVEN_BYTES)
        return None if latest < 0 else (latest, first.index(latest))
    second = data[at + 1 : at + 1 + span : stride]
    high = _largest(second, _ASCII_BYTES)
    if high < 0 or first.translate(None, _LOW_BYTES):
        return None
    since = second.index(high)
    if second.count(high) == len(second) - since:  # timestamps mostly increase: the largest come last
        lows = first[since:]
        low = _largest(lows, _LOW_BYTES)
        return low & 0x7F | high << 7, since + lows.index(low)
    raws = [low & 0x7F | high << 7 for low, high in zip(first, second, strict=True)]
    latest = max(raws)
    return latest, raws.index(latest)


def _largest(column: bytes, allowed: bytes) -> int:
    """Return the largest byte of a column, -1 if one is not among the allowed ones, which are sorted.

    It is mostly the last one, as timestamps increase: one translate sees that, for a tenth of what max() takes.
    """
    at = allowed.find(column[-1])
    if at < 0:
        return -1
    larger = column.translate(None, allowed[: at + 1])
    if not larger:
        return column[-1]
    return -1 if larger.translate(None, allowed) else max(larger)
