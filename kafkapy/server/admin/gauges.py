"""Combines all metrics of a node for /metrics."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkapy.gauge import Gauge, Measured
from kafkapy.server.admin.broker_gauges import directory_gauges, replica_gauges, session_gauges
from kafkapy.server.admin.group_gauges import group_gauges
from kafkapy.server.admin.metadata_gauges import controller_gauges, followed_gauges, quorum_gauges
from kafkapy.server.admin.quota_gauges import quota_gauges
from kafkapy.server.admin.request_gauges import request_gauges
from kafkapy.server.admin.traffic_gauges import traffic_gauges
from kafkapy.storage.cleaner.metrics import cleaner_gauges

if TYPE_CHECKING:
    from kafkapy.handlers.context import Services
    from kafkapy.server.coordinators import Coordinators
    from kafkapy.server.node import Node
    from kafkapy.storage.cleaner.manager import CleanerManager

RUNNING: Final = 3
"""BrokerState of a running broker; /readyz reports a broker that starts or stops."""


def node_gauges(node: "Node") -> Iterator[Measured | None]:
    """Yield the gauges of every node; None is a step without a value."""
    if node.counts is not None:
        yield from request_gauges(node.counts.requests)
    yield from quorum_gauges(node.quorum_node.quorum, node.config.node_id)
    if node.config.is_controller:
        yield from controller_gauges(node.controller)


def broker_gauges(
    services: "Services", node: "Node", coordinators: "Coordinators", cleaner: "CleanerManager"
) -> Iterator[Measured | None]:
    """Yield a broker's gauges, one partition or group per step; None is a step without a value."""
    now_ms, log_manager = services.clock.wall_ms(), services.log_manager
    yield Gauge("kafka.server:type=KafkaServer", "BrokerState", RUNNING)
    yield from node_gauges(node)
    yield from followed_gauges(node.controller.image, now_ms)
    yield from directory_gauges(log_manager)
    yield from cleaner_gauges(cleaner, [directory.path for directory in log_manager.directories], now_ms)
    yield from session_gauges(services.fetch_sessions)
    yield from quota_gauges(services.client_quotas, services.clock.monotonic_ms())
    yield from replica_gauges(services.replica_manager)
    if services.replica_manager.traffic is not None:
        yield from traffic_gauges(services.replica_manager.traffic)
    yield from coordinator_gauges(coordinators)
    yield from group_gauges(coordinators.groups, services.replica_manager.partitions)


def coordinator_gauges(coordinators: "Coordinators") -> Iterator[Gauge]:
    late_count = coordinators.late_transactions.partition_count
    yield Gauge("kafka.server:type=ReplicaManager", "PartitionsWithLateTransactionsCount", late_count)
    for kind, coordinator in (("group", coordinators.groups), ("transaction", coordinators.transactions)):
        group = f"kafka.server:type={kind}-coordinator-metrics"
        yield Gauge(group, "partition-load-time-max", coordinator.max_load_time_ms())
