"""Adds controllers to, and removes them from, the quorum of a running cluster (KIP-853)."""

import time
from typing import Final

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.add_raft_voter_request import AddRaftVoterRequest, Listener
from kafkapy.protocol.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from kafkapy.protocol.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from kafkapy.server.cluster.plan import ClusterError
from kafkapy.server.cluster.queries import Ask
from kafkapy.storage.offline.format import Voter
from kafkapy.types import METADATA_PARTITION, Uuid

POLL_S: Final = 0.2
RESPONSE_MS: Final = 10_000
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


def replace_voter(ask: Ask, cluster_id: str | None, voter: Voter, listener_name: str, *, timeout_s: float) -> None:
    """Make a running controller a voter, in place of one with a former directory of the same node.

    cluster_id: refused by another cluster; None for whichever answers. Raises ClusterError, OSError, ProtocolError.
    """
    for directory_id in _directories(ask, voter.node_id, timeout_s):
        if directory_id != voter.directory_id:
            remove_voter(ask, cluster_id, voter.node_id, directory_id, timeout_s=timeout_s)
    request = AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=RESPONSE_MS,
        voter_id=voter.node_id,
        voter_directory_id=voter.directory_id,
        listeners=[Listener(listener_name, host=voter.host, port=voter.port)],
    )
    _change(ask, request, done=ErrorCode.DUPLICATE_VOTER, timeout_s=timeout_s)


def leave_quorum(ask: Ask, cluster_id: str | None, node_id: int, *, timeout_s: float) -> None:
    """Remove a node from the voters, if it is one. Raises as `replace_voter`."""
    for directory_id in _directories(ask, node_id, timeout_s):
        remove_voter(ask, cluster_id, node_id, directory_id, timeout_s=timeout_s)


def remove_voter(ask: Ask, cluster_id: str | None, node_id: int, directory_id: Uuid, *, timeout_s: float) -> None:
    """Remove a directory from the voters, if it is one's. Raises as `replace_voter`."""
    request = RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=node_id, voter_directory_id=directory_id)
    _change(ask, request, done=ErrorCode.VOTER_NOT_FOUND, timeout_s=timeout_s)


def _directories(ask: Ask, node_id: int, timeout_s: float) -> list[Uuid]:
    """Return the directory ids of a voter's node; waits for an active controller. Raises as `replace_voter`."""
    topic = TopicData(
        METADATA_PARTITION.topic, partitions=[PartitionData(partition_index=METADATA_PARTITION.partition)]
    )
    deadline = time.monotonic() + timeout_s
    while True:
        response = ask(DescribeQuorumRequest(topics=[topic]))
        partitions = [each for described in response.topics for each in described.partitions if not each.error_code]
        if partitions and not response.error_code:
            voters = partitions[0].current_voters
            return [each.replica_directory_id for each in voters if each.replica_id == node_id]
        if time.monotonic() > deadline:
            raise ClusterError("no controller is active")
        time.sleep(POLL_S)


def _change(
    ask: Ask,
    request: AddRaftVoterRequest | RemoveRaftVoterRequest,
    *,
    done: ErrorCode,
    timeout_s: float,
) -> None:
    """Retry until the change is committed. `done`: the code if the change was made before."""
    deadline = time.monotonic() + timeout_s
    while True:
        response = ask(request, timeout_s=2 * RESPONSE_MS / 1000)
        if response.error_code in (ErrorCode.NONE, done):
            return
        if response.error_code not in AGAIN or time.monotonic() > deadline:
            raise ClusterError(response.error_message or ErrorCode(response.error_code).name)
        time.sleep(POLL_S)
