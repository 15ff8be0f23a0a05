"""Moves a topic's partitions to other brokers, or gives them more or fewer replicas (KIP-455)."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkapy.protocol.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from kafkapy.protocol.messages.list_partition_reassignments_response import OngoingPartitionReassignment
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkapy.server.cluster.electing import elect
from kafkapy.server.cluster.plan import ClusterError
from kafkapy.server.cluster.queries import Ask

POLL_S: Final = 0.2
TIMEOUT_S: Final = 60.0

Replicas = Mapping[int, Sequence[int]]
"""Broker ids by partition, the preferred leader first."""


def targets(replicas: Replicas, broker_ids: Sequence[int], factor: int | None = None) -> dict[int, list[int]]:
    """Return the new replicas of each partition, with the brokers in rotation as preferred leader.

    factor: how many replicas each gets; without, as many as before. Raises ClusterError if there are too few brokers.
    """
    if len(set(broker_ids)) != len(broker_ids):
        raise ClusterError("a broker is named twice")
    found = {}
    for partition_id, current in sorted(replicas.items()):
        count = len(current) if factor is None else factor
        if count > len(broker_ids):
            wanted = f"partition {partition_id} is to have {count} replicas"
            raise ClusterError(f"{wanted}: name as many brokers at least, or fewer replicas by -r")
        first = partition_id % len(broker_ids)
        found[partition_id] = [*broker_ids[first:], *broker_ids[:first]][:count]
    return found


def resized(
    replicas: Replicas, factor: int, racks: Mapping[int, str | None], counts: Mapping[int, int]
) -> dict[int, list[int]]:
    """Return the replicas of each partition with others added, or the last ones dropped; those that stay do not move.

    An added one goes to a broker of a rack without a replica, if there is one, and there to the broker with the fewest
    replicas. racks: of the brokers that may get replicas. counts: replicas by broker, of all topics. Raises
    ClusterError if there are too few brokers.
    """
    load = {broker_id: counts.get(broker_id, 0) for broker_id in racks}
    found = {}
    for partition_id, current in sorted(replicas.items()):
        chosen = list(current[:factor])
        while len(chosen) < factor:
            free = [broker_id for broker_id in racks if broker_id not in chosen]
            if not free:
                raise ClusterError(f"{factor} replicas are wanted: only {len(racks)} brokers are running")
            used = {racks.get(broker_id) for broker_id in chosen}
            chosen.append(min(free, key=lambda each: (racks[each] in used, load[each], each)))
            load[chosen[-1]] += 1
        found[partition_id] = chosen
    return found


def move(ask: Ask, topic: str, wanted: Mapping[int, list[int]]) -> Iterator[tuple[int, int]]:
    """Give partitions these replicas; yield (completed, total) counts whenever they change, then elect their leaders.

    Replaces a move that is running. Raises ClusterError if the controller refuses, OSError and ProtocolError.
    """
    reassign(ask, topic, wanted)
    arrived = -1
    while arrived < len(wanted):
        before, arrived = arrived, len(wanted) - len(running(ask, topic, list(wanted)))
        if arrived != before:
            yield arrived, len(wanted)
        if arrived < len(wanted):
            time.sleep(POLL_S)
    elect(ask, {topic: list(wanted)})


def replicas_of(ask: Ask, topic: str, partition_ids: Collection[int] | None = None) -> dict[int, list[int]]:
    """Return the replicas of these partitions (of all without); those that a running move removes do not count.

    Raises ClusterError, OSError, ProtocolError.
    """
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    (found,) = ask(request).topics
    if found.error_code:
        raise ClusterError(f"topic {topic}: {ErrorCode(found.error_code).name}")
    replicas = {each.partition_index: list(each.replica_nodes) for each in found.partitions}
    for partition in running(ask, topic, list(replicas)):
        replicas[partition.partition_index] = [
            replica for replica in partition.replicas if replica not in partition.removing_replicas
        ]
    if partition_ids is None:
        return replicas
    missing = sorted(set(partition_ids) - replicas.keys())
    if missing:
        raise ClusterError(f"topic {topic} has no partition {missing[0]}")
    return {partition_id: replicas[partition_id] for partition_id in partition_ids}


def reassign(ask: Ask, topic: str, wanted: Mapping[int, list[int] | None]) -> None:
    """Begin to move partitions; None cancels a partition's move. Raises as `move`."""
    partitions = [ReassignablePartition(partition_id, replicas=replicas) for partition_id, replicas in wanted.items()]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(topic, partitions=partitions)])
    response = ask(request, timeout_s=TIMEOUT_S)
    responses = [response, *(each for answered in response.responses for each in answered.partitions)]
    for each in responses:
        if each.error_code:
            raise ClusterError(each.error_message or ErrorCode(each.error_code).name)


def running(ask: Ask, topic: str, partition_ids: list[int]) -> list[OngoingPartitionReassignment]:
    """Return the partitions among these that are being reassigned. Raises as `move`."""
    requested = ListPartitionReassignmentsTopics(topic, partition_indexes=partition_ids)
    return [each for _, each in all_running(ask, [requested])]


def all_running(
    ask: Ask, topics: list[ListPartitionReassignmentsTopics] | None = None
) -> list[tuple[str, OngoingPartitionReassignment]]:
    """Return (topic, partition) for what is being reassigned, of all topics without `topics`. Raises as `move`."""
    response = ask(ListPartitionReassignmentsRequest(topics=topics), timeout_s=TIMEOUT_S)
    if response.error_code:
        raise ClusterError(response.error_message or ErrorCode(response.error_code).name)
    return [(topic.name, partition) for topic in response.topics for partition in topic.partitions]
