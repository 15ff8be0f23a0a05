"""The last values that clients pushed, by instance, as /metrics shows them.

Bounded: MAX_SERIES of all clients, MAX_OF_INSTANCE of one, and in the same way the characters of their labels. Points
without room are counted, but not kept; an instance that is forgotten frees its room.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Final

from kafkapy.telemetry.otlp import Point
from kafkapy.types import Uuid

MAX_SERIES: Final = 10_000
MAX_OF_INSTANCE: Final = 1_000
MAX_CHARACTERS: Final = 3_000_000
MAX_CHARACTERS_OF_INSTANCE: Final = 300_000
"""Of names and labels, each as often as /metrics shows it. A character may take 4 bytes, and a scrape some copies."""

Series = tuple[str, tuple[tuple[str, str], ...], bool]
"""Name, attributes, whether it is a counter."""


class ReceivedMetrics:
    """The values of all instances. A delta is added to what came before."""

    def __init__(self) -> None:
        self._instances: dict[Uuid, dict[Series, float]] = {}
        self._characters: Counter[Uuid] = Counter()
        self.series_count = 0
        self.character_count = 0
        self.dropped_count = 0
        """Points that had no room."""

    def note(self, client_instance_id: Uuid, point: Point, *, identity_characters: int = 0) -> None:
        """Keep a value; one that is infinite or not a number is left out.

        identity_characters: the length of the labels that identify the instance.
        """
        if not isfinite(point.value):
            return
        values = self._instances.setdefault(client_instance_id, {})
        series = (point.name, point.attributes, point.is_counter)
        before = values.get(series)
        if before is None:
            if len(values) >= MAX_OF_INSTANCE or not self._take_room(
                client_instance_id, identity_characters + _characters_of(series)
            ):
                self.dropped_count += 1
                return
            before = 0.0
        values[series] = before + point.value if point.is_delta else point.value

    def _take_room(self, client_instance_id: Uuid, characters: int) -> bool:
        """Return whether there is room for one more series; it is taken."""
        of_instance = self._characters[client_instance_id] + characters
        if (
            self.series_count >= MAX_SERIES
            or of_instance > MAX_CHARACTERS_OF_INSTANCE
            or self.character_count + characters > MAX_CHARACTERS
        ):
            return False
        self.series_count += 1
        self.character_count += characters
        self._characters[client_instance_id] = of_instance
        return True

    def forget(self, client_instance_id: Uuid) -> None:
        self.series_count -= len(self._instances.pop(client_instance_id, ()))
        self.character_count -= self._characters.pop(client_instance_id, 0)
        assert self.series_count >= 0
        assert self.character_count >= 0

    def of(self, client_instance_id: Uuid) -> Mapping[Series, float]:
        return self._instances.get(client_instance_id, {})

    def instances(self) -> Iterator[Uuid]:
        yield from list(self._instances)


def _characters_of(series: Series) -> int:
    return len(series[0]) + sum(len(key) + len(value) for key, value in series[1])
