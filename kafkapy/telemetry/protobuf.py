"""Reads protobuf's fields, and the attributes that OpenTelemetry's messages have; what takes long is refused."""

import struct
from collections.abc import Iterator
from typing import Final

from kafkapy.errors import KafkapyError

MAX_FIELDS: Final = 500
"""Fields of a data point, with those of its attributes and of their values: it is read in one step."""
MAX_TEXT: Final = 250
"""Characters of a name or an attribute's value that are kept."""

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

Field = tuple[int, int, int, int]
"""(field number, wire type, start, end) of a field's value in the data."""


class OtlpError(KafkapyError):
    """The data is not valid MetricsData."""


def attribute_of(data: bytes, start: int, end: int, few: "FewFields") -> tuple[str, str]:
    key = value = ""
    for number, wire_type, value_start, value_end in few.of(data, start, end):
        if wire_type == BYTES and number == 1:
            key = text_of(data, value_start, value_end)
        elif wire_type == BYTES and number == 2:
            value = _any_value(data, value_start, value_end, few)
    return key, value


def _any_value(data: bytes, start: int, end: int, few: "FewFields") -> str:
    """Return a string, a bool or a number as text; "" for arrays, maps and bytes."""
    value = ""
    for number, wire_type, value_start, value_end in few.of(data, start, end):
        if number == 1 and wire_type == BYTES:
            value = text_of(data, value_start, value_end)
        elif number == 2 and wire_type == VARINT:
            value = "true" if varint(data, value_start, end)[0] else "false"
        elif number == 3 and wire_type == VARINT:
            unsigned = varint(data, value_start, end)[0]
            value = str(unsigned - (1 << 64) if unsigned >= 1 << 63 else unsigned)
        elif number == 4 and wire_type == FIXED64:
            value = repr(struct.unpack_from("<d", data, value_start)[0])
    return value


class FewFields:
    """Counts the fields of one data point, at all levels."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = MAX_FIELDS

    def of(self, data: bytes, start: int, end: int) -> Iterator[Field]:
        """Yield the fields of the data point, or of a message in it. Raises OtlpError if they are too many."""
        for field in fields_of(data, start, end):
            self._left -= 1
            if self._left < 0:
                raise OtlpError(f"a data point has more than {MAX_FIELDS} fields")
            yield field


def fields_of(data: bytes, position: int, end: int) -> Iterator[Field]:
    """Yield the fields of a message. Raises OtlpError."""
    while position < end:
        tag, position = varint(data, position, end)
        wire_type, start = tag & 7, position
        if wire_type == VARINT:
            _, position = varint(data, position, end)
        elif wire_type == BYTES:
            length, start = varint(data, position, end)
            position = start + length
        elif wire_type in (FIXED64, FIXED32):
            position += 8 if wire_type == FIXED64 else 4
        else:
            raise OtlpError(f"wire type {wire_type} is not used in this format")
        if position > end:
            raise OtlpError("a field is longer than its message")
        if tag >> 3 == 0:
            raise OtlpError("a field has the number 0")
        yield tag >> 3, wire_type, start, position


def varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Return an unsigned number of at most 64 bits, and the position after it."""
    value = shift = 0
    while position < end and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position
        shift += 7
    raise OtlpError("a number does not end")


def text_of(data: bytes, start: int, end: int) -> str:
    cut = min(end, start + 4 * MAX_TEXT)
    try:
        return data[start:cut].decode("utf-8", "strict" if cut == end else "ignore")[:MAX_TEXT]
    except UnicodeDecodeError as error:
        raise OtlpError("a text is not UTF-8") from error
