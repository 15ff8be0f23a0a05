"""The last values that clients pushed, by instance, as /metrics shows them.

Bounded: MAX_SERIES of all clients, MAX_OF_INSTANCE of one, and in the same way the characters of their labels. A
histogram counts as one series for each bucket, its sum and its count. Points without room are counted, but not kept; an
instance that is forgotten frees its room.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Final

from kafkapy.telemetry.histograms import Buckets, merged
from kafkapy.telemetry.otlp import Point
from kafkapy.types import Uuid

MAX_SERIES: Final = 10_000
"""Series of all clients together, so that /metrics is scraped within seconds."""
MAX_OF_INSTANCE: Final = 1_000
MAX_CHARACTERS: Final = 3_000_000
MAX_CHARACTERS_OF_INSTANCE: Final = 300_000
"""Characters of an instance's names and labels, each as often as /metrics shows it. A character may take 4 bytes."""

Series = tuple[str, tuple[tuple[str, str], ...], bool]
"""Name, attributes, whether it is a counter."""
Value = float | Buckets


class ReceivedMetrics:
    """The values of all instances. A delta is added to what came before."""

    def __init__(self) -> None:
        self._instances: dict[Uuid, dict[Series, Value]] = {}
        self._series: Counter[Uuid] = Counter()
        self._characters: Counter[Uuid] = Counter()
        self.series_count = 0
        self.character_count = 0
        self.dropped_count = 0
        """Points that had no room."""

    def add(self, client_instance_id: Uuid, point: Point, *, identity_characters: int = 0) -> None:
        """Keep a value; one that is infinite or not a number is left out.

        identity_characters: the length of the labels that identify the instance.
        """
        if not isfinite(point.value):
            return
        values = self._instances.setdefault(client_instance_id, {})
        series = (point.name, point.attributes, point.is_counter)
        before = values.get(series)
        value = _after(before, point)
        lines = _lines_of(value) - (0 if before is None else _lines_of(before))
        characters = identity_characters + _characters_of(series)
        if self._acquire_room(client_instance_id, lines, lines * characters):
            values[series] = value
        else:
            self.dropped_count += 1

    def _acquire_room(self, client_instance_id: Uuid, lines: int, characters: int) -> bool:
        """Return whether there is room for so many more lines of /metrics; it is taken."""
        if lines > 0 and (
            self._series[client_instance_id] + lines > MAX_OF_INSTANCE
            or self.series_count + lines > MAX_SERIES
            or self._characters[client_instance_id] + characters > MAX_CHARACTERS_OF_INSTANCE
            or self.character_count + characters > MAX_CHARACTERS
        ):
            return False
        self.series_count += lines
        self.character_count += characters
        self._series[client_instance_id] += lines
        self._characters[client_instance_id] += characters
        return True

    def forget(self, client_instance_id: Uuid) -> None:
        self._instances.pop(client_instance_id, None)
        self.series_count -= self._series.pop(client_instance_id, 0)
        self.character_count -= self._characters.pop(client_instance_id, 0)
        assert self.series_count >= 0
        assert self.character_count >= 0

    def of(self, client_instance_id: Uuid) -> Mapping[Series, Value]:
        return self._instances.get(client_instance_id, {})

    def instances(self) -> Iterator[Uuid]:
        yield from list(self._instances)


def _after(before: Value | None, point: Point) -> Value:
    """Return the value of a series after a point of it."""
    if point.buckets is not None:
        return merged(before, point.buckets) if point.is_delta and isinstance(before, Buckets) else point.buckets
    if not point.is_delta:
        return point.value
    return (0.0 if before is None or isinstance(before, Buckets) else before) + point.value


def _lines_of(value: Value) -> int:
    """Return how many lines of /metrics show a value."""
    return len(value.counts) + 2 if isinstance(value, Buckets) else 1


def _characters_of(series: Series) -> int:
    return len(series[0]) + sum(len(key) + len(value) for key, value in series[1])
