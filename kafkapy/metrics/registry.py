"""All counters of a node."""

from kafkapy.metrics.requests import RequestCounts
from kafkapy.metrics.traffic import BrokerTraffic


class NodeCounts:
    """Exists only on a node with an admin listener; each part counts into it where the thing happens."""

    def __init__(self) -> None:
        self.requests = RequestCounts()
        self.traffic = BrokerTraffic()
