"""Reads OpenTelemetry's MetricsData (opentelemetry-proto 1.x, metrics.proto): what clients push. KIP-714.

Reads the value of a gauge or sum, the buckets of a histogram, and count and sum of a summary. The reader is a generator
that yields after every few fields, so that callers can give way; other fields are skipped without being looked at.

    MetricsData.resource_metrics 1 > ResourceMetrics.scope_metrics 2 > ScopeMetrics.metrics 2 > Metric
    Metric: name 1, gauge 5, sum 7, histogram 9, exponential_histogram 10, summary 11, each with data_points 1
    Sum and the histograms: aggregation_temporality 2 (1 delta, 2 cumulative); Sum: is_monotonic 3
"""

import struct
from collections.abc import Iterator
from typing import Final

from kafkapy.named_tuple import NamedTuple
from kafkapy.telemetry.histograms import Buckets, explicit_buckets, exponential_buckets
from kafkapy.telemetry.protobuf import (
    BYTES,
    FIXED64,
    VARINT,
    FewFields,
    Field,
    OtlpError,
    attribute_of,
    fields_of,
    text_of,
    varint,
)

MAX_ATTRIBUTES: Final = 32
"""Attributes of a data point that are read."""
MAX_RESOURCES: Final = 1_000
"""A client has one."""
DELTA: Final = 1

GAUGE, SUM, HISTOGRAM, EXPONENTIAL_HISTOGRAM, SUMMARY = 5, 7, 9, 10, 11
POINT_ATTRIBUTES: Final = {GAUGE: 7, SUM: 7, HISTOGRAM: 9, EXPONENTIAL_HISTOGRAM: 1, SUMMARY: 7}
"""The field of a data point that has its attributes, by kind of metric."""


Attributes = tuple[tuple[str, str], ...]


class Point(NamedTuple):
    """A value of a metric. `name`: OpenTelemetry's, with `.count` or `.sum` for those of summaries."""

    name: str
    attributes: Attributes
    value: float
    is_counter: bool
    """Whether it only rises, apart from restarts of the client."""
    is_delta: bool
    """Whether the value is what came since the last push."""
    buckets: Buckets | None = None
    """The buckets of a histogram, whose `value` is the number of its values."""


def points_of(data: bytes) -> Iterator[Point | None]:
    """Yield the points of MetricsData; None is a step without one. Raises OtlpError."""
    for count, (number, wire_type, start, end) in enumerate(fields_of(data, 0, len(data))):
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
    for number, wire_type, start, end in fields_of(data, 0, len(data)):
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
    for number, wire_type, scope_start, scope_end in fields_of(data, start, end):
        yield None
        if (number, wire_type) != (2, BYTES):
            continue
        for field, field_type, metric_start, metric_end in fields_of(data, scope_start, scope_end):
            yield None
            if (field, field_type) == (2, BYTES):
                yield from _points_of_metric(data, metric_start, metric_end)


def _points_of_metric(data: bytes, start: int, end: int) -> Iterator[Point | None]:
    name = ""
    kinds: list[Field] = []
    for field in fields_of(data, start, end):
        yield None
        number, wire_type, value_start, value_end = field
        if wire_type != BYTES:
            continue
        if number == 1:
            name = text_of(data, value_start, value_end)
        elif number in POINT_ATTRIBUTES:
            kinds = [field]  # of a oneof the last one counts
    if not name:
        raise OtlpError("a metric has no name")
    for kind, _, value_start, value_end in kinds:
        yield from _points_of_kind(data, name, kind, value_start, value_end)


def _points_of_kind(data: bytes, name: str, kind: int, start: int, end: int) -> Iterator[Point | None]:
    temporality, is_monotonic = 0, kind in (HISTOGRAM, EXPONENTIAL_HISTOGRAM, SUMMARY)
    if kind not in (GAUGE, SUMMARY):
        for number, wire_type, value_start, _ in fields_of(data, start, end):
            yield None
            if wire_type == VARINT and number == 2:
                temporality, _ = varint(data, value_start, end)
            elif wire_type == VARINT and number == 3 and kind == SUM:
                is_monotonic = bool(varint(data, value_start, end)[0])
    for number, wire_type, value_start, value_end in fields_of(data, start, end):
        yield None
        if (number, wire_type) == (1, BYTES):
            if kind in (HISTOGRAM, EXPONENTIAL_HISTOGRAM):
                attributes, buckets = _histogram(data, kind, value_start, value_end)
                yield Point(name, attributes, sum(buckets.counts), True, temporality == DELTA, buckets)
                continue
            attributes, values = _numbers(data, kind, value_start, value_end)
            for suffix, value in values:
                yield Point(name + suffix, attributes, value, is_monotonic, temporality == DELTA)


def _histogram(data: bytes, kind: int, start: int, end: int) -> tuple[Attributes, Buckets]:
    """Return the attributes of a histogram's data point, and its buckets."""
    attributes: list[tuple[str, str]] = []
    few = FewFields()
    fields = list(few.of(data, start, end))
    for number, wire_type, value_start, value_end in fields:
        if (number, wire_type) == (POINT_ATTRIBUTES[kind], BYTES) and len(attributes) < MAX_ATTRIBUTES:
            attributes.append(attribute_of(data, value_start, value_end, few))
    buckets = explicit_buckets(data, fields) if kind == HISTOGRAM else exponential_buckets(data, fields, few)
    return tuple(sorted(attributes)), buckets


def _numbers(data: bytes, kind: int, start: int, end: int) -> tuple[Attributes, list[tuple[str, float]]]:
    """Return the attributes of a data point, and its values with the suffixes of their names."""
    attributes: list[tuple[str, str]] = []
    values: list[tuple[str, float]] = []
    is_number = kind in (GAUGE, SUM)
    few = FewFields()
    for number, wire_type, value_start, value_end in few.of(data, start, end):
        if wire_type == BYTES:
            if number == POINT_ATTRIBUTES[kind] and len(attributes) < MAX_ATTRIBUTES:
                attributes.append(attribute_of(data, value_start, value_end, few))
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


def _length_delimited(number: int, value: bytes) -> bytes:
    return bytes((number << 3 | BYTES,)) + _encoded(len(value)) + value


def _encoded(value: int) -> bytes:
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
