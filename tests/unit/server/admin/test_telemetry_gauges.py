"""Clients' metrics on /metrics: under names of their own, whatever a client calls them."""

from itertools import count

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kafkapy.gauge import BucketCounts, Gauge
from kafkapy.runtime.client_telemetry import ClientTelemetry
from kafkapy.server.admin.listener import STEPS_AT_ONCE
from kafkapy.server.admin.metrics import exposition
from kafkapy.server.admin.telemetry_gauges import telemetry_gauges
from kafkapy.telemetry.histograms import Buckets
from kafkapy.telemetry.otlp import Point
from kafkapy.timer.wheel import TimingWheel
from kafkapy.types import ZERO_UUID


@pytest.fixture
def telemetry() -> ClientTelemetry:
    ids = count(1 << 64)
    return ClientTelemetry(
        wheel=TimingWheel(start_ms=0),
        new_uuid=lambda: next(ids).to_bytes(16, "big"),
        max_bytes=1 << 20,
        forwarder=None,
        on_unusable=lambda name: None,
    )


def reported(telemetry: ClientTelemetry, *points: Point) -> list[Gauge | BucketCounts | None]:
    instance = telemetry.instances.subscribe(ZERO_UUID, "c", {"client_id": "a"}, 0)
    for point in points:
        telemetry.received.add(instance.client_instance_id, point)
    return list(telemetry_gauges(telemetry))


OF_THE_BROKER = ["info", "instances", "telemetry.pushes", "org.apache.kafka.telemetry.pushes", "telemetry", "..info.."]


@pytest.mark.parametrize("name", OF_THE_BROKER)
@pytest.mark.parametrize("is_counter", [False, True])
def test_no_client_has_a_name_of_the_broker(telemetry: ClientTelemetry, name: str, is_counter: bool) -> None:
    own = {each.name for each in telemetry_gauges(telemetry) if each is not None} | {"kafkapy_client_info"}
    found = [each for each in reported(telemetry, Point(name, (("spoofed", "1"),), 7, is_counter, False)) if each]
    (pushed,) = [each for each in found if ("spoofed", "1") in each.tags]
    assert pushed.name not in own
    assert pushed.name.startswith("kafkapy_client_reported_")


def test_wide_series_take_more_steps(telemetry: ClientTelemetry) -> None:
    """STEPS_AT_ONCE of them are read before the event loop runs other tasks."""
    attributes = tuple((f"a{index:02}", "v") for index in range(32))
    found = reported(telemetry, *(Point(f"m{index}", attributes, 1, False, False) for index in range(100)))
    shown = [index for index, each in enumerate(found) if each is not None and each.name.startswith("kafkapy_client_m")]
    assert len(shown) == 100
    assert shown[-1] - shown[0] >= 5 * STEPS_AT_ONCE


def of(name: str, *counts: int, **labels: str) -> Point:
    bounds = tuple(map(float, range(len(counts) - 1)))
    return Point(name, tuple(labels.items()), sum(counts), True, False, Buckets(bounds, counts, 2.5))


def test_a_histogram_is_one_of_prometheus(telemetry: ClientTelemetry) -> None:
    found = reported(telemetry, of("org.apache.kafka.request.latency", 1, 2, 3, node="1"))
    _, body = exposition([each for each in found if each is not None], "")
    families = {family.name: family for family in text_string_to_metric_families(body.decode())}
    family = families["kafkapy_client_request_latency"]
    assert family.type == "histogram"
    identity = {"client_id": "a", "node": "1"}
    shown = {(each.name, each.labels.get("le")): each.value for each in family.samples}
    prefix = family.name
    assert shown == {
        (f"{prefix}_bucket", "0.0"): 1,
        (f"{prefix}_bucket", "1.0"): 3,
        (f"{prefix}_bucket", "+Inf"): 6,
        (f"{prefix}_sum", None): 2.5,
        (f"{prefix}_count", None): 6,
    }
    assert all(identity.items() <= each.labels.items() for each in family.samples)


def test_no_label_of_a_client_is_the_bound_of_a_bucket(telemetry: ClientTelemetry) -> None:
    found = reported(telemetry, of("x", 1, 2, le="spoofed", _le_="too"))
    (histogram,) = [each for each in found if isinstance(each, BucketCounts)]
    assert histogram.tags[2:] == (("reported_le", "spoofed"),)
    _, body = exposition([histogram], "")
    lines = [line for line in body.decode().splitlines() if line.startswith("kafkapy_client_x_bucket")]
    assert [line.count(',le="') for line in lines] == [1, 1]


def test_a_histogram_of_a_name_of_the_broker_is_shown_as_reported(telemetry: ClientTelemetry) -> None:
    (found,) = [each for each in reported(telemetry, of("telemetry.pushes", 1)) if isinstance(each, BucketCounts)]
    assert found.name == "kafkapy_client_reported_telemetry_pushes"


def test_samples_of_histograms_and_gauges_never_share_a_name(telemetry: ClientTelemetry) -> None:
    found = reported(
        telemetry, of("x", 1), *(Point(name, (), 1, False, False) for name in ("x", "x.count", "x.bucket"))
    )
    names = [each.name for each in found if each is not None and each.name.startswith("kafkapy_client_x")]
    assert names == [f"kafkapy_client_{name}" for name in ("x", "x_value", "x_count_value", "x_bucket_value")]
    before = reported(telemetry, Point("y.sum", (), 1, False, False), of("y", 1))
    names = [each.name for each in before if each is not None and each.name.startswith("kafkapy_client_y")]
    assert names == ["kafkapy_client_y_sum", "kafkapy_client_y_histogram"]
