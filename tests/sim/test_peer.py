"""A connection to another node on a simulated network: made when needed, given up in time, made anew with back-off."""

import asyncio
from typing import Any

from kafkapy.protocol.client_connection import ClientRequest
from kafkapy.protocol.messages.vote_request import VoteRequest
from kafkapy.runtime.peer import Peer, PeerSettings
from tests.simulator.loop import SimClock, SimLoop
from tests.simulator.network import SimConnector, SimListener, SimNetwork
from tests.simulator.wired_quorum import WiredCluster, host_of
from tests.support.chance import SeededRandom

ADDRESS = ("10.0.0.9", 9093)
VOTE = 52


class RequestingPeer:
    """A peer, and what became of the requests sent to it."""

    def __init__(self, loop: SimLoop, network: SimNetwork, address: tuple[str, int] = ADDRESS) -> None:
        self.loop = loop
        self.is_reachable = True
        self.connector = SimConnector(network, "10.0.0.1", lambda _address: self.is_reachable)
        self.peer = Peer(
            *address,
            connector=self.connector,
            clock=SimClock(loop),
            random=SeededRandom(1),
            settings=PeerSettings(
                client_id="node",
                software_version="0",
                connection_setup_timeout_ms=1000,
                reconnect_backoff_max_ms=1000,
            ),
        )

    async def send_request(self, *, min_version: int = 0, max_version: int = 2, timeout_ms: int = 5000) -> Any:
        """Return the response, or (whether its versions are to blame, after how many ms) where none comes."""
        done: asyncio.Future[Any] = self.loop.create_future()
        started_ms = self.loop.now_ms()
        self.peer.send(
            ClientRequest(
                api_key=VOTE,
                build=lambda version: VoteRequest(),
                on_response=lambda message, version: done.set_result(message),
                on_failure=lambda is_unsupported: done.set_result((is_unsupported, self.loop.now_ms() - started_ms)),
                timeout_ms=timeout_ms,
                min_version=min_version,
                max_version=max_version,
            )
        )
        return await done


async def serving(loop: SimLoop) -> tuple[WiredCluster, RequestingPeer]:
    cluster = WiredCluster(loop, 1)
    await cluster.start()
    return cluster, RequestingPeer(loop, cluster.network, (host_of(1), 9093))


async def test_requests_are_answered_over_one_connection(loop: SimLoop) -> None:
    cluster, requester = await serving(loop)
    responses = await asyncio.gather(requester.send_request(), requester.send_request(), requester.send_request())
    assert [response.error_code for response in responses] == [42, 42, 42]  # about no partition
    assert len(requester.connector.attempts) == 1
    requester.peer.close()
    await cluster.stop()


async def test_a_request_in_versions_that_the_peer_has_not_fails_without_the_connection(loop: SimLoop) -> None:
    cluster, requester = await serving(loop)
    is_unsupported, _ = await requester.send_request(min_version=3, max_version=9)
    assert is_unsupported
    assert (await requester.send_request()).error_code == 42
    assert len(requester.connector.attempts) == 1
    requester.peer.close()
    await cluster.stop()


async def test_a_refused_connection_fails_at_once_and_is_tried_again_after_a_growing_back_off(loop: SimLoop) -> None:
    requester = RequestingPeer(loop, SimNetwork(loop))
    waited_ms = [(await requester.send_request())[1] for _ in range(8)]
    assert waited_ms[0] < 2
    assert all(40 <= waited <= 62 for waited in waited_ms[1:2])
    assert waited_ms[1] < waited_ms[2] < waited_ms[3] < waited_ms[4]
    assert all(800 <= waited <= 1202 for waited in waited_ms[6:])


async def test_a_host_that_does_not_answer_is_given_up_after_the_set_up_timeout(loop: SimLoop) -> None:
    requester = RequestingPeer(loop, SimNetwork(loop))
    requester.is_reachable = False
    is_unsupported, waited_ms = await requester.send_request()
    assert not is_unsupported
    assert 1000 <= waited_ms <= 1010


async def test_an_attempt_that_begins_after_a_back_off_is_given_up_after_the_set_up_timeout_too(loop: SimLoop) -> None:
    requester = RequestingPeer(loop, SimNetwork(loop))
    requester.is_reachable = False
    await requester.send_request(timeout_ms=60_000)
    is_unsupported, waited_ms = await requester.send_request(timeout_ms=60_000)
    assert not is_unsupported
    assert 1000 <= waited_ms <= 1080


async def test_a_request_expires_by_its_own_timeout_while_no_connection_stands(loop: SimLoop) -> None:
    requester = RequestingPeer(loop, SimNetwork(loop))
    requester.is_reachable = False
    _, waited_ms = await requester.send_request(timeout_ms=300)
    assert 300 <= waited_ms <= 310


async def test_a_peer_that_falls_silent_costs_the_connection_and_all_requests_on_it(loop: SimLoop) -> None:
    network = SimNetwork(loop)
    listener: SimListener = network.listen(*ADDRESS)  # no connection is accepted, so nothing is read from it
    requester = RequestingPeer(loop, network)
    first, second = await asyncio.gather(
        requester.send_request(timeout_ms=400), requester.send_request(timeout_ms=5000)
    )
    assert 400 <= first[1] <= 410
    assert second == (False, first[1])
    assert len(requester.connector.attempts) == 1
    listener.close()


async def test_a_connection_that_the_peer_closes_is_made_anew_for_the_next_request(loop: SimLoop) -> None:
    cluster, requester = await serving(loop)
    assert (await requester.send_request()).error_code == 42
    cluster.network.reset_connections(lambda a, b: True)
    await asyncio.sleep(0.5)
    assert (await requester.send_request()).error_code == 42
    assert len(requester.connector.attempts) == 2
    requester.peer.close()
    await cluster.stop()


async def test_a_connection_that_was_lost_is_made_anew_after_the_back_off(loop: SimLoop) -> None:
    cluster, requester = await serving(loop)
    assert (await requester.send_request()).error_code == 42
    cluster.network.reset_connections(lambda a, b: True)
    await asyncio.sleep(0.001)
    begin_ms = loop.now_ms()
    assert (await requester.send_request()).error_code == 42
    assert 35 <= loop.now_ms() - begin_ms <= 70
    requester.peer.close()
    await cluster.stop()


async def test_a_closed_peer_fails_what_waits_and_what_comes(loop: SimLoop) -> None:
    requester = RequestingPeer(loop, SimNetwork(loop))
    requester.is_reachable = False
    waiting = asyncio.ensure_future(requester.send_request())
    await asyncio.sleep(0.01)
    requester.peer.close()
    assert (await waiting)[0] is False
    assert (await requester.send_request())[0] is False
    assert len(requester.connector.attempts) == 1
