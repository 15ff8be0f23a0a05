"""The last values that clients pushed, by instance: what /metrics shows of them.

Bounded: MAX_SERIES of all clients, MAX_OF_INSTANCE of one. What has no room is counted and not kept; an instance that
is forgotten frees its room.
"""

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Final

from kafkapy.telemetry.otlp import Point
from kafkapy.types import Uuid

MAX_SERIES: Final = 10_000
MAX_OF_INSTANCE: Final = 1_000

Series = tuple[str, tuple[tuple[str, str], ...], bool]
"""Name, attributes, whether it is a counter."""


class ReceivedMetrics:
    """The values of all instances. A delta is added to what came before."""

    def __init__(self) -> None:
        self._instances: dict[Uuid, dict[Series, float]] = {}
        self.series_count = 0
        self.dropped_count = 0
        """Points that had no room."""

    def note(self, client_instance_id: Uuid, point: Point) -> None:
        """Keep a value; one that is infinite or not a number is left out."""
        if not isfinite(point.value):
            return
        values = self._instances.setdefault(client_instance_id, {})
        series = (point.name, point.attributes, point.is_counter)
        before = values.get(series)
        if before is None:
            if self.series_count >= MAX_SERIES or len(values) >= MAX_OF_INSTANCE:
                self.dropped_count += 1
                return
            self.series_count += 1
            before = 0.0
        values[series] = before + point.value if point.is_delta else point.value

    def forget(self, client_instance_id: Uuid) -> None:
        self.series_count -= len(self._instances.pop(client_instance_id, ()))
        assert self.series_count >= 0

    def of(self, client_instance_id: Uuid) -> Mapping[Series, float]:
        return self._instances.get(client_instance_id, {})

    def instances(self) -> Iterator[Uuid]:
        yield from list(self._instances)
