"""The overview's charts that need no /metrics: records in, lag of all groups, under-replicated partitions.

A thread of its own looks every 15 seconds, for at most an hour of points. Records are counted by the partitions' ends.
"""

import time
from collections import deque
from collections.abc import Mapping
from typing import Final

from kafkapy.console import topics
from kafkapy.console.background import Background
from kafkapy.console.brokers import Brokers, ClusterError
from kafkapy.console.lags import LagSamples
from kafkapy.console.samples import HOUR_S, Points
from kafkapy.console.topic_list import TopicLists

INTERVAL_S: Final = 15
MAX_COUNTED_PARTITIONS: Final = 2000
"""In clusters with more partitions, end offsets are not requested every 15 seconds."""
STOP_S: Final = 1
RECORDS: Final = "records"
LAG: Final = "lag"
UNDER_REPLICATED: Final = "under-replicated"


class History:
    """An hour of what the whole cluster does. Used by any thread."""

    def __init__(self, brokers: Brokers, topic_lists: TopicLists, lags: LagSamples) -> None:
        self._brokers = brokers
        self._topic_lists = topic_lists
        self._lags = lags
        self._points: Mapping[str, deque[tuple[float, float]]] = {
            name: deque(maxlen=HOUR_S // INTERVAL_S) for name in (RECORDS, LAG, UNDER_REPLICATED)
        }
        self._background = Background("console-history", self.look, INTERVAL_S, begins_at_once=True)

    def start(self) -> None:
        self._background.start()

    def stop(self) -> None:
        self._background.stop(STOP_S)

    def of(self, name: str) -> Points:
        return list(self._points[name])

    def look(self) -> None:
        """Add a point of each series; none while no broker answers."""
        try:
            listed = self._topic_lists.current()
            self._add(UNDER_REPLICATED, listed.under_replicated)
            if 0 < listed.partition_count <= MAX_COUNTED_PARTITIONS:
                ends = topics.offsets(self._brokers, self._brokers.metadata(listed.names), topics.LATEST)
                if len(ends) == listed.partition_count:  # else some leader did not answer: the sum would fall
                    self._add(RECORDS, sum(ends.values()))
        except ClusterError:
            return
        if lags := [points[-1][1] for points in self._lags.all().values() if points]:
            self._add(LAG, sum(lags))

    def _add(self, name: str, value: float) -> None:
        self._points[name].append((time.time(), float(value)))
