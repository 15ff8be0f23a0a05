"""AddRaftVoter 0-1, RemoveRaftVoter 0 and UpdateRaftVoter 0 on the wire (KIP-853).

AddRaftVoter 1 may be answered once the record is appended instead of committed (KIP-1186). A request that names no
voter is decoded, with the reason: only the leader refuses it so, another node answers NOT_LEADER_OR_FOLLOWER.
"""

from collections.abc import Sequence
from typing import Any, Final

from kafkapy.protocol.messages import add_raft_voter_request, update_raft_voter_request, update_raft_voter_response
from kafkapy.protocol.messages.add_raft_voter_request import AddRaftVoterRequest
from kafkapy.protocol.messages.add_raft_voter_response import AddRaftVoterResponse
from kafkapy.protocol.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from kafkapy.protocol.messages.remove_raft_voter_response import RemoveRaftVoterResponse
from kafkapy.protocol.messages.update_raft_voter_request import UpdateRaftVoterRequest
from kafkapy.protocol.messages.update_raft_voter_response import UpdateRaftVoterResponse
from kafkapy.raft import messages
from kafkapy.raft.voters import Endpoint, Voter
from kafkapy.raft.wire.peer import Part, PeerError, WirePeer
from kafkapy.types import ZERO_UUID, ReplicaKey

ACK_WHEN_COMMITTED_SINCE: Final = 1


def _key_problem(key: ReplicaKey, request: str) -> str | None:
    """Return why a key names no voter: it needs an id and a directory. `request` names the request in the message."""
    if key.node_id < 0 or key.directory_id == ZERO_UUID:
        return f"{request} voter request didn't include a valid voter"
    return None


def _endpoints(listeners: Sequence[Any]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(each.name, each.host, each.port) for each in listeners)


def _problem(voter: Voter, peer: WirePeer, request: str) -> str | None:
    """Return why this cannot be a voter: it also needs an endpoint on the controllers' listener."""
    if any(endpoint.name == peer.listener_name for endpoint in voter.endpoints):
        return _key_problem(voter.key, request)
    known = ", ".join(f"ListenerName({each.name})={each.host}/<unresolved>:{each.port}" for each in voter.endpoints)
    return _key_problem(voter.key, request) or (
        f"{request} voter request didn't include the endpoint (Endpoints(endpoints={{{known}}})) for the default "
        f"listener ListenerName({peer.listener_name})"
    )


class _AddRaftVoter:
    def to_request(self, request: messages.AddVoterRequest, version: int, peer: WirePeer) -> AddRaftVoterRequest:
        voter = request.voter
        return AddRaftVoterRequest(
            cluster_id=peer.cluster_id,
            timeout_ms=request.timeout_ms,
            voter_id=voter.node_id,
            voter_directory_id=voter.key.directory_id,
            listeners=[
                add_raft_voter_request.Listener(each.name, host=each.host, port=each.port) for each in voter.endpoints
            ],
            ack_when_committed=request.acknowledges_when_committed or version < ACK_WHEN_COMMITTED_SINCE,
        )

    def from_request(self, message: AddRaftVoterRequest, version: int, peer: WirePeer) -> messages.AddVoterRequest:
        peer.check_cluster_id(message.cluster_id)
        voter = Voter(ReplicaKey(message.voter_id, message.voter_directory_id), _endpoints(message.listeners))
        return messages.AddVoterRequest(
            voter=voter,
            timeout_ms=message.timeout_ms,
            acknowledges_when_committed=message.ack_when_committed or version < ACK_WHEN_COMMITTED_SINCE,
            problem=_problem(voter, peer, "Add"),
        )

    def to_response(self, response: messages.Response, _version: int, _peer: WirePeer) -> AddRaftVoterResponse:
        return AddRaftVoterResponse(error_code=response.error, error_message=_message_of(response))

    def from_response(self, message: AddRaftVoterResponse, _version: int, _peer: WirePeer) -> messages.Response:
        return messages.VoterChangeResponse(
            error=message.error_code, leader_epoch=-1, leader_id=-1, message=message.error_message
        )

    def refusal(self, error: PeerError) -> AddRaftVoterResponse:
        return AddRaftVoterResponse(error_code=error.code, error_message=error.message)


class _RemoveRaftVoter:
    def to_request(self, request: messages.RemoveVoterRequest, _version: int, peer: WirePeer) -> RemoveRaftVoterRequest:
        return RemoveRaftVoterRequest(
            cluster_id=peer.cluster_id,
            voter_id=request.voter.node_id,
            voter_directory_id=request.voter.directory_id,
        )

    def from_request(
        self, message: RemoveRaftVoterRequest, _version: int, peer: WirePeer
    ) -> messages.RemoveVoterRequest:
        peer.check_cluster_id(message.cluster_id)
        key = ReplicaKey(message.voter_id, message.voter_directory_id)
        return messages.RemoveVoterRequest(voter=key, problem=_key_problem(key, "Remove"))

    def to_response(self, response: messages.Response, _version: int, _peer: WirePeer) -> RemoveRaftVoterResponse:
        return RemoveRaftVoterResponse(error_code=response.error, error_message=_message_of(response))

    def from_response(self, message: RemoveRaftVoterResponse, _version: int, _peer: WirePeer) -> messages.Response:
        return messages.VoterChangeResponse(
            error=message.error_code, leader_epoch=-1, leader_id=-1, message=message.error_message
        )

    def refusal(self, error: PeerError) -> RemoveRaftVoterResponse:
        return RemoveRaftVoterResponse(error_code=error.code, error_message=error.message)


class _UpdateRaftVoter:
    def to_request(self, request: messages.UpdateVoterRequest, _version: int, peer: WirePeer) -> UpdateRaftVoterRequest:
        voter = request.voter
        return UpdateRaftVoterRequest(
            cluster_id=peer.cluster_id,
            current_leader_epoch=request.leader_epoch,
            voter_id=voter.node_id,
            voter_directory_id=voter.key.directory_id,
            listeners=[
                update_raft_voter_request.Listener(each.name, host=each.host, port=each.port)
                for each in voter.endpoints
            ],
            kraft_version_feature=update_raft_voter_request.KRaftVersionFeature(
                min_supported_version=voter.min_kraft_version, max_supported_version=voter.max_kraft_version
            ),
        )

    def from_request(
        self, message: UpdateRaftVoterRequest, _version: int, peer: WirePeer
    ) -> messages.UpdateVoterRequest:
        peer.check_cluster_id(message.cluster_id)
        feature = message.kraft_version_feature
        voter = Voter(
            ReplicaKey(message.voter_id, message.voter_directory_id),
            _endpoints(message.listeners),
            feature.min_supported_version,
            feature.max_supported_version,
        )
        return messages.UpdateVoterRequest(
            voter=voter, leader_epoch=message.current_leader_epoch, problem=_problem(voter, peer, "Update")
        )

    def to_response(self, response: messages.Response, _version: int, peer: WirePeer) -> UpdateRaftVoterResponse:
        address = peer.leader_address(response)
        host, port = (address.host, address.port) if address is not None else ("", 0)
        return UpdateRaftVoterResponse(
            error_code=response.error,
            current_leader=update_raft_voter_response.CurrentLeader(
                response.leader_id, leader_epoch=response.leader_epoch, host=host, port=port
            ),
        )

    def from_response(self, message: UpdateRaftVoterResponse, _version: int, peer: WirePeer) -> messages.Response:
        leader = message.current_leader
        endpoints = (Endpoint(peer.listener_name, leader.host, leader.port),) if leader.host else ()
        return messages.VoterChangeResponse(
            error=message.error_code,
            leader_epoch=leader.leader_epoch,
            leader_id=leader.leader_id,
            leader_endpoints=endpoints,
        )

    def refusal(self, error: PeerError) -> UpdateRaftVoterResponse:
        return UpdateRaftVoterResponse(error_code=error.code)


def _message_of(response: messages.Response) -> str | None:
    return response.message if isinstance(response, messages.VoterChangeResponse) else None


ADD_RAFT_VOTER: Final[Part] = _AddRaftVoter()
REMOVE_RAFT_VOTER: Final[Part] = _RemoveRaftVoter()
UPDATE_RAFT_VOTER: Final[Part] = _UpdateRaftVoter()
