"""Combines all metrics of a node for /metrics."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkapy.dataclass import dataclass
from kafkapy.gauge import Distribution, Gauge, Measured
from kafkapy.server.admin.broker_gauges import directory_gauges, log_gauges, replica_gauges, session_gauges
from kafkapy.server.admin.broker_state import BrokerState, state_gauges
from kafkapy.server.admin.coordinator_gauges import runtime_gauges
from kafkapy.server.admin.group_gauges import event_gauges, group_gauges
from kafkapy.server.admin.metadata_gauges import (
    MILLISECONDS,
    applied_metadata_gauges,
    batch_gauges,
    controller_gauges,
    election_gauges,
    ignored_voters_gauges,
    loader_gauges,
    operation_gauges,
    quorum_gauges,
    snapshot_gauges,
)
from kafkapy.server.admin.network_gauges import idle_gauges, network_gauges, raft_channel_gauges
from kafkapy.server.admin.own_gauges import loop_gauges, work_gauges
from kafkapy.server.admin.quota_gauges import quota_gauges
from kafkapy.server.admin.replication_gauges import assignment_gauges, expiry_gauges, move_gauges, replication_gauges
from kafkapy.server.admin.request_gauges import request_gauges
from kafkapy.server.admin.share_gauges import rebalance_gauges, share_coordinator_gauges, share_gauges
from kafkapy.server.admin.telemetry_gauges import telemetry_gauges
from kafkapy.server.admin.topic_gauges import exporter_gauges
from kafkapy.server.admin.traffic_gauges import traffic_gauges
from kafkapy.server.admin.transaction_gauges import verification_gauges
from kafkapy.storage.cleaner.metrics import cleaner_gauges

if TYPE_CHECKING:
    from kafkapy.handlers.context import Services
    from kafkapy.reactor.reactor import Reactor
    from kafkapy.server.coordinators import Coordinators
    from kafkapy.server.node import Node
    from kafkapy.server.replication import Replication
    from kafkapy.storage.cleaner.manager import CleanerManager

FLUSHES: Final = "kafka.log:type=LogFlushStats"


@dataclass(slots=True)
class BrokerParts:
    """The parts of a broker that have gauges."""

    state: BrokerState
    services: "Services"
    node: "Node"
    coordinators: "Coordinators"
    cleaner: "CleanerManager"
    replication: "Replication"
    reactor: "Reactor"


def node_gauges(node: "Node") -> Iterator[Measured | None]:
    """Yield the gauges of every node; None is a step without a value."""
    counts, controller, config = node.counts, node.controller, node.config
    if counts is not None:
        yield from idle_gauges(counts.idle, is_broker=config.is_broker, is_controller=config.is_controller)
        yield from loop_gauges(counts, node.io_pool)
        yield from request_gauges(counts.requests, counts.traffic)
        yield from raft_channel_gauges(counts.raft_channel, counts.idle, counts.rates)
        yield Distribution(FLUSHES, "LogFlushRateAndTimeMs", (), [counts.flush_us.copy()], unit=MILLISECONDS)
    yield from quorum_gauges(node.quorum_node.quorum, config.node_id, counts)
    yield from ignored_voters_gauges(node.quorum_node.quorum, config)
    yield from log_gauges(node.quorum_node.quorum.log)
    yield from loader_gauges(controller.image, node.quorum_node.quorum)
    yield from snapshot_gauges(controller, node.quorum_node.quorum)
    if config.is_controller:
        yield from controller_gauges(controller, node.clock.wall_ms())
        if counts is not None:
            yield from election_gauges(counts)
            yield from operation_gauges(counts.operations)
            yield Gauge("kafka.controller:type=ControllerEventManager", "AvgIdleRatio", counts.idle.share)


def broker_gauges(parts: BrokerParts) -> Iterator[Measured | None]:
    """Yield a broker's gauges, one partition or group per step; None is a step without a value."""
    services, node, manager = parts.services, parts.node, parts.services.replica_manager
    now_ms, log_manager, image = services.clock.wall_ms(), services.log_manager, node.controller.image
    yield from state_gauges(parts.state)
    yield from node_gauges(node)
    yield from applied_metadata_gauges(image, now_ms)
    yield from directory_gauges(log_manager)
    directories = [directory.path for directory in log_manager.directories]
    yield from cleaner_gauges(parts.cleaner, directories, now_ms)
    yield from session_gauges(services.fetch_sessions)
    yield from quota_gauges(services.client_quotas, services.clock.monotonic_ms())
    yield from work_gauges(services)
    # A node without kafkapy.admin.listener counts nothing: what follows is there only if something reads it.
    if node.counts is not None:
        yield from network_gauges(parts.reactor, node.counts.idle, node.counts.rates)
        yield from traffic_gauges(node.counts.traffic)
        yield from batch_gauges(node.counts.operations)
        yield from verification_gauges(node.counts.verifications)
        yield from replication_gauges(parts.replication, node.counts.started_s)
        yield from share_gauges(node.counts.shares, parts.coordinators.share_reads.made)
        yield from share_coordinator_gauges(parts.coordinators.share.made, node.counts.shares, node.counts.rates)
        yield from rebalance_gauges(node.counts.shares, node.counts.rates)
        yield from event_gauges(parts.coordinators.groups.settings.counts, node.counts.rates)
        yield from runtime_gauges(node.counts)
    yield from move_gauges(log_manager)
    yield from assignment_gauges(services.log_dir_mover)
    yield from telemetry_gauges(services.telemetry)
    yield from expiry_gauges(manager)
    yield from replica_gauges(manager)
    yield from exporter_gauges(manager, image)
    yield from coordinator_gauges(parts.coordinators)
    yield from group_gauges(parts.coordinators.groups, manager.partitions)


def coordinator_gauges(coordinators: "Coordinators") -> Iterator[Gauge]:
    late_count = coordinators.late_transactions.partition_count
    yield Gauge("kafka.server:type=ReplicaManager", "PartitionsWithLateTransactionsCount", late_count)
    for kind, coordinator in (("group", coordinators.groups), ("transaction", coordinators.transactions)):
        group = f"kafka.server:type={kind}-coordinator-metrics"
        yield Gauge(group, "partition-load-time-avg", coordinator.average_load_time_ms())
        yield Gauge(group, "partition-load-time-max", coordinator.max_load_time_ms())
    for state, count in coordinators.groups.count_by_state().items():
        yield Gauge("kafka.server:type=group-coordinator-metrics", "num-partitions", count, (("state", state),))
