"""An hour of values from the brokers' /metrics, in memory.

Series are summed over their labels: one per metric name. Counters are kept as they are; a chart shows their rate.
Metrics of clients are not summed: the last ones are kept by client.
"""

import http.client
import itertools
import re
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from kafkapy.console.background import Background
from kafkapy.console.client_metrics import Client, clients_of, is_of_clients

Points: TypeAlias = list[tuple[float, float]]
"""(seconds since the epoch, value), rising."""

HOUR_S: Final = 3600
INTERVAL_S: Final = 5
"""720 points an hour for each chart; a scrape costs a broker some milliseconds."""
MAX_POINTS: Final = HOUR_S // INTERVAL_S
MAX_NAMES: Final = 400
"""720 points of some 100 bytes each: 30 MB at most."""
MAX_METRICS_BYTES: Final = 32 << 20
"""The size of a scrape, which is held in memory; that of a broker with ten thousand partitions is smaller."""
TIMEOUT_S: Final = 4
"""Less than INTERVAL_S, so that a broker that does not answer delays only one round."""
PRODUCE_P99: Final = "produce 99th percentile"
"""An own series: the slowest broker's 99th percentile of a Produce, in ms."""
_PRODUCE_P99: Final = re.compile(
    r'\w*requestmetrics_totaltimems\{(?=.*request="Produce")(?=.*quantile="0\.99").*\} (\S+)'
)
COUNTER_ENDINGS: Final = ("_total", "_count", "_sum")
_LINE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)(?: \d+)?")


class MetricSamples:
    """Scrapes /metrics of the brokers in a thread of its own, while started."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.urls = tuple(urls)
        self.problems: tuple[str, ...] = ()
        self.clients: Mapping[str, Client] = {}
        """The metrics that clients have pushed, by instance id, as of the last scrape."""
        self._lock = threading.Lock()
        self._points: dict[str, deque[tuple[float, float]]] = {}
        self._background = Background("console-metrics", self.scrape, INTERVAL_S, begins_at_once=True)

    def start(self) -> None:
        if self.urls:
            self._background.start()

    def stop(self) -> None:
        self._background.stop(TIMEOUT_S + 1)

    def names(self) -> list[str]:
        """Return the names of the metrics."""
        with self._lock:
            return sorted(name for name in self._points if name != PRODUCE_P99)

    def of(self, name: str) -> Points:
        """Return a series; of a counter, its rate per second."""
        with self._lock:
            points = list(self._points.get(name, ()))
        return rate(points) if name.endswith(COUNTER_ENDINGS) else points

    def add(self, texts: Iterable[str], now_s: float) -> None:
        """Add the values of one scrape."""
        texts = list(texts)
        self.clients = clients_of(texts)
        sums: dict[str, float] = {}
        for text in texts:
            for name, value in sums_of(text).items():
                sums[name] = sums.get(name, 0.0) + value
        slowest = [value for text in texts for value in produce_p99_of(text)]
        if slowest:
            sums[PRODUCE_P99] = max(slowest)
        with self._lock:
            for name, value in sums.items():
                if name in self._points or len(self._points) < MAX_NAMES:
                    self._points.setdefault(name, deque(maxlen=MAX_POINTS)).append((now_s, value))

    def scrape(self) -> None:
        """Scrape all brokers once; `problems` has those that did not answer."""
        texts, problems = [], []
        for url in self.urls:
            try:
                texts.append(_get(url))
            except (OSError, ValueError, http.client.HTTPException) as error:
                problems.append(f"{url}: {str(error)[:200] or type(error).__name__}")
        self.problems = tuple(problems)
        self.add(texts, time.time())


def rate(points: Points) -> Points:
    """Return the rise per second between points; a counter that fell has started again."""
    return [
        (after_s, max(0.0, after - before) / (after_s - before_s))
        for (before_s, before), (after_s, after) in itertools.pairwise(points)
        if after_s > before_s
    ]


def produce_p99_of(text: str) -> list[float]:
    """Return the 99th percentile of the time of a Produce, in ms; empty if the broker has served none."""
    found = [_PRODUCE_P99.fullmatch(line) for line in text.split("\n") if 'quantile="0.99"' in line]
    values = [float(each[1]) for each in found if each is not None and each[1].replace(".", "", 1).isdecimal()]
    return values[:1]


def sums_of(text: str) -> Mapping[str, float]:
    """Return the sum of each metric's samples; without quantiles, buckets and values that are not finite.

    A sample without labels beside others is their total already: that of the broker beside those of its topics.
    """
    sums: dict[str, float] = {}
    totals: dict[str, float] = {}
    for line in text.split("\n"):  # splitlines would split at characters that a label may have, too
        if line.startswith("#") or is_of_clients(line):
            continue
        found = _LINE.fullmatch(line)
        if found is None or found[1].endswith("_bucket") or "quantile=" in (found[2] or ""):
            continue
        try:
            value = float(found[3])
        except ValueError:
            continue
        if value - value == 0:  # neither infinite nor NaN
            sums[found[1]] = sums.get(found[1], 0.0) + value
            if not found[2]:
                totals[found[1]] = value
    return sums | totals


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
        return str(response.read(MAX_METRICS_BYTES).decode("utf-8", "replace"))
