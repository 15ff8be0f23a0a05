"""A Cluster's topics with chosen replicas, and what leaders and administrators ask about them, in one line each."""

from collections.abc import Mapping, Sequence
from typing import Any

from kafkapy.metadata.registrations import PartitionRegistration
from kafkapy.protocol.messages import alter_partition_reassignments_request as reassign_request
from kafkapy.protocol.messages import alter_partition_request
from kafkapy.protocol.messages import create_topics_request as create_request
from kafkapy.protocol.messages import list_partition_reassignments_request as list_request
from tests.support.controllers import Cluster, end_of

NO_ELR = {"eligible.leader.replicas.version": 0}


def brokers(*broker_ids: int, features: Mapping[str, int] | None = None) -> Cluster:
    """Return a cluster of these brokers, all unfenced."""
    cluster = Cluster(features=features)
    for broker_id in broker_ids:
        cluster.start_broker(broker_id)
    return cluster


def place(cluster: Cluster, name: str, *replicas: Sequence[int], **configs: str) -> bytes:
    """Create a topic with the given replicas of each partition, return its id. Configs: min_insync_replicas="2"."""
    topic = create_request.CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            create_request.CreatableReplicaAssignment(index, broker_ids=list(ids)) for index, ids in enumerate(replicas)
        ],
        configs=[
            create_request.CreatableTopicConfig(key.replace("_", "."), value=value) for key, value in configs.items()
        ],
    )
    decision = cluster.controller.topics.decide_create(create_request.CreateTopicsRequest(topics=[topic]))
    (result,) = cluster.commit(decision).topics
    assert result.error_code == 0, result.error_message
    return bytes(result.topic_id)


def partition(cluster: Cluster, name: str, partition_id: int = 0) -> PartitionRegistration:
    """Return a partition, which image and controller have alike."""
    found = cluster.image.topics.by_name[name].partitions[partition_id]
    assert cluster.controller.topics.by_name[name].partitions[partition_id] == found
    return found


def alter_isr(cluster: Cluster, name: str, isr: Sequence[int], partition_id: int = 0) -> Any:
    """Have the leader ask for another ISR; return the response."""
    current = partition(cluster, name, partition_id)
    requested = alter_partition_request.PartitionData(
        partition_index=partition_id,
        leader_epoch=current.leader_epoch,
        partition_epoch=current.partition_epoch,
        new_isr_with_epochs=[
            alter_partition_request.BrokerState(broker_id=each, broker_epoch=cluster.epochs[each]) for each in isr
        ],
    )
    topic_id = cluster.image.topics.by_name[name].topic_id
    request = alter_partition_request.AlterPartitionRequest(
        broker_id=current.leader,
        broker_epoch=cluster.epochs[current.leader],
        topics=[alter_partition_request.TopicData(topic_id=topic_id, partitions=[requested])],
    )
    return cluster.commit(cluster.controller.partitions.decide_alter_partition(request, 3)).topics[0].partitions[0]


def fence(cluster: Cluster, broker_id: int) -> None:
    cluster.heartbeat(broker_id, want_fence=True)


def reassign(
    cluster: Cluster, targets: Mapping[str, Mapping[int, Sequence[int] | None]], *, may_change_factor: bool = True
) -> dict[tuple[str, int], tuple[int, str | None]]:
    """Reassign partitions (None cancels); return each one's error code and message."""
    topics = [
        reassign_request.ReassignableTopic(
            name,
            partitions=[
                reassign_request.ReassignablePartition(partition_id, replicas=None if target is None else list(target))
                for partition_id, target in partitions.items()
            ],
        )
        for name, partitions in targets.items()
    ]
    request = reassign_request.AlterPartitionReassignmentsRequest(
        topics=topics, allow_replication_factor_change=may_change_factor
    )
    response = cluster.commit(cluster.controller.reassignments.decide_alter(request))
    assert (response.error_code, response.error_message) == (0, None)
    return {
        (topic.name, part.partition_index): (part.error_code, part.error_message)
        for topic in response.responses
        for part in topic.partitions
    }


def ongoing(cluster: Cluster, topics: Mapping[str, Sequence[int]] | None = None) -> dict[tuple[str, int], Any]:
    """Return (replicas, adding, removing) of each running reassignment, of all topics or of those given."""
    requested = None
    if topics is not None:
        requested = [
            list_request.ListPartitionReassignmentsTopics(name, partition_indexes=list(ids))
            for name, ids in topics.items()
        ]
    decision = end_of(
        cluster.controller.reassignments.decide_list(list_request.ListPartitionReassignmentsRequest(topics=requested))
    )
    assert not decision.records
    return {
        (topic.name, each.partition_index): (each.replicas, each.adding_replicas, each.removing_replicas)
        for topic in decision.response.topics
        for each in topic.partitions
    }


def elect(
    cluster: Cluster, election_type: int, topics: Mapping[str, Sequence[int]] | None
) -> dict[tuple[str, int], tuple[int, str | None]]:
    """Elect leaders (0 preferred, 1 unclean) of all candidates or of some; return error codes and messages."""
    if topics is None:
        requested = end_of(cluster.controller.elections.decide_candidates()).response
    else:
        requested = [(name, partition_id) for name, ids in topics.items() for partition_id in ids]
    errors = cluster.commit(cluster.controller.elections.decide_elect(election_type, requested))
    return {
        key: (0, None) if error is None else (int(error.code), error.message)
        for key, error in zip(requested, errors, strict=True)
    }
