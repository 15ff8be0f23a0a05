"""What `kafkapy cluster` makes of a cluster's responses. tests/compat/test_any_cluster.py asks whole clusters."""

from collections.abc import Callable
from typing import Any

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_cluster_response import DescribeClusterBroker, DescribeClusterResponse
from kafkapy.protocol.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kafkapy.protocol.messages.describe_quorum_response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from kafkapy.protocol.messages.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kafkapy.protocol.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from kafkapy.protocol.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from kafkapy.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafkapy.protocol.messages.remove_raft_voter_response import RemoveRaftVoterResponse
from kafkapy.server.cluster.electing import elect
from kafkapy.server.cluster.joining import join, leave
from kafkapy.server.cluster.plan import ClusterError
from kafkapy.server.cluster.status import status_of_brokers, status_of_controllers
from kafkapy.server.cluster.throttling import Move, lift, limit
from kafkapy.types import Uuid

NOW_MS = 100_000
D1, D2, D3, D9 = (Uuid(bytes([number]) * 16) for number in (1, 2, 3, 9))


class Cluster:
    """Answers what a test says, by the type of the request; keeps the requests."""

    def __init__(self, **responses: Any) -> None:
        self.requests: list[Any] = []
        self._responses = responses

    def __call__(self, request: Any, *, timeout_s: float = 1) -> Any:
        self.requests.append(request)
        response = self._responses[type(request).__name__.removesuffix("Request")]
        return response(request) if isinstance(response, Callable) else response  # type: ignore[arg-type]


def fetched(node_id: int, directory_id: bytes, *, offset: int = 50, ago_ms: int = 0) -> ReplicaState:
    return ReplicaState(
        replica_id=node_id,
        replica_directory_id=directory_id,
        log_end_offset=offset,
        last_fetch_timestamp=NOW_MS - ago_ms,
    )


def quorum(voters: list[ReplicaState], observers: list[ReplicaState]) -> DescribeQuorumResponse:
    partition = PartitionData(leader_id=1, leader_epoch=7, current_voters=voters, observers=observers)
    nodes = [Node(each.replica_id, listeners=[Listener("CTRL", host="h", port=9093)]) for each in voters]
    return DescribeQuorumResponse(topics=[TopicData("__cluster_metadata", partitions=[partition])], nodes=nodes)


THREE = quorum(
    [fetched(1, D1), fetched(2, D2, offset=48), fetched(3, D3, offset=20, ago_ms=60_000)],
    [fetched(3, D9, offset=49), fetched(4, D9, ago_ms=400_000, offset=-1)],
)
"""Node 3 is a voter with a directory that is gone, and follows with another."""


def partition(index: int, isr: list[int], leader_id: int = 1) -> MetadataResponsePartition:
    return MetadataResponsePartition(partition_index=index, leader_id=leader_id, replica_nodes=[1, 2, 3], isr_nodes=isr)


def brokers_with(*partitions: MetadataResponsePartition) -> Cluster:
    brokers = [DescribeClusterBroker(node_id, host="h", port=node_id, is_fenced=node_id == 3) for node_id in (1, 2, 3)]
    value = DescribeConfigsResourceResult(name="min.insync.replicas", value="2")
    return Cluster(
        DescribeCluster=DescribeClusterResponse(cluster_id="c", brokers=brokers),
        DescribeQuorum=THREE,
        Metadata=MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=list(partitions))]),
        DescribeConfigs=DescribeConfigsResponse(results=[DescribeConfigsResult(resource_name="t", configs=[value])]),
        ListPartitionReassignments=ListPartitionReassignmentsResponse(
            topics=[OngoingTopicReassignment("t", partitions=[OngoingPartitionReassignment(2)])]
        ),
    )


def test_partitions_at_and_below_min_insync_replicas_are_told_apart() -> None:
    cluster = brokers_with(partition(0, [1, 2, 3]), partition(1, [1, 2]), partition(2, [2], leader_id=2))
    found = status_of_brokers(cluster, lambda host, port: True)
    assert found.partitions is not None
    assert (found.at_min_isr, found.under_min_isr, found.reassigning) == (["t-1"], ["t-2"], ["t-2"])
    assert found.partitions.under_replicated == ["t-1", "t-2"]


def test_nodes_are_shown_with_roles_and_states() -> None:
    found = status_of_brokers(brokers_with(partition(0, [2], leader_id=2)), lambda host, port: port != 2)
    assert [(each.node_id, each.roles, each.state) for each in found.nodes] == [
        (1, "broker,controller", "running, active controller"),
        (2, "broker,controller", "unreachable"),
        (3, "broker,controller", "fenced"),
    ]
    assert found.at_risk == ["t-0"]


def test_a_voter_whose_directory_was_replaced_is_without_a_vote() -> None:
    found = status_of_brokers(brokers_with(), lambda host, port: True)
    assert [(each.node_id, each.lag) for each in found.controllers_without_vote] == [(3, 1)]
    assert found.quorum is not None
    assert [(each.node_id, each.lag, each.is_silent) for each in found.quorum.replicas] == [
        (1, 0, False),
        (2, 2, False),
        (3, 30, True),
    ]


def test_controllers_tell_of_nodes_that_are_no_voters() -> None:
    nodes = [DescribeClusterBroker(node_id, host="h", port=9000 + node_id) for node_id in (1, 2, 3)]
    cluster = Cluster(DescribeCluster=DescribeClusterResponse(brokers=nodes), DescribeQuorum=THREE)
    found = status_of_controllers(cluster)
    assert [(each.node_id, each.roles, each.address, each.state) for each in found.nodes] == [
        (1, "controller", "h:9001", "running, active controller"),
        (2, "controller", "h:9002", "running"),
        (3, "controller", "h:9003", "running"),
        (4, "broker", "", "silent"),
    ]
    assert found.partitions is None


def joined(cluster: Cluster, node_id: int, *, address: str = "", of_controllers: bool = False) -> None:
    join(cluster, node_id, directory_id="", address=address, of_controllers=of_controllers, timeout_s=1)


@pytest.mark.parametrize(
    ("node_id", "address", "error"),
    [
        (2, "", "node 2 is a voter, and follows with no other directory"),
        (5, "", "node 5 does not follow the quorum: format it with"),
        (4, "", "node 4 does not follow the quorum"),
        (3, "h", "--address h is not HOST:PORT"),
    ],
)
def test_what_cannot_become_a_voter_is_told(node_id: int, address: str, error: str) -> None:
    with pytest.raises(ClusterError, match=error):
        joined(Cluster(DescribeQuorum=THREE), node_id, address=address)


def test_an_observer_that_was_no_voter_needs_an_address() -> None:
    cluster = Cluster(DescribeQuorum=quorum([fetched(1, D1)], [fetched(2, D2)]))
    with pytest.raises(ClusterError, match="where do the others reach node 2"):
        joined(cluster, 2)


def test_a_lost_directory_leaves_before_the_new_one_joins() -> None:
    response = RemoveRaftVoterResponse()
    cluster = Cluster(DescribeQuorum=THREE, RemoveRaftVoter=response, AddRaftVoter=response)
    joined(cluster, 3)
    removed, added = [each for each in cluster.requests if "RaftVoter" in type(each).__name__]
    assert (removed.voter_id, removed.voter_directory_id) == (3, D3)
    assert (added.voter_id, added.voter_directory_id) == (3, D9)
    assert [(each.name, each.host, each.port) for each in added.listeners] == [("CTRL", "h", 9093)]


def test_static_voters_do_not_change() -> None:
    zero = Uuid(bytes(16))
    with pytest.raises(ClusterError, match=r"the voters are those of controller\.quorum\.voters"):
        leave(Cluster(DescribeQuorum=quorum([fetched(1, zero)], [])), 1, directory_id="", timeout_s=1)


def test_the_directory_of_a_voter_with_two_is_asked_for() -> None:
    two = quorum([fetched(1, D1), fetched(1, D2)], [])
    with pytest.raises(ClusterError, match="--directory says which leaves"):
        leave(Cluster(DescribeQuorum=two), 1, directory_id="", timeout_s=1)


def test_an_election_that_is_not_needed_is_no_error() -> None:
    results = [
        PartitionResult(0),
        PartitionResult(1, error_code=ErrorCode.ELECTION_NOT_NEEDED),
        PartitionResult(2, error_code=ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, error_message=None),
    ]
    response = ElectLeadersResponse(replica_election_results=[ReplicaElectionResult("t", partition_result=results)])
    assert elect(Cluster(ElectLeaders=response), None) == (["t-0"], {"t-2": "PREFERRED_LEADER_NOT_AVAILABLE"})


def test_a_throttle_names_each_moving_replica_once() -> None:
    cluster = Cluster(IncrementalAlterConfigs=IncrementalAlterConfigsResponse())
    limit(cluster, 1000, [Move("t", 0, [1, 2], [3]), Move("t", 4, [2], [])])
    lift(cluster, ["t"])
    set_, taken = ([config for each in request.resources for config in each.configs] for request in cluster.requests)
    assert [(each.name.partition(".")[0], each.config_operation, each.value) for each in set_] == [
        ("leader", 0, "1000"),
        ("follower", 0, "1000"),
        ("leader", 0, "0:1,0:2,4:2"),
        ("follower", 0, "0:3"),
    ]
    assert {(each.config_operation, each.value) for each in taken} == {(1, None)}
