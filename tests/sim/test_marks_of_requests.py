"""What a handler notes at its connection for the driver is about its own request, never about another one."""

import asyncio

import pytest

from kafkapy.errors import ProtocolError
from kafkapy.handlers.context import RequestContext
from kafkapy.handlers.table import BROKER_APIS
from kafkapy.protocol.headers import read_request_header
from kafkapy.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkapy.protocol.primitives import Writer
from kafkapy.protocol.serving import ConnectionInfo
from kafkapy.runtime.decoded_requests import DecodedRequests
from kafkapy.security.authorizer import AllowAll
from kafkapy.serving.large_requests import LargeRequests, Undecoded
from tests.simulator.loop import SimLoop
from tests.simulator.reactor_world import World, response_of
from tests.simulator.replicas import ReplicaWorld
from tests.support.wire import request_frame


async def _keeps(info: ConnectionInfo, request: bytes) -> Writer:
    """As a request that is passed on to the controller: needs its frame, waits several times, and is not held."""
    for _ in range(10):
        await asyncio.sleep(0.1)
    return response_of(b"kept")


async def _brief(info: ConnectionInfo, request: bytes) -> Writer:
    """Would not need its frame if it waited, but is answered or fails at once."""
    info.is_frame_free = True
    if request.endswith(b"unreadable"):
        raise ProtocolError("unreadable")
    assert not request.endswith(b"failing")
    return response_of(b"brief")


@pytest.mark.parametrize("how", ["answered", "unreadable", "failing"])
async def test_a_request_that_keeps_its_frame_counts_whatever_comes_of_the_next_one(loop: SimLoop, how: str) -> None:
    world = World(loop, keeps=_keeps, brief=_brief)
    client = world.connect()
    await client.send_frame(b"keeps " + bytes(100_000))
    await client.send_frame(b"brief " + how.encode())
    await asyncio.sleep(0.5)
    assert len(world.started) == 2
    assert world.reactor.request_memory.bytes >= 100_000
    await asyncio.sleep(1)
    assert world.reactor.request_memory.bytes == 0
    assert world.reactor.connection_count == (how == "answered")


async def test_a_request_that_got_room_at_once_does_not_hold_the_next_one(loop: SimLoop) -> None:
    """Before, the next request that waited was held: the connection started no other until it was answered."""

    world = ReplicaWorld(loop, 1)
    services = world.nodes[1].services(AllowAll())
    services.apis, services.decoded = BROKER_APIS, DecodedRequests()
    partitions = [
        FetchPartition(number, current_leader_epoch=-1, fetch_offset=0, partition_max_bytes=1) for number in range(100)
    ]
    request = FetchRequest(
        max_wait_ms=100, min_bytes=1, session_epoch=-1, topics=[FetchTopic("t", topic_id=b"", partitions=partitions)]
    )
    frame = memoryview(request_frame(request, 12))
    header, position = read_request_header(frame)
    connection = ConnectionInfo("1", "PLAINTEXT", "PLAINTEXT", "host9", 9)
    reading = LargeRequests(services).read_small(
        RequestContext(header, connection), Undecoded(FetchRequest, frame, position, 12, 101)
    )
    decoded, room = await reading
    assert decoded.max_wait_ms == 0
    assert not connection.is_held
    room.release()
    await world.stop()
