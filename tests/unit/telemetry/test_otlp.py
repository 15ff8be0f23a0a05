"""What is read of OpenTelemetry's metrics, written by Google's protobuf; damaged data raises OtlpError."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.telemetry.histograms import Buckets
from kafkapy.telemetry.otlp import MAX_ATTRIBUTES, Point, points_of, resource, resources_with
from kafkapy.telemetry.protobuf import MAX_TEXT, OtlpError
from tests.support.otlp_messages import add_attributes, counter, gauge, message, metrics_data


def read(data: bytes) -> list[Point]:
    return [point for point in points_of(data) if point is not None]


def test_gauges_and_sums_of_doubles_and_integers() -> None:
    data = metrics_data(
        gauge("a.avg", 1.5, topic="t", partition="0"), counter("b.total", 7), counter("c.total", -2, temporality=2)
    )
    assert read(data) == [
        Point("a.avg", (("partition", "0"), ("topic", "t")), 1.5, False, False),
        Point("b.total", (), 7, True, True),
        Point("c.total", (), -2, True, False),
    ]


@pytest.mark.parametrize("temporality", [1, 2])
def test_of_a_histogram_its_buckets_are_read(temporality: int) -> None:
    metric = message("Metric")(name="latency")
    point = metric.histogram.data_points.add(count=6, sum=4.5, bucket_counts=[1, 2, 3], explicit_bounds=[0.5, 2])
    add_attributes(point, {"node": "1"})
    metric.histogram.aggregation_temporality = temporality
    buckets = Buckets((0.5, 2), (1, 2, 3), 4.5)
    assert read(metrics_data(metric)) == [Point("latency", (("node", "1"),), 6, True, temporality == 1, buckets)]


def test_of_a_summary_count_and_sum_are_read() -> None:
    metric = message("Metric")(name="latency")
    add_attributes(metric.summary.data_points.add(count=3, sum=4.5), {"node": "1"})
    assert read(metrics_data(metric)) == [
        Point("latency.count", (("node", "1"),), 3, True, False),
        Point("latency.sum", (("node", "1"),), 4.5, True, False),
    ]


def test_attributes_that_are_no_strings() -> None:
    metric = message("Metric")(name="m")
    point = metric.gauge.data_points.add(as_int=1)
    for field, value in {"bool_value": True, "int_value": -5, "double_value": 0.5, "bytes_value": b"\xff"}.items():
        setattr(point.attributes.add(key=field).value, field, value)
    assert dict(read(metrics_data(metric))[0].attributes) == {
        "bool_value": "true",
        "int_value": "-5",
        "double_value": "0.5",
        "bytes_value": "",
    }


def test_names_values_and_attributes_are_cut() -> None:
    many = {f"k{index}": "é" * 2000 for index in range(MAX_ATTRIBUTES + 5)}
    (point,) = read(metrics_data(gauge("n" * 5000, 1, **many)))
    assert point.name == "n" * MAX_TEXT
    assert len(point.attributes) == MAX_ATTRIBUTES
    assert {value for _, value in point.attributes} == {"é" * MAX_TEXT}


BROKEN = {
    "a tag without a value": "0a",
    "a field longer than its message": "0a05 0a",
    "a number that does not end": "ffffffffffffffffffffff",
    "a wire type that is not used": "0b",
    "a field with the number 0": "02 00",
    "a metric without a name": "0a06 1204 1202 2a00",
    "a name that is not UTF-8": "0a08 1206 1204 0a02 c328",
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_broken_data_is_refused(data: str) -> None:
    with pytest.raises(OtlpError):
        read(bytes.fromhex(data))


def test_a_point_of_very_many_fields_is_refused() -> None:
    """It is read in one step."""
    point = bytes.fromhex("4000") * 200_000
    with pytest.raises(OtlpError, match="more than 500 fields"):
        read(nested(point))


def test_fields_of_attributes_and_of_their_values_count_too() -> None:
    """Half a million of them held the loop for a second; compressed they were a few hundred bytes."""
    value = delimited(0x12, bytes.fromhex("1001") * 490)  # a bool, again and again: the last one counts
    point = bytes.fromhex("310100000000000000") + 2 * delimited(0x3A, value * 490)
    with pytest.raises(OtlpError, match="more than 500 fields"):
        read(nested(point))


def test_the_most_attributes_that_are_read_are_few_fields() -> None:
    many = {f"k{index}": "v" for index in range(5 * MAX_ATTRIBUTES)}
    (point,) = read(metrics_data(gauge("a", 1, **many)))
    assert len(point.attributes) == MAX_ATTRIBUTES


def nested(point: bytes) -> bytes:
    """Return MetricsData with one gauge of one data point."""
    metric = b"\x0a\x01m" + delimited(0x2A, delimited(0x0A, point))
    return delimited(0x0A, delimited(0x12, delimited(0x12, metric)))


def delimited(tag: int, data: bytes) -> bytes:
    length, encoded = len(data), bytearray((tag,))
    while length >= 0x80:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    encoded.append(length)
    return bytes(encoded) + data


@given(st.binary(max_size=200), st.integers(0, 200))
@settings(max_examples=200, deadline=None)
def test_damaged_data_is_read_or_refused(noise: bytes, position: int) -> None:
    whole = metrics_data(gauge("a.avg", 1.5, topic="t"), counter("b.total", 7))
    for data in (noise, whole[: position % len(whole)], whole[:position] + noise + whole[position:]):
        try:
            read(data)
        except OtlpError:
            continue


def test_attributes_are_added_to_each_resource() -> None:
    data = metrics_data(gauge("a", 1), resource={"own": "1"}) + metrics_data(gauge("b", 2))
    whole = message("MetricsData").FromString(resources_with(data, resource({"client_id": "ä", "broker_id": "3"})))
    found = [
        {each.key: each.value.string_value for each in of_resource.resource.attributes}
        for of_resource in whole.resource_metrics
    ]
    assert found == [{"own": "1", "client_id": "ä", "broker_id": "3"}, {"client_id": "ä", "broker_id": "3"}]
    assert [each.scope_metrics[0].metrics[0].name for each in whole.resource_metrics] == ["a", "b"]
