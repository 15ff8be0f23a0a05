"""Vote 0-2, BeginQuorumEpoch 0-1 and EndQuorumEpoch 0-1 on the wire.

Vote 1: directories of candidate and voter, the leader's endpoints (KIP-853); 2: pre-votes (KIP-996).
BeginQuorumEpoch 1 and EndQuorumEpoch 1: directories, the leader's endpoints (KIP-853).
"""

from collections.abc import Sequence
from typing import Any, Final

from kafkapy.protocol.messages import (
    begin_quorum_epoch_request,
    begin_quorum_epoch_response,
    end_quorum_epoch_request,
    end_quorum_epoch_response,
    vote_request,
    vote_response,
)
from kafkapy.protocol.messages.begin_quorum_epoch_request import BeginQuorumEpochRequest
from kafkapy.protocol.messages.begin_quorum_epoch_response import BeginQuorumEpochResponse
from kafkapy.protocol.messages.end_quorum_epoch_request import EndQuorumEpochRequest
from kafkapy.protocol.messages.end_quorum_epoch_response import EndQuorumEpochResponse
from kafkapy.protocol.messages.vote_request import VoteRequest
from kafkapy.protocol.messages.vote_response import VoteResponse
from kafkapy.raft import messages
from kafkapy.raft.voters import Endpoint
from kafkapy.raft.wire.peer import Part, PeerError, WirePeer, check_error, only_partition
from kafkapy.types import METADATA_PARTITION, ZERO_UUID, OffsetAndEpoch, ReplicaKey

PRE_VOTE_SINCE: Final = 2
ENDPOINTS_SINCE: Final = 1
CANDIDATES_SINCE: Final = 1

_TOPIC, _PARTITION = METADATA_PARTITION


def _key_of(voter: ReplicaKey | None) -> ReplicaKey:
    return voter or ReplicaKey(-1, ZERO_UUID)


def _voter_of(node_id: int, directory_id: bytes) -> ReplicaKey | None:
    return ReplicaKey(node_id, directory_id) if node_id >= 0 else None


def _endpoints(listeners: Sequence[Any]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(each.name, each.host, each.port) for each in listeners)


class _Vote:
    def to_request(self, request: messages.VoteRequest, _version: int, peer: WirePeer) -> VoteRequest:
        voter = _key_of(request.voter)
        partition = vote_request.PartitionData(
            partition_index=_PARTITION,
            replica_epoch=request.leader_epoch,
            replica_id=request.candidate.node_id,
            replica_directory_id=request.candidate.directory_id,
            voter_directory_id=voter.directory_id,
            last_offset_epoch=request.end.leader_epoch,
            last_offset=request.end.offset,
            pre_vote=request.is_pre_vote,
        )
        topic = vote_request.TopicData(topic_name=_TOPIC, partitions=[partition])
        return VoteRequest(cluster_id=peer.cluster_id, voter_id=voter.node_id, topics=[topic])

    def from_request(self, message: VoteRequest, _version: int, peer: WirePeer) -> messages.VoteRequest:
        peer.check_cluster_id(message.cluster_id)
        partition = only_partition(message.topics)
        return messages.VoteRequest(
            candidate=ReplicaKey(partition.replica_id, partition.replica_directory_id),
            leader_epoch=partition.replica_epoch,
            end=OffsetAndEpoch(partition.last_offset, partition.last_offset_epoch),
            is_pre_vote=partition.pre_vote,
            voter=_voter_of(message.voter_id, partition.voter_directory_id),
        )

    def to_response(self, response: messages.VoteResponse, version: int, peer: WirePeer) -> VoteResponse:
        partition = vote_response.PartitionData(
            partition_index=_PARTITION,
            error_code=response.error,
            leader_id=response.leader_id,
            leader_epoch=response.leader_epoch,
            vote_granted=response.is_granted,
        )
        found = VoteResponse(topics=[vote_response.TopicData(topic_name=_TOPIC, partitions=[partition])])
        address = peer.leader_address(response)
        if version >= ENDPOINTS_SINCE and address is not None:
            found.node_endpoints = [
                vote_response.NodeEndpoint(response.leader_id, host=address.host, port=address.port)
            ]
        return found

    def from_response(self, message: VoteResponse, _version: int, peer: WirePeer) -> messages.VoteResponse:
        check_error(message.error_code)
        partition = only_partition(message.topics)
        return messages.VoteResponse(
            error=partition.error_code,
            leader_epoch=partition.leader_epoch,
            leader_id=partition.leader_id,
            leader_endpoints=peer.endpoints_of(partition.leader_id, message.node_endpoints),
            is_granted=partition.vote_granted,
        )

    def refusal(self, error: PeerError) -> VoteResponse:
        return VoteResponse(error_code=error.code)


class _BeginQuorumEpoch:
    def to_request(self, request: messages.BeginEpochRequest, version: int, peer: WirePeer) -> BeginQuorumEpochRequest:
        voter = _key_of(request.voter)
        partition = begin_quorum_epoch_request.PartitionData(
            partition_index=_PARTITION,
            voter_directory_id=voter.directory_id if version >= ENDPOINTS_SINCE else ZERO_UUID,
            leader_id=request.leader_id,
            leader_epoch=request.leader_epoch,
        )
        found = BeginQuorumEpochRequest(
            cluster_id=peer.cluster_id,
            topics=[begin_quorum_epoch_request.TopicData(topic_name=_TOPIC, partitions=[partition])],
        )
        if version >= ENDPOINTS_SINCE:
            found.voter_id = voter.node_id
            found.leader_endpoints = [
                begin_quorum_epoch_request.LeaderEndpoint(each.name, host=each.host, port=each.port)
                for each in request.leader_endpoints
            ]
        return found

    def from_request(
        self, message: BeginQuorumEpochRequest, _version: int, peer: WirePeer
    ) -> messages.BeginEpochRequest:
        peer.check_cluster_id(message.cluster_id)
        partition = only_partition(message.topics)
        return messages.BeginEpochRequest(
            leader_id=partition.leader_id,
            leader_epoch=partition.leader_epoch,
            leader_endpoints=_endpoints(message.leader_endpoints),
            voter=_voter_of(message.voter_id, partition.voter_directory_id),
        )

    def to_response(
        self, response: messages.BeginEpochResponse, version: int, peer: WirePeer
    ) -> BeginQuorumEpochResponse:
        partition = begin_quorum_epoch_response.PartitionData(
            partition_index=_PARTITION,
            error_code=response.error,
            leader_id=response.leader_id,
            leader_epoch=response.leader_epoch,
        )
        topic = begin_quorum_epoch_response.TopicData(topic_name=_TOPIC, partitions=[partition])
        found = BeginQuorumEpochResponse(topics=[topic])
        address = peer.leader_address(response)
        if version >= ENDPOINTS_SINCE and address is not None:
            found.node_endpoints = [
                begin_quorum_epoch_response.NodeEndpoint(response.leader_id, host=address.host, port=address.port)
            ]
        return found

    def from_response(
        self, message: BeginQuorumEpochResponse, _version: int, peer: WirePeer
    ) -> messages.BeginEpochResponse:
        check_error(message.error_code)
        partition = only_partition(message.topics)
        return messages.BeginEpochResponse(
            error=partition.error_code,
            leader_epoch=partition.leader_epoch,
            leader_id=partition.leader_id,
            leader_endpoints=peer.endpoints_of(partition.leader_id, message.node_endpoints),
        )

    def refusal(self, error: PeerError) -> BeginQuorumEpochResponse:
        return BeginQuorumEpochResponse(error_code=error.code)


class _EndQuorumEpoch:
    def to_request(self, request: messages.EndEpochRequest, version: int, peer: WirePeer) -> EndQuorumEpochRequest:
        partition = end_quorum_epoch_request.PartitionData(
            partition_index=_PARTITION, leader_id=request.leader_id, leader_epoch=request.leader_epoch
        )
        found = EndQuorumEpochRequest(
            cluster_id=peer.cluster_id,
            topics=[end_quorum_epoch_request.TopicData(topic_name=_TOPIC, partitions=[partition])],
        )
        if version >= CANDIDATES_SINCE:
            partition.preferred_candidates = [
                end_quorum_epoch_request.ReplicaInfo(key.node_id, candidate_directory_id=key.directory_id)
                for key in request.preferred_successors
            ]
            found.leader_endpoints = [
                end_quorum_epoch_request.LeaderEndpoint(each.name, host=each.host, port=each.port)
                for each in request.leader_endpoints
            ]
        else:
            partition.preferred_successors = [key.node_id for key in request.preferred_successors]
        return found

    def from_request(self, message: EndQuorumEpochRequest, version: int, peer: WirePeer) -> messages.EndEpochRequest:
        peer.check_cluster_id(message.cluster_id)
        partition = only_partition(message.topics)
        if version >= CANDIDATES_SINCE:
            successors = [
                ReplicaKey(each.candidate_id, each.candidate_directory_id) for each in partition.preferred_candidates
            ]
        else:
            successors = [ReplicaKey(node_id, ZERO_UUID) for node_id in partition.preferred_successors]
        return messages.EndEpochRequest(
            leader_id=partition.leader_id,
            leader_epoch=partition.leader_epoch,
            preferred_successors=tuple(successors),
            leader_endpoints=_endpoints(message.leader_endpoints),
        )

    def to_response(self, response: messages.EndEpochResponse, version: int, peer: WirePeer) -> EndQuorumEpochResponse:
        partition = end_quorum_epoch_response.PartitionData(
            partition_index=_PARTITION,
            error_code=response.error,
            leader_id=response.leader_id,
            leader_epoch=response.leader_epoch,
        )
        topic = end_quorum_epoch_response.TopicData(topic_name=_TOPIC, partitions=[partition])
        found = EndQuorumEpochResponse(topics=[topic])
        address = peer.leader_address(response)
        if version >= ENDPOINTS_SINCE and address is not None:
            found.node_endpoints = [
                end_quorum_epoch_response.NodeEndpoint(response.leader_id, host=address.host, port=address.port)
            ]
        return found

    def from_response(
        self, message: EndQuorumEpochResponse, _version: int, peer: WirePeer
    ) -> messages.EndEpochResponse:
        check_error(message.error_code)
        partition = only_partition(message.topics)
        return messages.EndEpochResponse(
            error=partition.error_code,
            leader_epoch=partition.leader_epoch,
            leader_id=partition.leader_id,
            leader_endpoints=peer.endpoints_of(partition.leader_id, message.node_endpoints),
        )

    def refusal(self, error: PeerError) -> EndQuorumEpochResponse:
        return EndQuorumEpochResponse(error_code=error.code)


VOTE: Final[Part] = _Vote()
BEGIN_QUORUM_EPOCH: Final[Part] = _BeginQuorumEpoch()
END_QUORUM_EPOCH: Final[Part] = _EndQuorumEpoch()
