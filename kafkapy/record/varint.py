"""Zigzag varints of records: up to 5 bytes for an int32, 10 for an int64, lowest seven bits first.

`read_*` take (data, position) and return (value, position after it). They raise IndexError at the end of the data and
ValueError for too many bytes; callers convert both into their own errors.
"""

from kafkapy.native import i64


def read_varint(data: bytes, position: i64) -> tuple[i64, i64]:
    """Read a zigzag int32. Bits beyond the 32nd are dropped, as Kafka does."""
    value: i64 = data[position]
    position += 1
    if value >= 0x80:
        second: i64 = data[position]
        if second < 0x80:
            value = value & 0x7F | second << 7
            position += 1
        else:
            value, position = _read_unsigned(data, position, value & 0x7F)
            value &= 0xFFFFFFFF
    return (value >> 1) ^ -(value & 1), position


def _read_unsigned(data: bytes, position: i64, value: i64) -> tuple[i64, i64]:
    """Read the rest of an unsigned varint of at most 35 bits; `value` is the value of its first byte."""
    shift: i64 = 7
    while shift <= 28:
        byte: i64 = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError("a varint does not end")


def read_varlong(data: bytes, position: i64) -> tuple[i64, i64]:
    """Read a zigzag int64. Bits beyond the 64th are dropped, as Kafka does."""
    value: i64 = data[position]
    position += 1
    if value >= 0x80:
        second: i64 = data[position]
        if second >= 0x80:
            return _read_long(data, position, value)
        value = value & 0x7F | second << 7
        position += 1
    return (value >> 1) ^ -(value & 1), position


def _read_long(data: bytes, position: i64, first: i64) -> tuple[i64, i64]:
    """Read the rest of a zigzag int64 of at most 70 bits, whose first byte is `first`.

    The sign, its lowest bit, is kept apart, so that the other 63 bits fit an i64.
    """
    magnitude: i64 = (first & 0x7F) >> 1
    shift: i64 = 6
    while shift <= 62:
        byte: i64 = data[position]
        position += 1
        magnitude |= (byte & 0x7F if shift < 62 else byte & 1) << shift
        if byte < 0x80:
            return magnitude ^ -(first & 1), position
        shift += 7
    raise ValueError("a varint does not end")


def encode_varint(value: int) -> bytes:
    """Return the zigzag varint of an int32 or int64."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    if value < 0x80:
        return _ONE_BYTE[value]
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_ONE_BYTE = [bytes((value,)) for value in range(0x80)]
