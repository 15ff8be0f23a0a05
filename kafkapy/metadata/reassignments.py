"""Partition reassignments: moving a partition to other brokers (KIP-455), changing its replication factor (KIP-860).

A reassignment begins with a record that adds the new replicas to the old ones. It ends (elections.py) with the ISR
change that adds the last of them; the same change removes the replicas to be removed. A new target replaces a running
one; a cancellation restores the previous replicas. The messages are imported with the first request.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkapy.errors import ApiError, repeated
from kafkapy.machine import Decision, Steps
from kafkapy.metadata.configs import ConfigControl
from kafkapy.metadata.elections import Election
from kafkapy.metadata.limits import check_operation_size
from kafkapy.metadata.partitions import PartitionControl
from kafkapy.metadata.registrations import PartitionRegistration
from kafkapy.metadata.topics import Topic, TopicControl
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord

if TYPE_CHECKING:
    from kafkapy.protocol.messages import alter_partition_reassignments_request as alter_request
    from kafkapy.protocol.messages import alter_partition_reassignments_response as alter_response
    from kafkapy.protocol.messages import list_partition_reassignments_request as list_request
    from kafkapy.protocol.messages import list_partition_reassignments_response as list_response

PARTITIONS_PER_STEP: Final = 200
"""Partitions listed in one step: half a millisecond."""


class ReassignmentControl:
    """Decides what reassignments change, over the tables of topics and partitions."""

    def __init__(self, configs: ConfigControl, topics: TopicControl, partitions: PartitionControl) -> None:
        self._configs = configs
        self._topics = topics
        self._partitions = partitions

    def decide_alter(
        self, request: "alter_request.AlterPartitionReassignmentsRequest"
    ) -> "Steps[Any, alter_response.AlterPartitionReassignmentsResponse]":
        """Decide new targets and cancellations; each partition succeeds or fails independently.

        Deviation: Apache Kafka answers UNKNOWN_SERVER_ERROR for partitions beyond the limit of one operation. Here it
        is POLICY_VIOLATION, because that says what to change.

        Deviation: Apache Kafka changes a partition that a request names twice by each mention. Here by the first only,
        others are INVALID_REQUEST, because their records would contradict the first one's, of which they do not know.
        """
        from kafkapy.protocol.messages import alter_partition_reassignments_response as alter_response

        if not request.topics:
            return Decision(alter_response.AlterPartitionReassignmentsResponse(), [])
        records: list[PartitionChangeRecord] = []
        response = alter_response.AlterPartitionReassignmentsResponse(
            error_message=None, allow_replication_factor_change=request.allow_replication_factor_change
        )
        changed: set[tuple[str, int]] = set()
        for requested_topic in request.topics:
            results: list[alter_response.ReassignablePartitionResponse] = []
            for requested in requested_topic.partitions:
                key = (requested_topic.name, requested.partition_index)
                result = alter_response.ReassignablePartitionResponse(requested.partition_index, error_message=None)
                try:
                    check_operation_size(len(records) + 1)  # first: a partition is refused, not the request
                    found = self._alter(requested_topic.name, requested, request.allow_replication_factor_change)
                    if found and key in changed:
                        raise ApiError(ErrorCode.INVALID_REQUEST, "The request changes this partition twice.")
                    changed.update([key] if found else [])
                    records += found
                except ApiError as error:
                    message = repeated(error.message) if results else error.message
                    result.error_code, result.error_message = int(error.code), message
                results.append(result)
                yield []
            response.responses.append(
                alter_response.ReassignableTopicResponse(requested_topic.name, partitions=results)
            )
        return Decision(response, records, is_atomic=True)

    def decide_list(
        self, request: "list_request.ListPartitionReassignmentsRequest"
    ) -> "Steps[Any, list_response.ListPartitionReassignmentsResponse]":
        """Return the running reassignments of all or of the requested topics. No records."""
        from kafkapy.protocol.messages import list_partition_reassignments_response as list_response

        if request.topics is None:
            for _ in self._topics.index():
                yield []
        response = list_response.ListPartitionReassignmentsResponse(error_message=None)
        for topic, partition_ids in self._requested(request):
            ongoing: list[list_response.OngoingPartitionReassignment] = []
            for start in range(0, len(partition_ids), PARTITIONS_PER_STEP):
                ongoing += _ongoing(topic, partition_ids[start : start + PARTITIONS_PER_STEP])
                yield []
            if ongoing:
                response.topics.append(list_response.OngoingTopicReassignment(name=topic.name, partitions=ongoing))
        return Decision(response, [])

    def _requested(
        self, request: "list_request.ListPartitionReassignmentsRequest"
    ) -> "Iterator[tuple[Topic, list[int]]]":
        """Yield each topic with the partitions to look at."""
        if request.topics is None:
            for topic_id, partition_ids in self._topics.indexes.reassigning.items():
                yield self._topics.by_id[topic_id], list(partition_ids)
            return
        for requested in request.topics:
            topic = self._topics.by_name.get(requested.name)
            if topic is not None:
                yield topic, requested.partition_indexes

    def _alter(
        self, name: str, requested: "alter_request.ReassignablePartition", allow_factor_change: bool
    ) -> list[PartitionChangeRecord]:
        """Return the record of one partition's change, none if nothing changes. Raises ApiError."""
        topic = self._topics.by_name.get(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
        partition = topic.partitions.get(requested.partition_index)
        if partition is None:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{requested.partition_index}."
            )
        if requested.replicas is None:
            record = self._cancel(topic, requested.partition_index, partition)
        else:
            self._topics.new_partitions.check_assignment(requested.replicas)
            if not allow_factor_change:
                _check_factor_unchanged(partition, requested.replicas)
            record = self._reassign(topic, requested.partition_index, partition, requested.replicas)
        return [] if record is None else [record]

    def _reassign(
        self, topic: Topic, partition_id: int, partition: PartitionRegistration, target: list[int]
    ) -> PartitionChangeRecord | None:
        """Return the record that begins a reassignment, replacing one that may be running.

        A replica is never adding and removing at the same time, and no replica of the target is removed. Deviation:
        Apache Kafka keeps the previous adding replicas. Here they go, because the reassignment would never end if one
        of them is to be removed now.
        """
        removing = sorted(set(partition.replicas).difference(target))
        adding = sorted(set(target).difference(partition.replicas))
        change = self._partitions.begin_change(topic, partition_id)
        change.replicas = [*target, *removing]
        change.removing_replicas = _without(removing or change.removing_replicas, target)
        change.adding_replicas = _without(adding or change.adding_replicas, removing)
        assert not set(change.removing_replicas).intersection(target), f"{target} would lose {change.removing_replicas}"
        assert not set(change.removing_replicas).intersection(change.adding_replicas), "it would never end"
        return change.build()

    def _cancel(
        self, topic: Topic, partition_id: int, partition: PartitionRegistration
    ) -> PartitionChangeRecord | None:
        if not partition.is_being_reassigned:
            raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        replicas = [replica for replica in partition.replicas if replica not in partition.adding_replicas]
        isr = [replica for replica in partition.isr if replica not in partition.adding_replicas]
        allows_unclean = self._configs.is_unclean_election_enabled(topic.name)
        if not replicas:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "Invalid replica assignment: addingReplicas contains all replicas.",
            )
        if not isr and not allows_unclean:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:{partition_id} because it would require an "
                "unclean leader election.",
            )
        election = Election.UNCLEAN if allows_unclean else Election.ONLINE
        change = self._partitions.begin_change(topic, partition_id, election)
        # Unclean: none of the former replicas is in sync, and one of them must lead.
        change.replicas, change.isr = replicas, isr or replicas[:1]
        change.removing_replicas, change.adding_replicas = [], []
        return change.build()


def _without(replicas: Sequence[int], others: list[int]) -> list[int]:
    return [replica for replica in replicas if replica not in others]


def _check_factor_unchanged(partition: PartitionRegistration, target: list[int]) -> None:
    """Raise ApiError if a reassignment would change the replication factor (KIP-860).

    During a reassignment the replication factor is that of its target.
    """
    factor = len({*partition.replicas, *partition.adding_replicas}.difference(partition.removing_replicas))
    if factor != len(target):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"The replication factor is changed from {factor} to {len(target)}"
        )


def _ongoing(topic: Topic, partition_ids: list[int]) -> "list[list_response.OngoingPartitionReassignment]":
    from kafkapy.protocol.messages import list_partition_reassignments_response as list_response

    return [
        list_response.OngoingPartitionReassignment(
            partition_index=partition_id,
            replicas=list(partition.replicas),
            adding_replicas=list(partition.adding_replicas),
            removing_replicas=list(partition.removing_replicas),
        )
        for partition_id in partition_ids
        if (partition := topic.partitions.get(partition_id)) is not None and partition.is_being_reassigned
    ]
