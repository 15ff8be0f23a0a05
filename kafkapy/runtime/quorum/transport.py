"""The quorum's transport: a connection to each voter's controller listener and to each bootstrap server.

A request goes to the node's endpoint with the name of the controller listener. If a node's address changes, its old
connection is closed. A response that cannot be decoded, or that refuses the request as a whole, counts as no response:
the core backs off and retries, in the first of these cases after a pause.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from kafkapy.errors import ProtocolError
from kafkapy.metadata.image import KRAFT_VERSION
from kafkapy.protocol.api import API_VERSIONS
from kafkapy.protocol.client_connection import ClientRequest, newest_version
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.api_versions_response import ApiVersionsResponse
from kafkapy.protocol.primitives import Message
from kafkapy.raft.messages import (
    UNSUPPORTED_VERSION,
    Request,
    Response,
    UpdateVoterRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from kafkapy.raft.voters import Endpoint, Voter
from kafkapy.raft.wire import API_KEYS, PeerError, WirePeer, lowest_version, message_to_response, request_to_message
from kafkapy.record.errors import RecordsError
from kafkapy.runtime.peer import Peer
from kafkapy.runtime.quorum.exchange import KraftVersions

logger = logging.getLogger(__name__)

SOFTWARE_NAME = "kafkapy"
ZERO_MINIMUM_SINCE = 4
"""The first version of ApiVersions whose response includes features with minimum level 0."""
RESPONSE_SLACK_MS = 500
"""Added to the core's own time-out, so that the core detects it first."""
UNREADABLE_PAUSE_S = 1.0
"""The pause after a response that cannot be decoded, for example because the records are damaged on the leader's disk:
the next one is likely the same, may have 1 MiB, and would come 20 ms later."""
UNREADABLE = -2
"""Stands for the error code of such a response."""


class NetworkRaftTransport:
    """A RaftTransport (exchange.py) over network connections."""

    def __init__(
        self,
        *,
        wire: WirePeer,
        new_peer: Callable[[str, int], Peer],
        request_timeout_ms: int,
        bootstrap_servers: Mapping[int, tuple[str, int]],
        software_version: str = "0",
    ) -> None:
        """`bootstrap_servers`: host and port by the (negative) node id that the core uses."""
        self._wire = wire
        self._new_peer = new_peer
        self._timeout_ms = request_timeout_ms + RESPONSE_SLACK_MS
        self._bootstrap_servers = bootstrap_servers
        self._software_version = software_version
        self._peers: dict[int, Peer] = {}
        self._refusals: dict[tuple[int, str], int] = {}
        """The error codes with which nodes refused their last requests of a kind, each logged once; or UNREADABLE."""

    def send(
        self,
        node_id: int,
        endpoints: tuple[Endpoint, ...],
        request: Request,
        on_response: Callable[[Response | None], None],
    ) -> None:
        address = self._address_of(node_id, endpoints)
        if address is None:
            logger.debug("No address of listener %s is known for node %d", self._wire.listener_name, node_id)
            asyncio.get_running_loop().call_soon(on_response, None)  # never while the core still steps
            return
        api_key = API_KEYS[type(request)]

        def on_failure(is_unsupported: bool) -> None:
            on_response(_failure(request, is_unsupported))

        self._peer(node_id, address).send(
            ClientRequest(
                api_key=api_key,
                build=lambda version: request_to_message(request, version, self._wire),
                on_response=lambda message, version: self._on_message(node_id, request, message, version, on_response),
                on_failure=on_failure,
                timeout_ms=self._timeout_ms,
                min_version=lowest_version(request),
                max_version=newest_version(api_key),
            )
        )

    def query_kraft_versions(self, voter: Voter, on_versions: Callable[[KraftVersions], None]) -> None:
        address = self._address_of(voter.node_id, voter.endpoints)
        assert address is not None, "a voter's endpoints name the controllers' listener"
        peer = self._new_peer(*address)

        def end(versions: KraftVersions) -> None:
            peer.close()
            on_versions(versions)

        peer.send(
            ClientRequest(
                api_key=API_VERSIONS,
                build=lambda _: ApiVersionsRequest(SOFTWARE_NAME, client_software_version=self._software_version),
                on_response=lambda message, _: end(_kraft_versions(message)),
                on_failure=lambda _: end(ErrorCode.BROKER_NOT_AVAILABLE.name),
                timeout_ms=self._timeout_ms,
                min_version=ZERO_MINIMUM_SINCE,
                max_version=newest_version(API_VERSIONS),
            )
        )

    def close(self) -> None:
        """Close all connections; pending requests fail."""
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()

    def _address_of(self, node_id: int, endpoints: tuple[Endpoint, ...]) -> tuple[str, int] | None:
        if node_id < 0:
            return self._bootstrap_servers.get(node_id)
        for endpoint in endpoints:
            if endpoint.name == self._wire.listener_name:
                return endpoint.host, endpoint.port
        return None

    def _peer(self, node_id: int, address: tuple[str, int]) -> Peer:
        peer = self._peers.get(node_id)
        if peer is not None and (peer.host, peer.port) != address:
            peer.close()
            peer = None
        if peer is None:
            peer = self._peers[node_id] = self._new_peer(*address)
        return peer

    def _on_message(
        self,
        node_id: int,
        request: Request,
        message: Message,
        version: int,
        on_response: Callable[[Response | None], None],
    ) -> None:
        try:
            response = message_to_response(message, request, version, self._wire)
        except PeerError as error:
            self._log_refusal(node_id, type(request).__name__, error.code)
            response = None
        except (RecordsError, ProtocolError) as error:
            kind = type(request).__name__
            if self._is_new_refusal(node_id, kind, UNREADABLE):
                logger.warning("Cannot parse the response of node %d to %s, trying again: %s", node_id, kind, error)
            asyncio.get_running_loop().call_later(UNREADABLE_PAUSE_S, on_response, None)
            return
        else:
            self._log_recovery(node_id, type(request).__name__)
        on_response(response)

    def _log_refusal(self, node_id: int, request: str, code: int) -> None:
        """Log the error of a response to a request that is sent again, unless it was the same the last time.

        Deviation: Apache Kafka stops the node after CLUSTER_AUTHORIZATION_FAILED. Here it goes on to ask, because an
        ACL that was deleted by mistake would else stop all nodes at once.
        """
        if self._is_new_refusal(node_id, request, code):
            name = next((each.name for each in ErrorCode if each == code), str(code))
            logger.warning("Node %d refuses %s, trying again: %s", node_id, request, name)

    def _is_new_refusal(self, node_id: int, request: str, code: int) -> bool:
        """Keep the error code; return whether it differs from that of the last request of this kind."""
        before = self._refusals.get((node_id, request))
        self._refusals[node_id, request] = code
        return before != code

    def _log_recovery(self, node_id: int, request: str) -> None:
        if self._refusals and self._refusals.pop((node_id, request), None) is not None:
            logger.info("Node %d answers %s again", node_id, request)


def _kraft_versions(message: Message) -> KraftVersions:
    assert isinstance(message, ApiVersionsResponse)
    if message.error_code:
        return ErrorCode(message.error_code).name
    for feature in message.supported_features:
        if feature.name == KRAFT_VERSION:
            return feature.min_version, feature.max_version
    return 0, 0


def _failure(request: Request, is_unsupported: bool) -> Response | None:
    """Return the response to report for a failed request: None, or a refusal if the peer does not have the request.

    That is a pre-vote (KIP-996) or an UpdateRaftVoter (KIP-853).
    """
    if is_unsupported and isinstance(request, VoteRequest) and request.is_pre_vote:
        return VoteResponse(error=UNSUPPORTED_VERSION, leader_epoch=request.leader_epoch, leader_id=-1)
    if is_unsupported and isinstance(request, UpdateVoterRequest):
        return VoterChangeResponse(error=UNSUPPORTED_VERSION, leader_epoch=request.leader_epoch, leader_id=-1)
    return None
