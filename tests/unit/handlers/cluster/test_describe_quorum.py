"""DescribeQuorum at all its versions."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.handlers.cluster import describe_quorum
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from kafkapy.protocol.messages.describe_quorum_response import DescribeQuorumResponse
from kafkapy.raft.voters import Endpoint
from kafkapy.runtime.quorum.description import QuorumDescription, ReplicaDescription
from kafkapy.types import ReplicaKey

VOTER = ReplicaDescription(ReplicaKey(1, b"d" * 16), 42, 1000, 1000)
OBSERVER = ReplicaDescription(ReplicaKey(4, b"o" * 16), 40, 900, -1)
QUORUM = QuorumDescription(1, 7, 41, (VOTER,), (OBSERVER,), {1: (Endpoint("CONTROLLER", "localhost", 9093),)})


def send_request(
    quorum: QuorumDescription | None, *partitions: tuple[str, int], version: int = 2, is_allowed: bool = True
) -> DescribeQuorumResponse:
    """Handle a request and carry the response over the wire."""
    request = DescribeQuorumRequest(
        topics=[
            TopicData(topic_name=name, partitions=[PartitionData(partition_index=index)]) for name, index in partitions
        ]
    )
    services: Any = SimpleNamespace(
        quorum=SimpleNamespace(describe=lambda: quorum), authorizer=SimpleNamespace(authorize=lambda *_: is_allowed)
    )
    context: Any = SimpleNamespace(api_version=version)
    response = asyncio.run(describe_quorum.handle(services, context, request))
    return DescribeQuorumResponse.decode(response.encode(version), version)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_leader_describes_voters_and_observers(version: int) -> None:
    response = send_request(QUORUM, ("__cluster_metadata", 0), version=version)
    partition = response.topics[0].partitions[0]
    assert (partition.error_code, partition.leader_id, partition.leader_epoch, partition.high_watermark) == (
        0,
        1,
        7,
        41,
    )
    voter, observer = partition.current_voters[0], partition.observers[0]
    assert (voter.replica_id, voter.log_end_offset, observer.replica_id, observer.log_end_offset) == (1, 42, 4, 40)
    assert voter.last_fetch_timestamp == (1000 if version >= 1 else -1)
    assert observer.last_caught_up_timestamp == -1
    assert voter.replica_directory_id == (b"d" * 16 if version >= 2 else bytes(16))
    if version >= 2:
        listener = response.nodes[0].listeners[0]
        assert (response.nodes[0].node_id, listener.name, listener.port) == (1, "CONTROLLER", 9093)


def test_only_the_metadata_partition_can_be_described() -> None:
    for requested in [("orders", 0)], [("__cluster_metadata", 1)], [("__cluster_metadata", 0), ("orders", 0)]:
        response = send_request(QUORUM, *requested)
        errors = [partition.error_code for topic in response.topics for partition in topic.partitions]
        assert errors == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * len(requested)


def test_a_node_that_does_not_lead_answers_not_leader() -> None:
    response = send_request(None, ("__cluster_metadata", 0))
    assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_it_needs_the_right_to_describe_the_cluster() -> None:
    assert (
        send_request(QUORUM, ("__cluster_metadata", 0), is_allowed=False).error_code
        == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    )
