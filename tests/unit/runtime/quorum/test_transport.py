"""Requests of the quorum without a usable response: a peer lacks the version (an older Apache Kafka), or is damaged."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.protocol.client_connection import ClientRequest
from kafkapy.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from kafkapy.raft import messages as m
from kafkapy.raft.wire import WirePeer
from kafkapy.runtime.quorum.transport import UNREADABLE_PAUSE_S, NetworkRaftTransport
from kafkapy.types import ONE_UUID, OffsetAndEpoch
from tests.simulator.loop import SimLoop
from tests.support.batches import build_batch
from tests.support.quorums import local_voter

VOTE = m.VoteRequest(candidate=local_voter(1).key, leader_epoch=3, end=OffsetAndEpoch(0, 0), is_pre_vote=False)
PRE_VOTE = m.VoteRequest(candidate=local_voter(1).key, leader_epoch=3, end=OffsetAndEpoch(0, 0), is_pre_vote=True)
FETCH = m.FetchRequest(
    replica=local_voter(1).key,
    leader_epoch=3,
    fetch_offset=0,
    last_fetched_epoch=0,
    high_watermark=0,
    max_wait_ms=500,
    max_bytes=1 << 20,
)
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


async def test_damaged_records_are_requested_again_after_a_pause_and_logged_once(
    loop: SimLoop, caplog: pytest.LogCaptureFixture
) -> None:
    """They stay so until another node leads: at each of 50 attempts a second 1 MiB would be read, sent and checked."""
    damaged = build_batch([(5, None, b"value", ())], leader_epoch=2)[:-1] + b"x"
    topic = FetchableTopicResponse(topic_id=ONE_UUID, partitions=[PartitionData(0, records=damaged)])

    def new_peer(host: str, port: int) -> Any:
        def send(sent: ClientRequest) -> None:
            sent.on_response(FetchResponse(responses=[topic]), 17)

        return SimpleNamespace(host=host, port=port, send=send)

    responses: list[m.Response | None] = []
    wire = WirePeer("cluster", local_voter(2).endpoints[0].name)
    transport = NetworkRaftTransport(wire=wire, new_peer=new_peer, request_timeout_ms=2000, bootstrap_servers={})
    with caplog.at_level(logging.WARNING):
        for count in range(3):
            transport.send(2, local_voter(2).endpoints, FETCH, responses.append)
            assert len(responses) == count
            await asyncio.sleep(UNREADABLE_PAUSE_S + 0.1)
            assert len(responses) == count + 1
    assert responses == [None] * 3
    assert [each.message[:30] for each in caplog.records] == ["Cannot parse the response of n"]
