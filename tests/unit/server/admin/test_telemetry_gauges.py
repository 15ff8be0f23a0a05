"""Clients' metrics on /metrics: under names of their own, whatever a client calls them."""

from itertools import count

import pytest

from kafkapy.gauge import Gauge
from kafkapy.runtime.client_telemetry import ClientTelemetry
from kafkapy.server.admin.listener import STEPS_AT_ONCE
from kafkapy.server.admin.telemetry_gauges import telemetry_gauges
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


def told(telemetry: ClientTelemetry, *points: Point) -> list[Gauge | None]:
    instance = telemetry.instances.ask(ZERO_UUID, "c", {"client_id": "a"}, 0)
    for point in points:
        telemetry.received.note(instance.client_instance_id, point)
    return list(telemetry_gauges(telemetry))


OF_THE_BROKER = ["info", "instances", "telemetry.pushes", "org.apache.kafka.telemetry.pushes", "telemetry", "..info.."]


@pytest.mark.parametrize("name", OF_THE_BROKER)
@pytest.mark.parametrize("is_counter", [False, True])
def test_no_client_has_a_name_of_the_broker(telemetry: ClientTelemetry, name: str, is_counter: bool) -> None:
    own = {each.name for each in telemetry_gauges(telemetry) if each is not None} | {"kafkapy_client_info"}
    found = [each for each in told(telemetry, Point(name, (("spoofed", "1"),), 7, is_counter, False)) if each]
    (pushed,) = [each for each in found if ("spoofed", "1") in each.tags]
    assert pushed.name not in own
    assert pushed.name.startswith("kafkapy_client_reported_")


def test_wide_series_take_more_steps(telemetry: ClientTelemetry) -> None:
    """STEPS_AT_ONCE of them are read before the event loop runs other tasks."""
    attributes = tuple((f"a{index:02}", "v") for index in range(32))
    found = told(telemetry, *(Point(f"m{index}", attributes, 1, False, False) for index in range(100)))
    shown = [index for index, each in enumerate(found) if each is not None and each.name.startswith("kafkapy_client_m")]
    assert len(shown) == 100
    assert shown[-1] - shown[0] >= 5 * STEPS_AT_ONCE
