"""A node that was stopped for longer than a request's time-out reads what has arrived before it gives a peer up."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from kafkapy.protocol.client_connection import ClientRequest
from kafkapy.protocol.headers import write_response_header
from kafkapy.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from kafkapy.protocol.messages.fetch_request import FetchRequest
from kafkapy.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from kafkapy.protocol.primitives import Message, Writer
from kafkapy.runtime.peer import RECEIVE_BYTES, Peer, PeerSettings
from tests.simulator.loop import SimClock, SimLoop
from tests.simulator.network import LinkRules, SimClient, SimConnector, SimListener, SimNetwork
from tests.support.chance import SeededRandom

ADDRESS = ("10.0.0.9", 9093)
API_VERSIONS, FETCH, VERSION = 18, 1, 13
TIMEOUT_MS = 2000
RECORDS = bytes(12 * RECEIVE_BYTES)


def frame(message: Message, api_key: int, version: int, correlation_id: int) -> bytes:
    out = Writer()
    write_response_header(out, api_key, version, correlation_id)
    return bytes(out) + message.encode(version)


async def requested(loop: SimLoop) -> tuple[SimClient, bytes, Coroutine[Any, Any, Any]]:
    """Ask a node for records; return that node's end, the response to be sent, and what becomes of the request."""
    network = SimNetwork(loop, LinkRules(capacity_bytes=2 * len(RECORDS)))
    listener: SimListener = network.listen(*ADDRESS)
    connector = SimConnector(network, "10.0.0.1")
    peer = Peer(*ADDRESS, connector=connector, clock=SimClock(loop), random=SeededRandom(1), settings=PeerSettings())
    outcome: asyncio.Future[Any] = loop.create_future()
    peer.send(
        ClientRequest(
            FETCH,
            build=lambda _version: FetchRequest(),
            on_response=lambda response, _version: outcome.set_result(response),
            on_failure=lambda _is_unsupported: outcome.set_result(loop.now_ms()),
            timeout_ms=TIMEOUT_MS,
            min_version=VERSION,
            max_version=VERSION,
        )
    )
    while (channel := listener.accept()) is None:
        await asyncio.sleep(0.001)
    server = SimClient(channel)
    await server.receive_frame()
    versions = ApiVersionsResponse(api_keys=[ApiVersion(api_key=FETCH, min_version=VERSION, max_version=VERSION)])
    await server.send_frame(frame(versions, API_VERSIONS, 4, 0))
    await server.receive_frame()
    part = PartitionData(partition_index=0, records=RECORDS)
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=b"t" * 16, partitions=[part])])

    async def end() -> Any:
        result = await outcome
        peer.close()
        return result

    return server, frame(response, FETCH, VERSION, 1), end()


async def test_a_large_response_that_has_arrived_is_read_to_its_end(loop: SimLoop) -> None:
    server, response, end = await requested(loop)
    await server.send_frame(response)
    loop.block(5 * TIMEOUT_MS)
    result = await end
    assert isinstance(result, FetchResponse)
    assert len(result.responses[0].partitions[0].records or b"") == len(RECORDS)


async def test_a_peer_that_falls_silent_amid_a_response_is_given_up_in_time(loop: SimLoop) -> None:
    started_ms = loop.now_ms()
    server, response, end = await requested(loop)
    await server.send(len(response).to_bytes(4, "big") + response[: len(response) // 2])
    lost_ms = await end
    assert TIMEOUT_MS <= lost_ms - started_ms <= TIMEOUT_MS + 10
