"""The lag of consumer groups over the last hour, measured by a separate thread, whether a page is open or not.

Every 15 seconds the thread lists the groups and requests the committed offsets and partition ends of at most 100 of
them, beginning with the groups that a page showed last.
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Final

from kafkapy.console.background import Background
from kafkapy.console.brokers import ClusterError
from kafkapy.console.client import Clients
from kafkapy.console.groups import SHARE, group_list, lags_of
from kafkapy.console.samples import HOUR_S, Points

INTERVAL_S: Final = 15
"""Four points a minute show a lag that grows, for some requests to each coordinator."""
MAX_GROUPS: Final = 100
"""Each costs requests every INTERVAL_S, and 50 KB of points."""
MAX_POINTS: Final = HOUR_S // INTERVAL_S * 2
"""Including the points that pages add."""
LEFT_OUT_S: Final = 300
"""A group that could not be read is not read again before: it may be gone, or forbidden."""
STOP_S: Final = 1
"""The thread may be waiting for a broker's response; it is a daemon, which ends with the process."""


class LagSamples:
    """The points of each group; at the limit, the groups shown last are kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._points: OrderedDict[str, deque[tuple[float, float]]] = OrderedDict()
        self._topics: dict[str, Mapping[str, int | None]] = {}
        """By group, as the thread last found it; None is a lag that was not known then."""

    def record(self, group: str, lag: int, now_s: float) -> None:
        """Add a point, and mark the group as shown by a page."""
        with self._lock:
            self._add(group, lag, now_s)
            self._points.move_to_end(group)
            while len(self._points) > MAX_GROUPS:
                self._points.popitem(last=False)

    def record_unseen(self, group: str, by_topic: Mapping[str, int | None], now_s: float) -> None:
        """Add a point found by the thread, unless that needs room for another group, or a topic's lag is not known."""
        known = [lag for lag in by_topic.values() if lag is not None]
        with self._lock:
            if group in self._points or len(self._points) < MAX_GROUPS:
                self._topics[group] = by_topic
                if len(known) == len(by_topic):  # else a leader is silent, and the lag would seem to fall
                    self._add(group, sum(known), now_s)

    def topics(self) -> dict[str, int]:
        """Return the lag of each topic that a measured group reads: of all these groups together, if all are known."""
        found: dict[str, int] = {}
        unknown = set()
        with self._lock:
            for group, by_topic in self._topics.items():
                if group in self._points:
                    for topic, lag in by_topic.items():
                        if lag is None:
                            unknown.add(topic)
                        else:
                            found[topic] = found.get(topic, 0) + lag
        return {topic: lag for topic, lag in found.items() if topic not in unknown}

    def of(self, group: str) -> Points:
        with self._lock:
            return list(self._points.get(group, ()))

    def all(self) -> dict[str, Points]:
        with self._lock:
            return {group: list(points) for group, points in self._points.items()}

    def names(self) -> list[str]:
        """Return the groups, those shown last first."""
        with self._lock:
            return list(reversed(self._points))

    def drop_old(self, now_s: float) -> None:
        """Forget what is older than an hour, and groups without a younger point."""
        with self._lock:
            for group in list(self._points):
                points = self._points[group]
                while points and points[0][0] < now_s - HOUR_S:
                    points.popleft()
                if not points:
                    del self._points[group]
            self._topics = {group: each for group, each in self._topics.items() if group in self._points}

    def _add(self, group: str, lag: int, now_s: float) -> None:
        points = self._points.setdefault(group, deque(maxlen=MAX_POINTS))
        if not points or now_s - points[-1][0] >= 1:
            points.append((now_s, float(lag)))


class LagWatch:
    """Measures the lag, while started.

    A group that gave an error (it is of another kind, or there is no right to it) is left out for five minutes.
    """

    def __init__(self, clients: Clients, lags: LagSamples) -> None:
        self._clients = clients
        self._lags = lags
        self._left_out_until_s: dict[str, float] = {}
        self._background = Background("console-lags", self.measure, INTERVAL_S, begins_at_once=True)

    def start(self) -> None:
        self._background.start()

    def stop(self) -> None:
        self._background.stop(STOP_S)

    def measure(self) -> None:
        """Measure the lag of each group once. A group with an error, or whose lag is not known, gets no point."""
        for name in self._wanted():
            if self._background.is_stopping:
                return
            try:
                self._lags.record_unseen(name, lags_of(self._clients, name), time.time())
            except ClusterError:
                self._left_out_until_s[name] = time.monotonic() + LEFT_OUT_S
        self._lags.drop_old(time.time())

    def _wanted(self) -> list[str]:
        """Return the groups to ask for, those that a page showed last first."""
        try:
            found, _ = group_list(self._clients)  # without the groups of brokers that did not answer
        except ClusterError:
            return []
        known = dict.fromkeys(each.name for each in found if each.type != SHARE)  # which commits no offsets
        now_s = time.monotonic()
        self._left_out_until_s = {name: until_s for name, until_s in self._left_out_until_s.items() if until_s > now_s}
        shown = [name for name in self._lags.names() if name in known]
        wanted = dict.fromkeys([*shown, *known])
        return [name for name in wanted if name not in self._left_out_until_s][:MAX_GROUPS]
