"""Conversion between the core's messages and Apache Kafka's requests and responses. Pure.

`request_to_message` and `message_to_response` are for the sender of a request, `message_to_request` and
`response_to_message` for its receiver. Every request is about `__cluster_metadata-0` only; a request about anything
else, or from another cluster, is refused before the core sees it. Sources: KIP-595, KIP-630, KIP-853, KIP-996.

peer.py           the cluster id and listener that conversion needs; the error by which a message is refused
election.py       Vote, BeginQuorumEpoch, EndQuorumEpoch
replication.py    Fetch, FetchSnapshot
membership.py     AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter

Called by `runtime/quorum/transport.py` and `handlers/cluster/raft_requests.py`.
"""

from typing import Final

from kafkapy.protocol.primitives import Message
from kafkapy.raft.messages import (
    AddVoterRequest,
    BeginEpochRequest,
    EndEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    RemoveVoterRequest,
    Request,
    Response,
    UpdateVoterRequest,
    VoteRequest,
)
from kafkapy.raft.wire import election, membership, replication
from kafkapy.raft.wire.peer import PeerError, WirePeer

__all__ = [
    "ADD_RAFT_VOTER",
    "API_KEYS",
    "REMOVE_RAFT_VOTER",
    "UPDATE_RAFT_VOTER",
    "PeerError",
    "WirePeer",
    "lowest_version",
    "message_to_request",
    "message_to_response",
    "refusal",
    "request_to_message",
    "response_to_message",
]

FETCH: Final = 1
VOTE: Final = 52
BEGIN_QUORUM_EPOCH: Final = 53
END_QUORUM_EPOCH: Final = 54
FETCH_SNAPSHOT: Final = 59
ADD_RAFT_VOTER: Final = 80
REMOVE_RAFT_VOTER: Final = 81
UPDATE_RAFT_VOTER: Final = 82

API_KEYS: Final[dict[type[Request], int]] = {
    VoteRequest: VOTE,
    BeginEpochRequest: BEGIN_QUORUM_EPOCH,
    EndEpochRequest: END_QUORUM_EPOCH,
    FetchRequest: FETCH,
    FetchSnapshotRequest: FETCH_SNAPSHOT,
    AddVoterRequest: ADD_RAFT_VOTER,
    RemoveVoterRequest: REMOVE_RAFT_VOTER,
    UpdateVoterRequest: UPDATE_RAFT_VOTER,
}

_PARTS = {
    VOTE: election.VOTE,
    BEGIN_QUORUM_EPOCH: election.BEGIN_QUORUM_EPOCH,
    END_QUORUM_EPOCH: election.END_QUORUM_EPOCH,
    FETCH: replication.FETCH,
    FETCH_SNAPSHOT: replication.FETCH_SNAPSHOT,
    ADD_RAFT_VOTER: membership.ADD_RAFT_VOTER,
    REMOVE_RAFT_VOTER: membership.REMOVE_RAFT_VOTER,
    UPDATE_RAFT_VOTER: membership.UPDATE_RAFT_VOTER,
}


def lowest_version(request: Request) -> int:
    """Return the lowest version that can carry the request."""
    if isinstance(request, VoteRequest) and request.is_pre_vote:
        return election.PRE_VOTE_SINCE
    if isinstance(request, FetchRequest):
        return replication.LAST_FETCHED_EPOCH_SINCE
    if isinstance(request, AddVoterRequest) and not request.acknowledges_when_committed:
        return membership.ACK_WHEN_COMMITTED_SINCE
    return 0


def request_to_message(request: Request, version: int, peer: WirePeer) -> Message:
    """Encode a request at `version`."""
    return _PARTS[API_KEYS[type(request)]].to_request(request, version, peer)


def message_to_response(message: Message, request: Request, version: int, peer: WirePeer) -> Response:
    """Decode a response. Raises PeerError for a top-level error code; RecordsError, ProtocolError."""
    response: Response = _PARTS[API_KEYS[type(request)]].from_response(message, version, peer)
    return response


def message_to_request(message: Message, version: int, peer: WirePeer) -> Request:
    """Decode a request. Raises PeerError (INCONSISTENT_CLUSTER_ID, INVALID_REQUEST): answer it with `refusal`."""
    assert message.API_KEY is not None
    request: Request = _PARTS[message.API_KEY].from_request(message, version, peer)
    return request


def response_to_message(response: Response, request: Message, version: int, peer: WirePeer) -> Message:
    """Encode a response at `version`."""
    assert request.API_KEY is not None
    return _PARTS[request.API_KEY].to_response(response, version, peer)


def refusal(error: PeerError, request: Message) -> Message:
    """Return the response with a top-level error that refuses a request."""
    assert request.API_KEY is not None
    return _PARTS[request.API_KEY].refusal(error)
