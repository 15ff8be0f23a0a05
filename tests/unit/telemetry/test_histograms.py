"""Histograms that clients push, written by Google's protobuf: their buckets, and what is no histogram."""

import struct
from math import inf
from typing import Any

import pytest

from kafkapy.telemetry.histograms import MAX_BUCKETS, Buckets, merged
from kafkapy.telemetry.otlp import points_of
from kafkapy.telemetry.protobuf import OtlpError
from tests.support.otlp_messages import message, metrics_data


def buckets_of(kind: str, **fields: Any) -> Buckets | None:
    metric = message("Metric")(name="latency")
    point = getattr(metric, kind).data_points.add()
    for buckets in ("positive", "negative"):
        for name, value in fields.pop(buckets, {}).items():
            of_sign = getattr(point, buckets)
            if isinstance(value, list):
                getattr(of_sign, name).extend(value)
            else:
                setattr(of_sign, name, value)
    for name, value in fields.items():
        if isinstance(value, list):
            getattr(point, name).extend(value)
        else:
            setattr(point, name, value)
    (read,) = [each for each in points_of(metrics_data(metric)) if each is not None]
    return read.buckets


def test_a_histogram_without_buckets_has_one_of_all_values() -> None:
    assert buckets_of("histogram", count=3, sum=1.5) == Buckets((), (3,), 1.5)


@pytest.mark.parametrize("fields", [{}, {"sum": inf}])
def test_a_sum_that_is_not_known(fields: dict[str, float]) -> None:
    assert buckets_of("histogram", bucket_counts=[1, 2], explicit_bounds=[1], **fields) == Buckets((1,), (1, 2), None)


WRONG = {
    "a bound too few": {"bucket_counts": [1, 2, 3], "explicit_bounds": [1]},
    "counts without bounds": {"bucket_counts": [1, 2]},
    "bounds without counts": {"explicit_bounds": [1]},
    "bounds that fall": {"bucket_counts": [1, 2, 3], "explicit_bounds": [2, 1]},
    "a bound twice": {"bucket_counts": [1, 2, 3], "explicit_bounds": [1, 1]},
    "an infinite bound": {"bucket_counts": [1, 2], "explicit_bounds": [inf]},
    "very many": {"bucket_counts": [0] * (MAX_BUCKETS + 1), "explicit_bounds": list(range(MAX_BUCKETS))},
    "a million": {"bucket_counts": [0] * 1_000_000},
}


@pytest.mark.parametrize("fields", WRONG.values(), ids=WRONG)
def test_what_is_no_histogram_is_refused(fields: dict[str, list[int]]) -> None:
    with pytest.raises(OtlpError, match="histogram"):
        buckets_of("histogram", **fields)


def test_counts_of_the_wrong_size_are_refused() -> None:
    point = b"\x32\x07" + bytes(7)
    metric = b"\x0a\x01m\x4a" + bytes((len(point) + 2, 0x0A, len(point))) + point
    data = metric
    for tag in (0x12, 0x12, 0x0A):
        data = bytes((tag, len(data))) + data
    with pytest.raises(OtlpError, match="no numbers"):
        list(points_of(data))


def test_exponential_buckets_are_those_between_powers_of_two() -> None:
    """Scale 1: bucket i ends at 2 ** ((i + 1) / 2), so -1 at 1, 0 at 1.41, 1 at 2, 2 at 2.83."""
    found = buckets_of(
        "exponential_histogram",
        count=17,
        sum=20,
        scale=1,
        zero_count=2,
        positive={"offset": -1, "bucket_counts": [1, 3, 5, 4]},
        negative={"offset": 0, "bucket_counts": [1, 1]},
    )
    assert found == Buckets((0, 1, 2, 4), (4, 1, 8, 4, 0), 20)


@pytest.mark.parametrize(
    ("scale", "offset", "bound"),
    [
        (0, 0, 2),
        (-1, 0, 4),
        (-1, -1, 1),
        (-2, -2, 1 / 16),
        (20, 1 << 20, 4),
        (0, 1022, 2.0**1023),
        (0, -2000, 2**-1074),
    ],
)
def test_the_upper_bound_of_an_exponential_bucket(scale: int, offset: int, bound: float) -> None:
    found = buckets_of("exponential_histogram", scale=scale, positive={"offset": offset, "bucket_counts": [1]})
    assert found == Buckets((0, bound), (0, 1, 0), None)


@pytest.mark.parametrize(("scale", "offset"), [(0, 1023), (-(1 << 31), 0), (-11, 1), (0, (1 << 31) - 1)])
def test_values_beyond_all_floats_are_in_the_last_bucket(scale: int, offset: int) -> None:
    found = buckets_of("exponential_histogram", scale=scale, positive={"offset": offset, "bucket_counts": [1]})
    assert found == Buckets((0,), (0, 1), None)


def test_an_exponential_histogram_has_bounded_buckets() -> None:
    with pytest.raises(OtlpError, match="more than"):
        buckets_of("exponential_histogram", positive={"bucket_counts": [1] * (MAX_BUCKETS + 1)})


def test_deltas_add_up() -> None:
    before = Buckets((1, 2), (1, 2, 3), 10)
    assert merged(before, Buckets((1, 2), (1, 0, 1), 5)) == Buckets((1, 2), (2, 2, 4), 15)
    assert merged(before, Buckets((2, 4), (1, 1, 1), None)) == Buckets((1, 2, 4), (1, 3, 1, 4), None)
    many = Buckets(tuple(float(bound) + 0.5 for bound in range(MAX_BUCKETS - 1)), (0,) * MAX_BUCKETS, 0)
    assert merged(before, many) is many


def test_numbers_are_those_of_protobuf() -> None:
    """Packed or one by one, as older encoders write them."""
    packed = struct.pack("<2Q", 1, 2)
    single = b"".join(b"\x31" + packed[at : at + 8] for at in (0, 8))
    bound = b"\x39" + struct.pack("<d", 0.5)
    for counts in (b"\x32" + bytes((len(packed),)) + packed, single):
        point = counts + bound
        data = b"\x0a\x01m" + b"\x4a" + bytes((len(point) + 2, 0x0A, len(point))) + point
        for tag in (0x12, 0x12, 0x0A):
            data = bytes((tag, len(data))) + data
        (read,) = [each for each in points_of(data) if each is not None]
        assert read.buckets == Buckets((0.5,), (1, 2), None)
