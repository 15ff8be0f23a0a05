"""Requests of the quorum that a peer's versions do not have (an older Apache Kafka's controller)."""

from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.protocol.client_connection import ClientRequest
from kafkapy.raft import messages as m
from kafkapy.raft.wire import WirePeer
from kafkapy.runtime.quorum.transport import NetworkRaftTransport
from kafkapy.types import OffsetAndEpoch
from tests.support.quorums import local_voter

VOTE = m.VoteRequest(candidate=local_voter(1).key, leader_epoch=3, end=OffsetAndEpoch(0, 0), is_pre_vote=False)
PRE_VOTE = m.VoteRequest(candidate=local_voter(1).key, leader_epoch=3, end=OffsetAndEpoch(0, 0), is_pre_vote=True)
UPDATE = m.UpdateVoterRequest(voter=local_voter(1), leader_epoch=3)


def response_of_an_older_peer(request: m.Request, *, is_unsupported: bool) -> m.Response | None:
    """Return what the core hears of a request that fails, for want of a version or with its connection."""

    def send(sent: ClientRequest) -> None:
        sent.on_failure(is_unsupported)

    def new_peer(host: str, port: int) -> Any:
        return SimpleNamespace(host=host, port=port, send=send)

    responses: list[m.Response | None] = []
    wire = WirePeer("cluster", local_voter(2).endpoints[0].name)
    transport = NetworkRaftTransport(wire=wire, new_peer=new_peer, request_timeout_ms=2000, bootstrap_servers={})
    transport.send(2, local_voter(2).endpoints, request, responses.append)
    (response,) = responses
    return response


@pytest.mark.parametrize("request_", [PRE_VOTE, UPDATE])
def test_the_core_is_told_that_a_peer_is_too_old(request_: m.Request) -> None:
    response = response_of_an_older_peer(request_, is_unsupported=True)
    assert response is not None
    assert (response.error, response.leader_epoch, response.leader_id) == (m.UNSUPPORTED_VERSION, 3, -1)
    assert response_of_an_older_peer(request_, is_unsupported=False) is None


def test_a_vote_without_a_response_is_none() -> None:
    assert response_of_an_older_peer(VOTE, is_unsupported=True) is None
