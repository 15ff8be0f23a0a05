"""The buckets of OpenTelemetry's histograms, as Prometheus has them: by their upper bounds.

    HistogramDataPoint             count 4, sum 5, bucket_counts 6, explicit_bounds 7
    ExponentialHistogramDataPoint  count 4, sum 5, scale 6, zero_count 7, positive 8, negative 9 (offset 1, counts 2)

Bucket i of an exponential histogram holds the values above base**i and up to base**(i + 1), where base is
2**2**-scale. Those of a scale above 0 are merged to scale 0, so that all histograms have bounds in common: powers of 2.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf, isfinite
from typing import Any, Final

from kafkapy.named_tuple import NamedTuple
from kafkapy.telemetry.protobuf import BYTES, FIXED64, VARINT, FewFields, Field, OtlpError, varint

MAX_BUCKETS: Final = 200
"""Buckets of a histogram; OpenTelemetry's SDKs have 160 at most."""
MIN_EXPONENT, MAX_EXPONENT = -1074, 1023
"""The powers of 2 that a float can be."""


class Buckets(NamedTuple):
    """The values of a histogram. counts[i]: those above bounds[i - 1] and up to bounds[i]; the last one: all above."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float | None
    """The sum of the values, if it is known."""


def explicit_buckets(data: bytes, fields: Sequence[Field]) -> Buckets:
    """Return the buckets of a HistogramDataPoint with these fields. Raises OtlpError."""
    count, total = 0, None
    counts: list[Any] = []
    bounds: list[Any] = []
    for number, wire_type, start, end in fields:
        if (number, wire_type) == (4, FIXED64):
            (count,) = struct.unpack_from("<Q", data, start)
        elif (number, wire_type) == (5, FIXED64):
            (total,) = struct.unpack_from("<d", data, start)
        elif number == 6:
            counts += _numbers(data, "Q", wire_type, start, end)
        elif number == 7:
            bounds += _numbers(data, "d", wire_type, start, end)
    if not counts and not bounds:
        counts = [count]
    if len(counts) != len(bounds) + 1 or len(counts) > MAX_BUCKETS:
        raise OtlpError(f"a histogram has {len(counts)} buckets and {len(bounds)} bounds")
    if not all(map(isfinite, bounds)) or any(low >= high for low, high in pairwise(bounds)):
        raise OtlpError("the bounds of a histogram do not rise")
    return Buckets(tuple(bounds), tuple(counts), _known(total))


def exponential_buckets(data: bytes, fields: Sequence[Field], few: FewFields) -> Buckets:
    """Return the buckets of an ExponentialHistogramDataPoint with these fields. Raises OtlpError."""
    count, total, scale, zero_count = 0, None, 0, 0
    positive: dict[int, int] = {}
    negative: dict[int, int] = {}
    for number, wire_type, start, end in fields:
        if (number, wire_type) == (4, FIXED64):
            (count,) = struct.unpack_from("<Q", data, start)
        elif (number, wire_type) == (5, FIXED64):
            (total,) = struct.unpack_from("<d", data, start)
        elif (number, wire_type) == (6, VARINT):
            scale = _signed(varint(data, start, end)[0])
        elif (number, wire_type) == (7, FIXED64):
            (zero_count,) = struct.unpack_from("<Q", data, start)
        elif (number, wire_type) == (8, BYTES):
            positive = _indexed(data, start, end, few)
        elif (number, wire_type) == (9, BYTES):
            negative = _indexed(data, start, end, few)
    by_bound: dict[float, int] = {0.0: zero_count + sum(negative.values())}
    for index, bucket_count in positive.items():
        bound = _upper_bound(index, scale)
        by_bound[bound] = by_bound.get(bound, 0) + bucket_count
    by_bound[inf] = by_bound.get(inf, 0) + max(count - sum(by_bound.values()), 0)  # should its buckets be left out
    return buckets_of(by_bound, _known(total))


def buckets_of(by_bound: Mapping[float, int], total: float | None) -> Buckets:
    """Return buckets with the counts of these upper bounds, which may be infinite."""
    bounds = tuple(sorted(bound for bound in by_bound if bound != inf))
    return Buckets(bounds, (*(by_bound[bound] for bound in bounds), by_bound.get(inf, 0)), total)


def merged(before: Buckets, delta: Buckets) -> Buckets:
    """Return the sum of both. Different bounds are combined; if they are too many, `delta` is returned."""
    total = None if before.total is None or delta.total is None else before.total + delta.total
    if before.bounds == delta.bounds:
        return Buckets(before.bounds, tuple(map(int.__add__, before.counts, delta.counts)), total)
    by_bound = dict(zip((*before.bounds, inf), before.counts, strict=True))
    for bound, count in zip((*delta.bounds, inf), delta.counts, strict=True):
        by_bound[bound] = by_bound.get(bound, 0) + count
    return buckets_of(by_bound, total) if len(by_bound) <= MAX_BUCKETS else delta


def _upper_bound(index: int, scale: int) -> float:
    exponent = (index >> min(scale, 64)) + 1 if scale >= 0 else (index + 1) << min(-scale, 12)
    return 2.0 ** max(exponent, MIN_EXPONENT) if exponent <= MAX_EXPONENT else inf


def _indexed(data: bytes, start: int, end: int, few: FewFields) -> dict[int, int]:
    """Return the counts of an exponential histogram's Buckets by index. Raises OtlpError."""
    offset = 0
    counts: list[int] = []
    for number, wire_type, value_start, value_end in few.of(data, start, end):
        if (number, wire_type) == (1, VARINT):
            offset = _signed(varint(data, value_start, value_end)[0])
        elif number == 2 and wire_type in (BYTES, VARINT):
            for count in _varints(data, value_start, value_end):
                counts.append(count)
                _check(len(counts))
    return {offset + index: count for index, count in enumerate(counts) if count}


def _varints(data: bytes, position: int, end: int) -> Iterator[int]:
    while position < end:
        value, position = varint(data, position, end)
        yield value


def _numbers(data: bytes, kind: str, wire_type: int, start: int, end: int) -> tuple[Any, ...]:
    """Return numbers of 8 bytes, packed or one alone; kind: of struct. Raises OtlpError."""
    if wire_type not in (BYTES, FIXED64) or (end - start) % 8:
        raise OtlpError("the buckets of a histogram are no numbers")
    _check((end - start) // 8)
    return struct.unpack_from(f"<{(end - start) // 8}{kind}", data, start)


def _check(bucket_count: int) -> None:
    if bucket_count > MAX_BUCKETS:
        raise OtlpError(f"a histogram has more than {MAX_BUCKETS} buckets")


def _signed(value: int) -> int:
    """Return a number in protobuf's zigzag encoding."""
    return (value >> 1) ^ -(value & 1)


def _known(total: float | None) -> float | None:
    return total if total is not None and isfinite(total) else None
