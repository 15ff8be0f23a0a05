"""Adds controllers to, and removes them from, the quorum of a running cluster on this machine (KIP-853)."""

import time
from typing import Final

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.add_raft_voter_request import AddRaftVoterRequest, Listener
from kafkapy.protocol.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from kafkapy.protocol.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from kafkapy.server.cluster.plan import HOST, ClusterError, NodePlan
from kafkapy.server.cluster.queries import Address, query
from kafkapy.types import METADATA_PARTITION, Uuid

POLL_S: Final = 0.2
ANSWER_MS: Final = 10_000
CONTROLLER_LISTENER: Final = "CONTROLLER"
AGAIN: Final = frozenset(
    (
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    )
)
"""Codes to retry: the node has not caught up, another change is pending, or the leader has changed."""


def join_quorum(address: Address, cluster_id: str, node: NodePlan, directory_id: Uuid, *, timeout_s: float) -> None:
    """Make a running controller a voter, by a request to a broker. Raises ClusterError, OSError, ProtocolError."""
    request = AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=ANSWER_MS,
        voter_id=node.node_id,
        voter_directory_id=directory_id,
        listeners=[Listener(CONTROLLER_LISTENER, host=HOST, port=node.advertised_controller_port)],
    )
    _change(address, request, done=ErrorCode.DUPLICATE_VOTER, timeout_s=timeout_s)


def leave_quorum(
    address: Address, cluster_id: str, node_id: int, *, timeout_s: float, kept: Uuid | None = None
) -> None:
    """Remove a node from the voters, if it is one; `kept`: its directory that stays a voter's.

    Raises ClusterError, OSError, ProtocolError.
    """
    for directory_id in _directories(address, node_id, timeout_s):
        if directory_id == kept:
            continue
        request = RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=node_id, voter_directory_id=directory_id)
        _change(address, request, done=ErrorCode.VOTER_NOT_FOUND, timeout_s=timeout_s)


def _directories(address: Address, node_id: int, timeout_s: float) -> list[Uuid]:
    """Return the directory ids of a voter's node; waits for an active controller. Raises as `leave_quorum`."""
    topic = TopicData(
        METADATA_PARTITION.topic, partitions=[PartitionData(partition_index=METADATA_PARTITION.partition)]
    )
    deadline = time.monotonic() + timeout_s
    while True:
        response = query(address, DescribeQuorumRequest(topics=[topic]))
        partitions = [each for described in response.topics for each in described.partitions if not each.error_code]
        if partitions and not response.error_code:
            voters = partitions[0].current_voters
            return [each.replica_directory_id for each in voters if each.replica_id == node_id]
        if time.monotonic() > deadline:
            raise ClusterError("no controller is active")
        time.sleep(POLL_S)


def _change(
    address: Address,
    request: AddRaftVoterRequest | RemoveRaftVoterRequest,
    *,
    done: ErrorCode,
    timeout_s: float,
) -> None:
    """Retry until the change is committed. `done`: the code if the change was made before."""
    deadline = time.monotonic() + timeout_s
    while True:
        response = query(address, request, timeout_s=2 * ANSWER_MS / 1000)
        if response.error_code in (ErrorCode.NONE, done):
            return
        if response.error_code not in AGAIN or time.monotonic() > deadline:
            raise ClusterError(response.error_message or ErrorCode(response.error_code).name)
        time.sleep(POLL_S)
