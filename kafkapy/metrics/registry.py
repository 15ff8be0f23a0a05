"""All counters of a node, made only if it has an admin listener."""

from collections.abc import Callable

from kafkapy.metrics.coordinators import CoordinatorCounts
from kafkapy.metrics.histogram import bucket_of, new_histogram
from kafkapy.metrics.idle import IdleShare
from kafkapy.metrics.operations import OperationCounts
from kafkapy.metrics.quorum import QuorumCounts
from kafkapy.metrics.rates import Rates
from kafkapy.metrics.requests import RequestCounts
from kafkapy.metrics.shares import ShareCounts
from kafkapy.metrics.traffic import BrokerTraffic
from kafkapy.metrics.verifications import VerificationCounts
from kafkapy.protocol.traffic import ConnectionTraffic, OutboundTraffic


class NodeCounts:
    """Exists only on a node with an admin listener; each part of the node counts its events here."""

    def __init__(self, started_s: float, now_ns: Callable[[], int]) -> None:
        """started_s: the current time of a monotonic clock; now_ns: another one."""
        self.started_s = started_s
        self.requests = RequestCounts()
        self.traffic = BrokerTraffic()
        self.unclean_elections = 0
        self.eligible_elections = 0
        """The number of elections of eligible leader replicas (KIP-966)."""
        self.loop_lag_us = new_histogram()
        """How late timers of the event loop run."""
        self.gc_pauses_us = new_histogram()
        self.idle = IdleShare()
        self.connections: dict[tuple[str, int], ConnectionTraffic] = {}
        """Traffic of a broker's listeners, by listener and index of the processor."""
        self.rates = Rates(started_s)
        self.operations = OperationCounts(now_ns)
        self.verifications = VerificationCounts(now_ns)
        self.quorum = QuorumCounts()
        self.shares = ShareCounts(now_ns)
        self.group_coordinator = CoordinatorCounts(now_ns)
        self.share_coordinator = CoordinatorCounts(now_ns)
        self.raft_channel = OutboundTraffic()
        """Traffic of this node's connections to the voters of the quorum."""
        self.flush_us = new_histogram()
        """How long the files of a log took to be synced."""

    def record_flush(self, took_us: int) -> None:
        self.flush_us[bucket_of(took_us)] += 1

    def count_elections(self, *, unclean: int, eligible: int) -> None:
        """Count elections; `eligible`: from the eligible leader replicas (KIP-966)."""
        self.unclean_elections += unclean
        self.eligible_elections += eligible
