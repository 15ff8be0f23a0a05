"""Quantiles over the last minutes, of histograms that only ever grow.

Earlier states of each histogram are kept, at most one per MIN_AGE_S; the difference to the oldest one that is not older
than WINDOW_S is what was counted since. If a node is scraped less often, the window reaches back to the last scrape.
While nothing new is counted, the last quantiles stay, as in Apache Kafka.
"""

from collections import deque
from collections.abc import Hashable, Sequence
from operator import add, sub
from typing import Final

from kafkapy.gauge import Distribution
from kafkapy.metrics.histogram import LAST_BUCKET, quantiles

WINDOW_S: Final = 300.0
"""The time that Apache Kafka's decaying histograms, the source of its quantiles, cover."""
MIN_AGE_S: Final = 30.0
"""So a window has ten states, however often it is scraped."""
QUANTILES: Final = (0.50, 0.75, 0.95, 0.98, 0.99, 0.999)

State = tuple[float, tuple[int, ...]]


class _Window:
    """Earlier states of one histogram, and the quantiles found last."""

    __slots__ = ("last", "states")

    def __init__(self) -> None:
        self.states: deque[State] = deque()
        self.last = [0.0] * len(QUANTILES)

    def quantiles(self, counts: tuple[int, ...], now_s: float) -> list[float]:
        states = self.states
        while len(states) > 1 and states[1][0] <= now_s - WINDOW_S:
            states.popleft()
        recent: Sequence[int] = counts if not states else list(map(sub, counts, states[0][1]))
        if any(recent):
            self.last = quantiles(recent, QUANTILES)
        if not states or now_s - states[-1][0] >= MIN_AGE_S:
            states.append((now_s, counts))
        return self.last


class Windows:
    """The windows of all distributions of a node. Used by one thread at a time."""

    def __init__(self) -> None:
        self._windows: dict[Hashable, _Window] = {}

    def read(self, distribution: Distribution, now_s: float) -> tuple[int, list[float]]:
        """Return the count of all values ever, and the quantiles of the recent ones."""
        recent = distribution.recent
        if recent is not None:
            return recent.count, [round(value * distribution.unit, 6) for value in recent.quantiles(QUANTILES)]
        counts = _sum(distribution)
        key = (distribution.group, distribution.name, distribution.tags)
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window()
        found = window.quantiles(counts, now_s)
        return sum(counts), [round(value * distribution.unit, 6) for value in found]


def _sum(distribution: Distribution) -> tuple[int, ...]:
    counts = [0] * (LAST_BUCKET + 1)
    for histogram in distribution.histograms:
        counts = list(map(add, counts, histogram))
    counts[0] += distribution.zeros
    return tuple(counts)
