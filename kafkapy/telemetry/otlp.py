"""Reads OpenTelemetry's MetricsData (opentelemetry-proto 1.x, metrics.proto): what clients push. KIP-714.

Reads the value of a gauge or sum, and count and sum of a histogram or summary. The reader is a generator that
yields after every few fields, so that callers can give way; other fields are skipped without being looked at.

    MetricsData.resource_metrics 1 > ResourceMetrics.scope_metrics 2 > ScopeMetrics.metrics 2 > Metric
    Metric: name 1, gauge 5, sum 7, histogram 9, exponential_histogram 10, summary 11, each with data_points 1
    Sum and the histograms: aggregation_temporality 2 (1 delta, 2 cumulative); Sum: is_monotonic 3
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from kafkapy.errors import KafkapyError

MAX_ATTRIBUTES: Final = 32
"""Attributes of a data point that are read."""
MAX_RESOURCES: Final = 1_000
"""A client has one."""
MAX_FIELDS: Final = 500
"""Fields of a data point, with those of its attributes and of their values: it is read in one step."""
MAX_TEXT: Final = 250
"""Characters of a name or an attribute's value that are kept."""
DELTA: Final = 1

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
GAUGE, SUM, HISTOGRAM, EXPONENTIAL_HISTOGRAM, SUMMARY = 5, 7, 9, 10, 11
POINT_ATTRIBUTES: Final = {GAUGE: 7, SUM: 7, HISTOGRAM: 9, EXPONENTIAL_HISTOGRAM: 1, SUMMARY: 7}
"""The field of a data point that has its attributes, by kind of metric."""

_Field = tuple[int, int, int, int]
"""(field number, wire type, start, end) of a field's value in the data."""


class OtlpError(KafkapyError):
    """The data is not valid MetricsData."""


class Point(NamedTuple):
    """A value of a metric. `name`: OpenTelemetry's, with `.count` or `.sum` for those of histograms and summaries."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    value: float
    is_counter: bool
    """Whether it only rises, apart from restarts of the client."""
    is_delta: bool
    """Whether the value is what came since the last push."""


def points_of(data: bytes) -> Iterator[Point | None]:
    """Yield the points of MetricsData; None is a step without one. Raises OtlpError."""
    for count, (number, wire_type, start, end) in enumerate(_fields(data, 0, len(data))):
        yield None
        if count >= MAX_RESOURCES:
            raise OtlpError(f"more than {MAX_RESOURCES} resources")
        if (number, wire_type) == (1, BYTES):
            yield from _points_of_resource(data, start, end)


def resources_with(data: bytes, attributes: bytes) -> bytes:
    """Return MetricsData with more attributes in each of its resources.

    attributes: an encoded Resource. It is appended as a second one: a parser merges them. Raises OtlpError.
    """
    parts = []
    addition = _length_delimited(1, attributes)
    for number, wire_type, start, end in _fields(data, 0, len(data)):
        if number == 1 and wire_type == BYTES:
            parts.append(_length_delimited(1, data[start:end] + addition))
    return b"".join(parts)


def resource(attributes: dict[str, str]) -> bytes:
    """Return an encoded Resource with attributes that are strings."""
    parts = []
    for key, value in attributes.items():
        text = _length_delimited(1, value.encode())
        parts.append(_length_delimited(1, _length_delimited(1, key.encode()) + _length_delimited(2, text)))
    return b"".join(parts)


def _points_of_resource(data: bytes, start: int, end: int) -> Iterator[Point | None]:
    for number, wire_type, scope_start, scope_end in _fields(data, start, end):
        yield None
        if (number, wire_type) != (2, BYTES):
            continue
        for field, field_type, metric_start, metric_end in _fields(data, scope_start, scope_end):
            yield None
            if (field, field_type) == (2, BYTES):
                yield from _points_of_metric(data, metric_start, metric_end)


def _points_of_metric(data: bytes, start: int, end: int) -> Iterator[Point | None]:
    name = ""
    kinds: list[_Field] = []
    for field in _fields(data, start, end):
        yield None
        number, wire_type, value_start, value_end = field
        if wire_type != BYTES:
            continue
        if number == 1:
            name = _text(data, value_start, value_end)
        elif number in POINT_ATTRIBUTES:
            kinds = [field]  # of a oneof the last one counts
    if not name:
        raise OtlpError("a metric has no name")
    for kind, _, value_start, value_end in kinds:
        yield from _points_of_kind(data, name, kind, value_start, value_end)


def _points_of_kind(data: bytes, name: str, kind: int, start: int, end: int) -> Iterator[Point | None]:
    temporality, is_monotonic = 0, kind in (HISTOGRAM, EXPONENTIAL_HISTOGRAM, SUMMARY)
    if kind not in (GAUGE, SUMMARY):
        for number, wire_type, value_start, _ in _fields(data, start, end):
            yield None
            if wire_type == VARINT and number == 2:
                temporality, _ = _varint(data, value_start, end)
            elif wire_type == VARINT and number == 3 and kind == SUM:
                is_monotonic = bool(_varint(data, value_start, end)[0])
    for number, wire_type, value_start, value_end in _fields(data, start, end):
        yield None
        if (number, wire_type) == (1, BYTES):
            attributes, values = _numbers(data, kind, value_start, value_end)
            for suffix, value in values:
                yield Point(name + suffix, attributes, value, is_monotonic, temporality == DELTA)


def _numbers(
    data: bytes, kind: int, start: int, end: int
) -> tuple[tuple[tuple[str, str], ...], list[tuple[str, float]]]:
    """Return the attributes of a data point, and its values with the suffixes of their names."""
    attributes: list[tuple[str, str]] = []
    values: list[tuple[str, float]] = []
    is_number = kind in (GAUGE, SUM)
    few = _FewFields()
    for number, wire_type, value_start, value_end in few.of(data, start, end):
        if wire_type == BYTES:
            if number == POINT_ATTRIBUTES[kind] and len(attributes) < MAX_ATTRIBUTES:
                attributes.append(_attribute(data, value_start, value_end, few))
        elif wire_type == FIXED64:
            if is_number and number == 4:
                values = [("", struct.unpack_from("<d", data, value_start)[0])]
            elif is_number and number == 6:
                values = [("", struct.unpack_from("<q", data, value_start)[0])]
            elif not is_number and number == 4:
                values.append((".count", struct.unpack_from("<Q", data, value_start)[0]))
            elif not is_number and number == 5:
                values.append((".sum", struct.unpack_from("<d", data, value_start)[0]))
    return tuple(sorted(attributes)), values[:2]


def _attribute(data: bytes, start: int, end: int, few: "_FewFields") -> tuple[str, str]:
    key = value = ""
    for number, wire_type, value_start, value_end in few.of(data, start, end):
        if wire_type == BYTES and number == 1:
            key = _text(data, value_start, value_end)
        elif wire_type == BYTES and number == 2:
            value = _any_value(data, value_start, value_end, few)
    return key, value


def _any_value(data: bytes, start: int, end: int, few: "_FewFields") -> str:
    """Return a string, a bool or a number as text; "" for arrays, maps and bytes."""
    value = ""
    for number, wire_type, value_start, value_end in few.of(data, start, end):
        if number == 1 and wire_type == BYTES:
            value = _text(data, value_start, value_end)
        elif number == 2 and wire_type == VARINT:
            value = "true" if _varint(data, value_start, end)[0] else "false"
        elif number == 3 and wire_type == VARINT:
            unsigned = _varint(data, value_start, end)[0]
            value = str(unsigned - (1 << 64) if unsigned >= 1 << 63 else unsigned)
        elif number == 4 and wire_type == FIXED64:
            value = repr(struct.unpack_from("<d", data, value_start)[0])
    return value


class _FewFields:
    """Counts the fields of one data point, at all levels."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = MAX_FIELDS

    def of(self, data: bytes, start: int, end: int) -> Iterator[_Field]:
        """Yield the fields of the data point, or of a message in it. Raises OtlpError if they are too many."""
        for field in _fields(data, start, end):
            self._left -= 1
            if self._left < 0:
                raise OtlpError(f"a data point has more than {MAX_FIELDS} fields")
            yield field


def _fields(data: bytes, position: int, end: int) -> Iterator[_Field]:
    """Yield the fields of a message. Raises OtlpError."""
    while position < end:
        tag, position = _varint(data, position, end)
        wire_type, start = tag & 7, position
        if wire_type == VARINT:
            _, position = _varint(data, position, end)
        elif wire_type == BYTES:
            length, start = _varint(data, position, end)
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


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
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


def _text(data: bytes, start: int, end: int) -> str:
    cut = min(end, start + 4 * MAX_TEXT)
    try:
        return data[start:cut].decode("utf-8", "strict" if cut == end else "ignore")[:MAX_TEXT]
    except UnicodeDecodeError as error:
        raise OtlpError("a text is not UTF-8") from error


def _length_delimited(number: int, value: bytes) -> bytes:
    return bytes((number << 3 | BYTES,)) + _encoded(len(value)) + value


def _encoded(value: int) -> bytes:
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
