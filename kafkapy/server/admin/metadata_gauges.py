"""Gauges of the metadata and its quorum: of the active controller, and of every node that follows."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkapy.gauge import Distribution, Gauge, Measured
from kafkapy.metadata.registrations import NO_LEADER

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.metadata.image import MetadataImage, TopicImage
    from kafkapy.metadata.registrations import BrokerRegistration
    from kafkapy.metrics.operations import OperationCounts
    from kafkapy.metrics.registry import NodeCounts
    from kafkapy.runtime.controller.controller import MetadataRuntime
    from kafkapy.runtime.quorum.quorum import Quorum

CONTROLLER: Final = "kafka.controller:type=KafkaController"
FOLLOWED: Final = "kafka.server:type=broker-metadata-metrics"
EVENTS: Final = "kafka.controller:type=ControllerEventManager"
LISTENER: Final = "kafka.server:type=BrokerMetadataListener"
EMITTER: Final = "kafka.server:type=SnapshotEmitter"
MILLISECONDS: Final = 0.001
"""Per unit of the histograms, which count microseconds."""
LOADER: Final = "kafka.server:type=MetadataLoader"
FENCED: Final = 10
CONTROLLED_SHUTDOWN: Final = 20
ACTIVE: Final = 30
"""Values of BrokerRegistrationState."""
RAFT: Final = "kafka.server:type=raft-metrics"


def quorum_gauges(quorum: "Quorum", node_id: int, counts: "NodeCounts | None") -> Iterator[Gauge]:
    """Yield the quorum gauges, known to voters and observers alike."""
    yield Gauge(RAFT, "current-vote", quorum.voted_id)
    yield Gauge(RAFT, "log-end-epoch", quorum.log_end_epoch)
    yield Gauge(RAFT, "number-unknown-voter-connections", 0)
    yield Gauge(RAFT, "uncommitted-voter-change", int(quorum.has_pending_voter_change))
    if counts is not None:
        yield from _raft_rates(quorum, counts)
    yield Gauge(RAFT, "current-leader", quorum.leader_id)
    yield Gauge(RAFT, "current-epoch", quorum.leader_epoch)
    yield Gauge(RAFT, "high-watermark", quorum.high_watermark)
    yield Gauge(RAFT, "log-end-offset", quorum.log_end_offset)
    yield Gauge(RAFT, "number-of-voters", len(quorum.voters.ids))
    description = quorum.describe()
    yield Gauge(RAFT, "number-of-observers", len(description.observers) if description is not None else 0)
    if quorum.is_leader:
        state = "leader"
    else:
        state = "follower" if node_id in quorum.voters.ids else "observer"
    yield Gauge(RAFT, "current-state", 1, (("current_state", state),))


def ignored_voters_gauges(quorum: "Quorum", config: "BrokerConfig") -> Iterator[Gauge]:
    """Yield whether controller.quorum.voters is set although the log has voters, which count (kraft.version 1)."""
    is_ignored = int(bool(config.quorum_voters) and quorum.finalized_kraft_version > 0)
    if config.is_broker:
        yield Gauge(FOLLOWED, "ignored-static-voters", is_ignored)
    if config.is_controller:
        yield Gauge(CONTROLLER, "IgnoredStaticVoters", is_ignored)


def _raft_rates(quorum: "Quorum", counts: "NodeCounts") -> Iterator[Gauge]:
    """Yield how many records a second a leader appends and a follower fetches, and how idle their loop is."""
    rate = counts.rates.per_second(RAFT, quorum.log_end_offset, time.monotonic(), is_from_zero=False)
    yield Gauge(RAFT, "append-records-rate", rate if quorum.is_leader else 0.0)
    yield Gauge(RAFT, "fetch-records-rate", 0.0 if quorum.is_leader else rate)
    yield Gauge(RAFT, "poll-idle-ratio-avg", counts.idle.share)
    now_ms = round(time.monotonic() * 1000)
    for name, recent in (("commit-latency", counts.quorum.commit_ms), ("election-latency", counts.quorum.election_ms)):
        for kind, value in zip(("avg", "max"), recent.read(now_ms), strict=True):
            yield Gauge(RAFT, f"{name}-{kind}", value)
    yield Gauge(LOADER, "AvgIdleRatio", counts.idle.share)


def controller_gauges(controller: "MetadataRuntime", now_ms: int) -> Iterator[Gauge | None]:
    """Yield a controller's gauges, with None after each counted topic; counts are 0 if it is not active.

    now_ms: wall clock.
    """
    image, is_active = controller.image, controller.is_active
    brokers = image.cluster.brokers.values() if is_active else ()
    counts = _Counts()
    for topic in list(image.topics.by_name.values()) if is_active else ():
        counts.add(topic)
        yield None
    # all at once, after the topics were counted in steps: the values are of one moment
    for name, value in (
        ("ActiveControllerCount", int(is_active)),
        ("ActiveBrokerCount", sum(not broker.fenced for broker in brokers)),
        ("FencedBrokerCount", sum(broker.fenced for broker in brokers)),
        ("GlobalTopicCount", counts.topics),
        ("GlobalPartitionCount", counts.partitions),
        ("OfflinePartitionsCount", counts.offline),
        ("PreferredReplicaImbalanceCount", counts.imbalanced),
        ("LastAppliedRecordOffset", image.provenance.last_offset),
        ("LastAppliedRecordTimestamp", image.provenance.timestamp_ms),
        ("LastCommittedRecordOffset", controller.committed_offset),
        ("LastAppliedRecordLagMs", max(now_ms - image.provenance.timestamp_ms, 0)),
        ("ControlledShutdownBrokerCount", sum(broker.in_controlled_shutdown for broker in brokers)),
        ("NewActiveControllersCount", controller.term_count),
        ("MetadataErrorCount", 0),
    ):
        yield Gauge(CONTROLLER, name, value)
    for broker_id, broker in image.cluster.brokers.items() if is_active else ():
        tags = (("broker", str(broker_id)),)
        yield Gauge(CONTROLLER, "BrokerRegistrationState", _state_of(broker), tags)
    for broker_id, age_ms in controller.heartbeat_ages_ms().items():
        yield Gauge(CONTROLLER, "TimeSinceLastHeartbeatReceivedMs", age_ms, (("broker", str(broker_id)),))


def operation_gauges(counts: "OperationCounts") -> Iterator[Measured]:
    """Yield the values of a controller: decisions and applied metadata.

    A heartbeat has no time-out here: it never times out in the queue.
    """
    for name, histogram in (
        ("EventQueueTimeMs", counts.queue_us),
        ("EventQueueProcessingTimeMs", counts.processing_us),
    ):
        yield Distribution(EVENTS, name, (), [histogram.copy()], unit=MILLISECONDS)
    yield Gauge(CONTROLLER, "EventQueueOperationsStartedCount", counts.started)
    yield Gauge(CONTROLLER, "EventQueueOperationsTimedOutCount", counts.timed_out)
    yield Gauge(CONTROLLER, "TimedOutBrokerHeartbeatCount", 0)


def batch_gauges(counts: "OperationCounts") -> Iterator[Distribution]:
    """Yield the batches of metadata records that a broker has loaded."""
    yield Distribution(LISTENER, "MetadataBatchProcessingTimeUs", (), [counts.batch_us.copy()])
    yield Distribution(LISTENER, "MetadataBatchSizes", (), [counts.batch_records.copy()])


def snapshot_gauges(controller: "MetadataRuntime", quorum: "Quorum") -> Iterator[Gauge]:
    """Yield the snapshots of the metadata that every node loads and takes."""
    yield Gauge(LOADER, "HandleLoadSnapshotCount", controller.snapshot_count)
    yield Gauge(EMITTER, "LatestSnapshotGeneratedBytes", quorum.snapshots.latest_bytes)
    yield Gauge(EMITTER, "LatestSnapshotGeneratedAgeMs", quorum.snapshots.latest_age_ms)


def _state_of(broker: "BrokerRegistration") -> int:
    if broker.fenced:
        return FENCED
    return CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else ACTIVE


def election_gauges(counts: "NodeCounts") -> Iterator[Gauge]:
    """Yield the elections that this controller has seen in the metadata."""
    for name, count in (
        ("UncleanLeaderElectionsPerSec", counts.unclean_elections),
        ("ElectionFromEligibleLeaderReplicasPerSec", counts.eligible_elections),
    ):
        yield Gauge("kafka.controller:type=ControllerStats", name, count, is_counter=True)


def loader_gauges(image: "MetadataImage", quorum: "Quorum") -> Iterator[Gauge]:
    """Yield the values of every node: the metadata that it has loaded."""
    yield Gauge(LOADER, "CurrentControllerId", quorum.leader_id)
    yield Gauge(LOADER, "CurrentMetadataVersion", image.features.metadata_version or 0)
    levels = {**image.features.levels, "kraft.version": quorum.finalized_kraft_version}
    for name, level in levels.items():
        feature = "".join(part.capitalize() if at else part for at, part in enumerate(name.split(".")))
        yield Gauge(LOADER, "FinalizedLevel", level, (("featureName", feature),))


class _Counts:
    """Counts over all topics."""

    def __init__(self) -> None:
        self.topics = self.partitions = self.offline = self.imbalanced = 0

    def add(self, topic: "TopicImage") -> None:
        self.topics += 1
        for partition in topic.partitions.values():
            self.partitions += 1
            self.offline += partition.leader == NO_LEADER
            self.imbalanced += partition.leader != partition.replicas[0]


def applied_metadata_gauges(image: "MetadataImage", now_ms: int) -> Iterator[Gauge]:
    """Yield how far a broker has applied the metadata; now_ms: wall clock."""
    provenance = image.provenance
    yield Gauge(FOLLOWED, "last-applied-record-offset", provenance.last_offset)
    yield Gauge(FOLLOWED, "last-applied-record-timestamp", provenance.timestamp_ms)
    yield Gauge(FOLLOWED, "last-applied-record-lag-ms", max(now_ms - provenance.timestamp_ms, 0))
    for name in ("metadata-load-error-count", "metadata-apply-error-count"):
        yield Gauge(FOLLOWED, name, 0)
