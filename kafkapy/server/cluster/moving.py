"""Moves a topic's partitions to other brokers, for `kafkapy cluster move`: reassign, wait, elect (KIP-455)."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkapy.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from kafkapy.protocol.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from kafkapy.protocol.messages.list_partition_reassignments_response import OngoingPartitionReassignment
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkapy.server.cluster.plan import ClusterError
from kafkapy.server.cluster.queries import Address, query

POLL_S: Final = 0.2
TIMEOUT_S: Final = 60.0


def targets(replicas: Mapping[int, Sequence[int]], broker_ids: Sequence[int]) -> dict[int, list[int]]:
    """Return the new replicas of each partition: as many as before, with the brokers in rotation as preferred leader.

    Raises ClusterError if there are too few brokers.
    """
    found = {}
    for partition_id, current in sorted(replicas.items()):
        if len(current) > len(broker_ids):
            raise ClusterError(f"partition {partition_id} has {len(current)} replicas: name as many brokers at least")
        first = partition_id % len(broker_ids)
        found[partition_id] = [*broker_ids[first:], *broker_ids[:first]][: len(current)]
    return found


def move(address: Address, topic: str, broker_ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Move a topic; yield (completed, total) partition counts whenever they change. Replaces a move that is running.

    Raises ClusterError if the controller refuses, OSError and ProtocolError.
    """
    if len(set(broker_ids)) != len(broker_ids):
        raise ClusterError("a broker is named twice")
    wanted = targets(_replicas(address, topic), broker_ids)
    _reassign(address, topic, wanted)
    arrived = -1
    while arrived < len(wanted):
        before, arrived = arrived, len(wanted) - len(_running(address, topic, list(wanted)))
        if arrived != before:
            yield arrived, len(wanted)
        if arrived < len(wanted):
            time.sleep(POLL_S)
    query(
        address,
        ElectLeadersRequest(topic_partitions=[TopicPartitions(topic, partitions=list(wanted))]),
        timeout_s=TIMEOUT_S,
    )


def _replicas(address: Address, topic: str) -> dict[int, list[int]]:
    """Return the replicas of each partition; those that a running move removes do not count."""
    (found,) = query(address, MetadataRequest(topics=[MetadataRequestTopic(name=topic)])).topics
    if found.error_code:
        raise ClusterError(f"topic {topic}: {ErrorCode(found.error_code).name}")
    replicas = {each.partition_index: list(each.replica_nodes) for each in found.partitions}
    for partition in _running(address, topic, list(replicas)):
        replicas[partition.partition_index] = [
            replica for replica in partition.replicas if replica not in partition.removing_replicas
        ]
    return replicas


def _reassign(address: Address, topic: str, wanted: Mapping[int, list[int]]) -> None:
    partitions = [ReassignablePartition(partition_id, replicas=replicas) for partition_id, replicas in wanted.items()]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(topic, partitions=partitions)])
    response = query(address, request, timeout_s=TIMEOUT_S)
    answers = [response, *(each for answered in response.responses for each in answered.partitions)]
    for each in answers:
        if each.error_code:
            raise ClusterError(each.error_message or ErrorCode(each.error_code).name)


def _running(address: Address, topic: str, partition_ids: list[int]) -> list[OngoingPartitionReassignment]:
    """Return the partitions that are being reassigned."""
    requested = ListPartitionReassignmentsTopics(topic, partition_indexes=partition_ids)
    response = query(address, ListPartitionReassignmentsRequest(topics=[requested]), timeout_s=TIMEOUT_S)
    if response.error_code:
        raise ClusterError(response.error_message or ErrorCode(response.error_code).name)
    return [partition for each in response.topics for partition in each.partitions]
