"""Zigzag varints as serializers write them. Unlike kafkapy.record.varint, this drops no bits beyond a width."""

from kafkapy.decoders.errors import DecodeError


def read_zigzag(data: bytes, position: int, max_bits: int) -> tuple[int, int]:
    """Return (value, position after it) of a varint of at most `max_bits`, a multiple of 7. Raises DecodeError."""
    value = 0
    for shift in range(0, max_bits, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
    raise DecodeError("a varint that does not end")
