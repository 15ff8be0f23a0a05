"""Partition changes when a broker is fenced, unfenced, shut down or loses a directory, or a leader changes its ISR.

Decisions here do not change the tables. A state change of a broker scans all partitions of the cluster (0.1 us each),
in steps. So replay does not have to maintain an index of partitions by broker. The records of each step are appended
and replayed before the next one; Apache Kafka decides all at once and splits the records into batches.
Sources: KIP-631, KIP-497 (AlterPartition), KIP-841, KIP-858 (directories), KIP-966 (ELR).
"""

from collections.abc import Callable, Collection, Generator, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kafkapy.machine import Decision, Steps
from kafkapy.metadata.brokers import FENCE, UNFENCE, BrokerControl, change_record, online_directories
from kafkapy.metadata.configs import ConfigControl
from kafkapy.metadata.elections import Election, ElectionRules, PartitionChange
from kafkapy.metadata.features import MV_4_3_IV0, FeatureControl
from kafkapy.metadata.limits import check_operation_size
from kafkapy.metadata.registrations import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    RECOVERED,
    RECOVERING,
    BrokerRegistration,
    PartitionRegistration,
)
from kafkapy.metadata.topics import Topic, TopicControl
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.types import Uuid

if TYPE_CHECKING:
    from kafkapy.protocol.messages import (
        alter_partition_request,
        alter_partition_response,
    )
    from kafkapy.protocol.messages import assign_replicas_to_dirs_request as assign_request
    from kafkapy.protocol.messages import assign_replicas_to_dirs_response as assign_response

NOBODY: Final = -1

PARTITIONS_PER_STEP: Final = 500
"""The number of partitions scanned per step, between which other work may run."""
RECORDS_PER_STEP: Final = 50
"""A record takes about 15 us to decide, encode and replay."""

PartitionFilter = Callable[[PartitionRegistration], bool]
RecordSteps: TypeAlias = Generator[list[Any], None, None]
"""Yields the records of each step; they are replayed before the next step begins."""


class PartitionControl:
    """Elections and ISR changes over the tables of topics and brokers."""

    def __init__(
        self, features: FeatureControl, brokers: BrokerControl, configs: ConfigControl, topics: TopicControl
    ) -> None:
        self._features = features
        self._brokers = brokers
        self._configs = configs
        self._topics = topics

    # -- broker state changes -------------------------------------------------------------------------------------

    def fence(self, broker_id: int) -> RecordSteps:
        """Move leaderships away from a broker and fence it."""
        yield from self._remove(broker_id)
        yield [change_record(self._brokers.brokers[broker_id], fenced=FENCE)]

    def unfence(self, broker_id: int) -> Generator[list[Any], None, list[Any]]:
        """Return the records that unfence a broker and elect it for partitions that have no leader, to be one batch.

        If the controller stopped between them, the next one would find the broker unfenced, and not elect it.
        """
        records: list[Any] = [change_record(self._brokers.brokers[broker_id], fenced=UNFENCE)]
        for found in self._update(lambda partition: partition.leader == NO_LEADER, added=broker_id):
            records += found
            yield []
        return records

    def elect_missing_leaders(self) -> RecordSteps:
        """Elect leaders, never uncleanly, for partitions that have none although an eligible broker is active."""
        records: list[Any] = []
        visited_count = 0
        for topic, partition_id, partition in self._partitions():
            visited_count += 1
            if visited_count >= PARTITIONS_PER_STEP or len(records) >= RECORDS_PER_STEP:
                yield records
                records, visited_count = [], 0
            if partition.leader != NO_LEADER:
                continue
            if not any(map(self._brokers.is_active, partition.isr or partition.elr)):
                continue
            record = self.begin_change(topic, partition_id).build()
            if record is not None and record.leader >= 0:
                records.append(record)
        yield records

    def begin_controlled_shutdown(self, broker_id: int) -> RecordSteps:
        """Mark a broker as shutting down, and move leaderships away from it."""
        broker = self._brokers.brokers[broker_id]
        if not broker.in_controlled_shutdown:
            yield [change_record(broker, in_controlled_shutdown=1)]
        yield from self._remove(broker_id)
        for _ in self._topics.index():  # its next heartbeats need the number of its leaderships
            yield []

    def restart(self, broker_id: int, *, is_clean: bool) -> RecordSteps:
        """Remove a broker's previous incarnation from ISRs; after an unclean shutdown also from ELRs."""
        if not self._features.is_elr_enabled or is_clean:
            yield from self._remove(broker_id)
        else:
            yield from self._update(
                lambda partition: broker_id in partition.isr or broker_id in partition.elr, unclean=broker_id
            )

    def unregister(self, broker_id: int) -> Steps[Any, None]:
        """Remove a broker from the ISRs and unregister it. Raises ApiError POLICY_VIOLATION if it is in too many."""
        from kafkapy.protocol.messages.unregister_broker_record import UnregisterBrokerRecord

        records: list[Any] = []
        for found in self._update(
            lambda partition: broker_id in partition.isr or broker_id in partition.elr, removed=broker_id
        ):
            records += found
            check_operation_size(len(records) + 1)
            yield []
        broker = self._brokers.brokers[broker_id]
        records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch))
        return Decision(None, records)

    def change_directories(self, broker_id: int, offline: Collection[Uuid], cordoned: list[Uuid] | None) -> RecordSteps:
        """Record a broker's offline and cordoned log directories, as reported by its heartbeat."""
        broker = self._brokers.brokers[broker_id]
        lost = [directory for directory in broker.directories if directory in offline]
        if lost:
            yield from self._update(
                lambda partition: broker_id in partition.replicas and partition.directory_of(broker_id) in lost,
                removed=broker_id,
            )
            yield [change_record(broker, log_dirs=online_directories(broker, offline))]
        if self._has_new_cordons(broker, cordoned):
            yield [change_record(broker, cordoned_log_dirs=cordoned)]

    def has_new_directories(self, broker_id: int, offline: Collection[Uuid], cordoned: list[Uuid] | None) -> bool:
        """Whether a heartbeat reports log directories as offline or cordoned that are not recorded as such."""
        broker = self._brokers.brokers[broker_id]
        return any(directory in offline for directory in broker.directories) or self._has_new_cordons(broker, cordoned)

    def _has_new_cordons(self, broker: BrokerRegistration, cordoned: list[Uuid] | None) -> bool:
        knows_cordoned = self._features.metadata_version >= MV_4_3_IV0
        return knows_cordoned and cordoned is not None and tuple(sorted(cordoned)) != broker.cordoned_directories

    def has_leaderships(self, broker_id: int) -> bool:
        """Whether a broker leads any partition."""
        if self._topics.has_indexes:
            return self._topics.indexes.leader_count(broker_id) > 0
        return any(partition.leader == broker_id for _, _, partition in self._partitions())

    def _remove(self, broker_id: int) -> RecordSteps:
        """Remove a broker from all ISRs, first from those that it leads, since these need a new leader."""
        yield from self._update(
            lambda partition: partition.leader == broker_id and broker_id in partition.isr, removed=broker_id
        )
        yield from self._update(lambda partition: broker_id in partition.isr, removed=broker_id)

    def _update(
        self, is_concerned: PartitionFilter, *, removed: int = NOBODY, added: int = NOBODY, unclean: int = NOBODY
    ) -> RecordSteps:
        """Remove brokers from the ISRs of the partitions concerned and elect leaders if needed.

        `removed` leaves; `unclean` leaves and may have lost data; `added` counts as alive though it is still fenced.
        """

        def is_alive(broker_id: int) -> bool:
            return broker_id not in gone and (broker_id == added or self._brokers.is_active(broker_id))

        gone = (removed, unclean)
        may_lead = cache(self._leader_test(is_alive))  # brokers do not change while a decision is made
        unclean_replicas = () if unclean == NOBODY else (unclean,)
        records: list[Any] = []
        looked_at = 0
        for topic in self._topics.by_id.values():
            rules: ElectionRules | None = None
            for partition_id, partition in topic.partitions.items():
                looked_at += 1
                if looked_at >= PARTITIONS_PER_STEP or len(records) >= RECORDS_PER_STEP:
                    yield records
                    records, looked_at = [], 0
                if not is_concerned(partition):
                    continue
                if rules is None:
                    rules = self._rules_of(topic, may_lead)
                change = PartitionChange(topic.topic_id, partition_id, partition, rules, unclean_replicas)
                change.isr = [replica for replica in partition.isr if replica not in gone]
                record = change.build()
                if record is not None:
                    assert record.leader < 0 or record.leader not in gone, f"{record.leader} is gone and would lead"
                    records.append(record)
        yield records

    # -- requests of partition leaders ----------------------------------------------------------------------------

    def decide_alter_partition(
        self, request: "alter_partition_request.AlterPartitionRequest", api_version: int
    ) -> "Steps[Any, alter_partition_response.AlterPartitionResponse]":
        """Decide the ISR changes that a leader requests. Raises ApiError STALE_BROKER_EPOCH.

        Deviation: Apache Kafka decides each mention of a partition that a request names twice. Here all but the first
        are INVALID_REQUEST, because an ISR could get a broker that the other change has removed from the replicas.
        """
        from kafkapy.protocol.messages import alter_partition_response

        self._brokers.check_epoch(request.broker_id, request.broker_epoch)
        response = alter_partition_response.AlterPartitionResponse()
        records: list[Any] = []
        decided: set[tuple[Uuid, int]] = set()
        for requested_topic in request.topics:
            topic = self._topics.by_id.get(requested_topic.topic_id)
            partitions = []
            for requested in requested_topic.partitions:
                key = (requested_topic.topic_id, requested.partition_index)
                if key in decided:  # the first change is not replayed yet: the second would be decided without it
                    code = ErrorCode.INVALID_REQUEST
                    partitions.append(alter_partition_response.PartitionData(key[1], error_code=code))
                    continue
                decided.add(key)
                partitions.append(self._altered(request.broker_id, topic, requested, api_version, records))
                yield []
            response.topics.append(
                alter_partition_response.TopicData(topic_id=requested_topic.topic_id, partitions=partitions)
            )
        return Decision(response, records)

    def _altered(
        self,
        broker_id: int,
        topic: Topic | None,
        requested: "alter_partition_request.PartitionData",
        api_version: int,
        records: list[Any],
    ) -> "alter_partition_response.PartitionData":
        from kafkapy.protocol.messages import alter_partition_response

        response = alter_partition_response.PartitionData(partition_index=requested.partition_index)
        if topic is None:
            response.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            return response
        isr_epochs = _requested_isr(requested, api_version)
        partition = topic.partitions.get(requested.partition_index)
        response.error_code = self._alter_error(broker_id, partition, requested, isr_epochs)
        if response.error_code != ErrorCode.NONE or partition is None:
            return response
        change = self.begin_change(topic, requested.partition_index, None)
        change.isr = [replica for replica, _ in isr_epochs]
        change.leader_recovery_state = requested.leader_recovery_state
        record = change.build()
        if record is not None:
            records.append(record)
            partition = partition.merge(record)  # the response tells what the record will make of it, once committed
            if record.leader not in (broker_id, NO_LEADER_CHANGE):
                response.error_code = ErrorCode.NEW_LEADER_ELECTED
                return response
        assert partition.leader == broker_id, f"{broker_id}, which asked, is told that {partition.leader} leads"
        response.leader_id, response.isr = partition.leader, list(partition.isr)
        response.leader_epoch, response.partition_epoch = partition.leader_epoch, partition.partition_epoch
        response.leader_recovery_state = partition.leader_recovery_state
        return response

    def _alter_error(
        self,
        broker_id: int,
        partition: PartitionRegistration | None,
        requested: "alter_partition_request.PartitionData",
        isr_epochs: list[tuple[int, int]],
    ) -> ErrorCode:
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if requested.leader_epoch > partition.leader_epoch or requested.partition_epoch > partition.partition_epoch:
            return ErrorCode.NOT_CONTROLLER
        if requested.leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if broker_id != partition.leader:
            return ErrorCode.INVALID_REQUEST
        if requested.partition_epoch < partition.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        if not _is_valid_isr(partition, [replica for replica, _ in isr_epochs], requested.leader_recovery_state):
            return ErrorCode.INVALID_REQUEST
        if not all(self._may_join_isr(replica, epoch) for replica, epoch in isr_epochs):
            return ErrorCode.INELIGIBLE_REPLICA
        return ErrorCode.NONE

    def _may_join_isr(self, broker_id: int, broker_epoch: int) -> bool:
        broker = self._brokers.brokers.get(broker_id)
        return broker is not None and broker.is_active and broker_epoch in (-1, broker.epoch)

    def decide_assign_replicas(
        self, request: "assign_request.AssignReplicasToDirsRequest"
    ) -> "Steps[Any, assign_response.AssignReplicasToDirsResponse]":
        """Assign a broker's replicas to log directories (KIP-858). Raises ApiError STALE_BROKER_EPOCH.

        Deviation: Apache Kafka changes a partition that a request names twice by each mention. Here only by the first
        that changes it, others are INVALID_REQUEST, because a leader could be elected that the other change has removed
        from the ISR.
        """
        from kafkapy.protocol.messages import assign_replicas_to_dirs_response as assign_response

        broker = self._brokers.check_epoch(request.broker_id, request.broker_epoch)
        response = assign_response.AssignReplicasToDirsResponse()
        records: list[Any] = []
        changed: set[tuple[Uuid, int]] = set()
        for requested in request.directories:
            directory = assign_response.DirectoryData(id=requested.id)
            for requested_topic in requested.topics:
                topic = self._topics.by_id.get(requested_topic.topic_id)
                partitions = []
                for part in requested_topic.partitions:
                    key, record_count = (requested_topic.topic_id, part.partition_index), len(records)
                    if key in changed:
                        code = ErrorCode.INVALID_REQUEST
                    else:
                        code = self._assign(topic, part.partition_index, broker.id, requested.id, records)
                    # a mention that is refused, or changes nothing, leaves room for another one that does
                    changed.update([key] if len(records) > record_count else [])
                    partitions.append(
                        assign_response.PartitionData(partition_index=part.partition_index, error_code=code)
                    )
                    yield []
                directory.topics.append(
                    assign_response.TopicData(topic_id=requested_topic.topic_id, partitions=partitions)
                )
            response.directories.append(directory)
        return Decision(response, records)

    def _assign(
        self, topic: Topic | None, partition_id: int, broker_id: int, directory: Uuid, records: list[Any]
    ) -> ErrorCode:
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        partition = topic.partitions.get(partition_id)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if broker_id not in partition.replicas:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        change = self.begin_change(topic, partition_id, None)
        change.directories = {broker_id: directory}
        if not self._brokers.has_online_directory(broker_id, directory):
            change.isr = [replica for replica in partition.isr if replica != broker_id]
            others = self._leader_test(lambda replica: replica != broker_id and self._brokers.is_active(replica))
            change.rules = self._rules_of(topic, others)
        record = change.build()
        if record is not None:
            records.append(record)
        return ErrorCode.NONE

    # -- unclean elections ----------------------------------------------------------------------------------------

    def decide_unclean_elections(self, max_elections: int = 1000) -> Steps[Any, int]:
        """Elect leaders for leaderless partitions of topics that allow unclean ones; the response is their number."""
        for _ in self._topics.index():
            yield []
        elected = 0
        for topic_id, partition_ids in list(self._topics.indexes.imbalanced.items()):
            topic = self._topics.by_id[topic_id]
            if not self._configs.is_unclean_election_enabled(topic.name):
                yield []
                continue
            records = self._unclean_elections(topic, list(partition_ids), max_elections - elected)
            elected += len(records)
            assert elected <= max_elections, f"{elected} unclean elections in one decision"
            yield records
        return Decision(elected, [])

    def _unclean_elections(self, topic: Topic, partition_ids: Collection[int], max_elections: int) -> list[Any]:
        records: list[Any] = []
        for partition_id in partition_ids:
            partition = topic.partitions[partition_id]
            if partition.leader != NO_LEADER or len(records) >= max_elections:
                continue
            record = self.begin_change(topic, partition_id, None).build()
            if record is not None and record.leader >= 0:
                records.append(record)
        return records

    # -- shared ---------------------------------------------------------------------------------------------------

    def begin_change(
        self, topic: Topic, partition_id: int, election: Election | None = Election.ONLINE
    ) -> PartitionChange:
        """Return a PartitionChange to fill in. `election`: None if the topic's configs decide on unclean elections."""
        rules = self._rules_of(topic, self._leader_test(self._brokers.is_active), election)
        return PartitionChange(topic.topic_id, partition_id, topic.partitions[partition_id], rules)

    def _partitions(self) -> Iterator[tuple[Topic, int, PartitionRegistration]]:
        for topic in self._topics.by_id.values():
            for partition_id, partition in topic.partitions.items():
                yield topic, partition_id, partition

    def _rules_of(
        self, topic: Topic, may_lead: Callable[[int, Uuid], bool], election: Election | None = None
    ) -> ElectionRules:
        """Return a topic's election rules. `election`: None if the topic's configs decide on unclean elections."""
        if election is None:
            is_unclean = self._configs.is_unclean_election_enabled(topic.name)
            election = Election.UNCLEAN if is_unclean else Election.ONLINE
        is_elr_enabled = self._features.is_elr_enabled
        min_insync_replicas = self._configs.min_insync_replicas(topic.name) if is_elr_enabled else 1
        return ElectionRules(
            metadata_version=self._features.metadata_version,
            is_elr_enabled=is_elr_enabled,
            min_insync_replicas=min(min_insync_replicas, len(topic.partitions[0].replicas)),
            may_lead=may_lead,
            default_directory=self._brokers.default_directory,
            election=election,
        )

    def _leader_test(self, is_alive: Callable[[int], bool]) -> Callable[[int, Uuid], bool]:
        """Return the test whether a replica may lead: its broker is alive and its log directory online."""

        def may_lead(replica: int, directory: Uuid) -> bool:
            return is_alive(replica) and self._brokers.has_online_directory(replica, directory)

        return may_lead


def _requested_isr(requested: "alter_partition_request.PartitionData", api_version: int) -> list[tuple[int, int]]:
    """Return the requested ISR: broker id and the broker epoch known to the leader (version 3+), else -1."""
    if api_version < 3:
        return [(replica, -1) for replica in requested.new_isr]
    return [(replica.broker_id, replica.broker_epoch) for replica in requested.new_isr_with_epochs]


def _is_valid_isr(partition: PartitionRegistration, isr: Collection[int], leader_recovery_state: int) -> bool:
    if leader_recovery_state not in (RECOVERED, RECOVERING):
        return False
    replicas = set(isr)
    if len(replicas) < len(isr) or not replicas.issubset(partition.replicas) or partition.leader not in replicas:
        return False
    if leader_recovery_state == RECOVERING:
        return len(isr) == 1 and partition.leader_recovery_state == RECOVERING
    return True
