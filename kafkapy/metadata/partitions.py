"""What happens to partitions when brokers come, go, shut down, lose a directory, or a leader changes its ISR.

Each function returns the records; nothing here changes the tables. A broker's coming or going looks at every partition
of the cluster once (0.2 us each), which spares an index of partitions by broker that every replay would have to keep.
Sources: KIP-631, KIP-497 (AlterPartition), KIP-841, KIP-858 (directories), KIP-966 (ELR).
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

from kafkapy.machine import Decision
from kafkapy.metadata.brokers import FENCE, UNFENCE, BrokerControl, change_record, online_directories
from kafkapy.metadata.configs import ConfigControl
from kafkapy.metadata.elections import Election, PartitionChange
from kafkapy.metadata.features import MV_4_3_IV0, FeatureControl
from kafkapy.metadata.limits import check_operation_size
from kafkapy.metadata.registrations import NO_LEADER, NO_LEADER_CHANGE, RECOVERED, RECOVERING, PartitionRegistration
from kafkapy.metadata.topics import Topic, TopicControl
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages import alter_partition_request, alter_partition_response
from kafkapy.protocol.messages import assign_replicas_to_dirs_request as assign_request
from kafkapy.protocol.messages import assign_replicas_to_dirs_response as assign_response
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.protocol.messages.unregister_broker_record import UnregisterBrokerRecord
from kafkapy.types import Uuid

NOBODY: Final = -1

PartitionFilter = Callable[[PartitionRegistration], bool]


class PartitionControl:
    """Elections and ISR changes over the tables of topics and brokers."""

    def __init__(
        self, features: FeatureControl, brokers: BrokerControl, configs: ConfigControl, topics: TopicControl
    ) -> None:
        self._features = features
        self._brokers = brokers
        self._configs = configs
        self._topics = topics

    # -- brokers come and go --------------------------------------------------------------------------------------

    def fence_records(self, broker_id: int) -> list[Any]:
        """Move leaderships away from a broker and fence it."""
        broker = self._brokers.brokers[broker_id]
        return [*self._removal_records(broker_id), change_record(broker, fenced=FENCE)]

    def unfence_records(self, broker_id: int) -> list[Any]:
        """Unfence a broker and let it lead what has no leader."""
        broker = self._brokers.brokers[broker_id]
        records = self._update_records(lambda partition: partition.leader == NO_LEADER, added=broker_id)
        return [change_record(broker, fenced=UNFENCE), *records]

    def controlled_shutdown_records(self, broker_id: int) -> list[Any]:
        """Note that a broker wants to go, and move leaderships away from it."""
        broker = self._brokers.brokers[broker_id]
        records = self._removal_records(broker_id)
        return records if broker.in_controlled_shutdown else [change_record(broker, in_controlled_shutdown=1), *records]

    def restart_records(self, broker_id: int, *, is_clean: bool) -> list[Any]:
        """Clear what an earlier incarnation of a broker left: its place in ISRs, after an unclean end in ELRs, too."""
        if not self._features.is_elr_enabled or is_clean:
            return self._removal_records(broker_id)
        return self._update_records(
            lambda partition: broker_id in partition.isr or broker_id in partition.elr, unclean=broker_id
        )

    def unregister_records(self, broker_id: int) -> list[Any]:
        """Take a broker out of the ISRs and forget it. Raises ApiError POLICY_VIOLATION if it is in too many."""
        records: list[Any] = self._update_records(
            lambda partition: broker_id in partition.isr or broker_id in partition.elr, removed=broker_id
        )
        check_operation_size(len(records) + 1)
        broker = self._brokers.brokers[broker_id]
        return [*records, UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch)]

    def directory_records(self, broker_id: int, offline: Collection[Uuid], cordoned: list[Uuid] | None) -> list[Any]:
        """Take note of a broker's lost and cordoned log directories, as its heartbeat tells them."""
        broker = self._brokers.brokers[broker_id]
        records: list[Any] = []
        lost = [directory for directory in broker.directories if directory in offline]
        if lost:
            records += self._update_records(
                lambda partition: broker_id in partition.replicas and partition.directory_of(broker_id) in lost,
                removed=broker_id,
            )
            records.append(change_record(broker, log_dirs=online_directories(broker, offline)))
        knows_cordoned = self._features.metadata_version >= MV_4_3_IV0
        if knows_cordoned and cordoned is not None and tuple(sorted(cordoned)) != broker.cordoned_directories:
            records.append(change_record(broker, cordoned_log_dirs=cordoned))
        return records

    def has_leaderships(self, broker_id: int) -> bool:
        """Whether a broker leads any partition."""
        return any(partition.leader == broker_id for _, _, partition in self._partitions())

    def _removal_records(self, broker_id: int) -> list[PartitionChangeRecord]:
        return self._update_records(lambda partition: broker_id in partition.isr, removed=broker_id)

    def _update_records(
        self, is_concerned: PartitionFilter, *, removed: int = NOBODY, added: int = NOBODY, unclean: int = NOBODY
    ) -> list[PartitionChangeRecord]:
        """Take brokers out of the ISRs of the partitions concerned and elect leaders where that is needed.

        `removed` leaves; `unclean` leaves and may have lost data; `added` counts as alive though it is still fenced.
        """

        def is_alive(broker_id: int) -> bool:
            return broker_id not in (removed, unclean) and (broker_id == added or self._brokers.is_active(broker_id))

        records = []
        for topic, partition_id, partition in self._partitions():
            if not is_concerned(partition):
                continue
            change = self._change(topic, partition_id, partition, is_alive)
            change.isr = [replica for replica in partition.isr if replica not in (removed, unclean)]
            change.unclean_shutdown_replicas = () if unclean == NOBODY else (unclean,)
            record = change.build()
            if record is not None:
                records.append(record)
        return records

    # -- the leader's requests ------------------------------------------------------------------------------------

    def decide_alter_partition(
        self, request: alter_partition_request.AlterPartitionRequest, api_version: int
    ) -> Decision[Any, alter_partition_response.AlterPartitionResponse]:
        """Decide which ISRs leaders may have. Raises ApiError STALE_BROKER_EPOCH."""
        self._brokers.check_epoch(request.broker_id, request.broker_epoch)
        response = alter_partition_response.AlterPartitionResponse()
        records: list[Any] = []
        for asked_topic in request.topics:
            topic = self._topics.by_id.get(asked_topic.topic_id)
            partitions = [
                self._altered(request.broker_id, topic, asked, api_version, records) for asked in asked_topic.partitions
            ]
            response.topics.append(
                alter_partition_response.TopicData(topic_id=asked_topic.topic_id, partitions=partitions)
            )
        return Decision(response, records)

    def _altered(
        self,
        broker_id: int,
        topic: Topic | None,
        asked: alter_partition_request.PartitionData,
        api_version: int,
        records: list[Any],
    ) -> alter_partition_response.PartitionData:
        answer = alter_partition_response.PartitionData(partition_index=asked.partition_index)
        if topic is None:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            return answer
        isr_epochs = _asked_isr(asked, api_version)
        partition = topic.partitions.get(asked.partition_index)
        answer.error_code = self._alter_error(broker_id, partition, asked, isr_epochs)
        if answer.error_code != ErrorCode.NONE or partition is None:
            return answer
        change = self._change(topic, asked.partition_index, partition, self._brokers.is_active)
        change.isr = list(isr_epochs)
        change.leader_recovery_state = asked.leader_recovery_state
        record = change.build()
        if record is not None:
            records.append(record)
            partition = partition.merge(record)
            if record.leader not in (broker_id, NO_LEADER_CHANGE):
                answer.error_code = ErrorCode.NEW_LEADER_ELECTED
                return answer
        answer.leader_id, answer.isr = partition.leader, list(partition.isr)
        answer.leader_epoch, answer.partition_epoch = partition.leader_epoch, partition.partition_epoch
        answer.leader_recovery_state = partition.leader_recovery_state
        return answer

    def _alter_error(
        self,
        broker_id: int,
        partition: PartitionRegistration | None,
        asked: alter_partition_request.PartitionData,
        isr_epochs: dict[int, int],
    ) -> ErrorCode:
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if asked.leader_epoch > partition.leader_epoch or asked.partition_epoch > partition.partition_epoch:
            return ErrorCode.NOT_CONTROLLER
        if asked.leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if broker_id != partition.leader:
            return ErrorCode.INVALID_REQUEST
        if asked.partition_epoch < partition.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        if not _is_valid_isr(partition, isr_epochs, asked.leader_recovery_state):
            return ErrorCode.INVALID_REQUEST
        if not all(self._may_join_isr(replica, epoch) for replica, epoch in isr_epochs.items()):
            return ErrorCode.INELIGIBLE_REPLICA
        return ErrorCode.NONE

    def _may_join_isr(self, broker_id: int, broker_epoch: int) -> bool:
        broker = self._brokers.brokers.get(broker_id)
        return broker is not None and broker.is_active and broker_epoch in (-1, broker.epoch)

    def decide_assign_replicas(
        self, request: assign_request.AssignReplicasToDirsRequest
    ) -> Decision[Any, assign_response.AssignReplicasToDirsResponse]:
        """Decide in which log directories a broker's replicas lie (KIP-858). Raises ApiError STALE_BROKER_EPOCH."""
        broker = self._brokers.check_epoch(request.broker_id, request.broker_epoch)
        response = assign_response.AssignReplicasToDirsResponse()
        records: list[Any] = []
        for asked in request.directories:
            answer = assign_response.DirectoryData(id=asked.id)
            for asked_topic in asked.topics:
                topic = self._topics.by_id.get(asked_topic.topic_id)
                partitions = [
                    assign_response.PartitionData(
                        partition_index=part.partition_index,
                        error_code=self._assign(topic, part.partition_index, broker.id, asked.id, records),
                    )
                    for part in asked_topic.partitions
                ]
                answer.topics.append(assign_response.TopicData(topic_id=asked_topic.topic_id, partitions=partitions))
            response.directories.append(answer)
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
        change = self._change(topic, partition_id, partition, self._brokers.is_active)
        change.directories[broker_id] = directory
        if not self._brokers.has_online_directory(broker_id, directory):
            change.isr = [replica for replica in partition.isr if replica != broker_id]
            change.is_acceptable_leader = self._leader_test(
                partition, lambda replica: replica != broker_id and self._brokers.is_active(replica)
            )
        record = change.build()
        if record is not None:
            records.append(record)
        return ErrorCode.NONE

    # -- unclean elections ----------------------------------------------------------------------------------------

    def decide_unclean_elections(self, max_elections: int = 1000) -> Decision[Any, int]:
        """Let someone lead the leaderless partitions of topics that allow unclean elections; answer how many."""
        records: list[Any] = []
        for topic, partition_id, partition in self._partitions():
            if len(records) >= max_elections:
                break
            if partition.leader == NO_LEADER and self._configs.is_unclean_election_enabled(topic.name):
                record = self._change(topic, partition_id, partition, self._brokers.is_active).build()
                if record is not None and record.leader >= 0:
                    records.append(record)
        return Decision(len(records), records)

    # -- shared ---------------------------------------------------------------------------------------------------

    def begin_change(self, topic: Topic, partition_id: int, election: Election = Election.ONLINE) -> PartitionChange:
        """Return a change to a partition in the making, whose leader is sought as `election` says."""
        return self._change(topic, partition_id, topic.partitions[partition_id], self._brokers.is_active, election)

    def _partitions(self) -> Iterator[tuple[Topic, int, PartitionRegistration]]:
        for topic in self._topics.by_id.values():
            for partition_id, partition in topic.partitions.items():
                yield topic, partition_id, partition

    def _change(
        self,
        topic: Topic,
        partition_id: int,
        partition: PartitionRegistration,
        is_alive: Callable[[int], bool],
        election: Election | None = None,
    ) -> PartitionChange:
        """Return a change in the making. `election`: without, an unclean one where the topic allows it."""
        is_elr_enabled = self._features.is_elr_enabled
        if election is None:
            is_unclean = self._configs.is_unclean_election_enabled(topic.name)
            election = Election.UNCLEAN if is_unclean else Election.ONLINE
        replica_count = len(topic.partitions[0].replicas)
        return PartitionChange(
            partition=partition,
            topic_id=topic.topic_id,
            partition_id=partition_id,
            metadata_version=self._features.metadata_version,
            min_insync_replicas=min(self._configs.min_insync_replicas(topic.name), replica_count)
            if is_elr_enabled
            else 1,
            is_elr_enabled=is_elr_enabled,
            is_acceptable_leader=self._leader_test(partition, is_alive),
            default_directory=self._brokers.default_directory,
            election=election,
        )

    def _leader_test(self, partition: PartitionRegistration, is_alive: Callable[[int], bool]) -> Callable[[int], bool]:
        """Return whether a replica may lead: its broker lives, and the directory that it lies in is online."""

        def is_acceptable(replica: int) -> bool:
            if not is_alive(replica):
                return False
            return self._brokers.has_online_directory(replica, partition.directory_of(replica))

        return is_acceptable


def _asked_isr(asked: alter_partition_request.PartitionData, api_version: int) -> dict[int, int]:
    """Return the wanted ISR: broker id -> the epoch that the leader knows of it (3+), else -1."""
    if api_version < 3:
        return dict.fromkeys(asked.new_isr, -1)
    return {replica.broker_id: replica.broker_epoch for replica in asked.new_isr_with_epochs}


def _is_valid_isr(partition: PartitionRegistration, isr: Collection[int], leader_recovery_state: int) -> bool:
    if leader_recovery_state not in (RECOVERED, RECOVERING):
        return False
    if not isr or not set(partition.replicas).issuperset(isr) or partition.leader not in isr:
        return False
    if leader_recovery_state == RECOVERING:
        return len(isr) == 1 and partition.leader_recovery_state == RECOVERING
    return True
