"""A connection amid a large frame is read when much of its rest has arrived; what the peer does instead is noticed."""

import asyncio
import ssl
from pathlib import Path

import pytest

from kafkapy.reactor.limits import MAX_AWAITED_BYTES, ReactorLimits
from kafkapy.reactor.tls_admission import ServerTls
from tests.simulator.loop import SimLoop
from tests.simulator.network import LinkRules, SimChannel, SimClient
from tests.simulator.reactor_world import World
from tests.support.certificates import Authority, client_context, server_context

AUTHORITY = Authority()
RECORD_BYTES = 16 * 1024
REQUEST = b"echo " + bytes(130_000)
FRAME = len(REQUEST).to_bytes(4, "big") + REQUEST
PIECES = [FRAME[:96], *(FRAME[at : at + RECORD_BYTES] for at in range(96, len(FRAME) - 3, RECORD_BYTES))]
PIECES[-1:] = [PIECES[-1][:-3], FRAME[-3:]]
"""What Java's producer writes, each as a TLS record: what precedes the batch, the batch by 16 KiB, the last tags."""


@pytest.fixture
def tls(tmp_path: Path) -> ServerTls:
    return ServerTls(server_context(AUTHORITY.issue("broker"), tmp_path), lambda _: "User:ANONYMOUS")


async def new_client(world: World, version: ssl.TLSVersion | None) -> SimClient:
    if version is None:
        return world.connect()
    context = client_context(AUTHORITY)
    context.maximum_version = version
    return await world.connect_tls(context)


VERSIONS = pytest.mark.parametrize("version", [None, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])


@VERSIONS
async def test_a_frame_that_comes_record_by_record_is_received_in_few_parts(
    loop: SimLoop, version: ssl.TLSVersion | None, tls: ServerTls, monkeypatch: pytest.MonkeyPatch
):
    receives: list[SimChannel] = []
    receive = SimChannel.receive

    def counted(channel: SimChannel, max_bytes: int) -> bytes | None:
        data = receive(channel, max_bytes)
        if data:
            receives.append(channel)
        return data

    world = World(loop, tls=tls if version else None)
    client = await new_client(world, version)
    monkeypatch.setattr(SimChannel, "receive", counted)
    for piece in PIECES:
        await client.send(piece)
        await asyncio.sleep(0.001)
    own = client.channel._session.transport if version else client.channel
    parts = 1 + -(-len(FRAME) // MAX_AWAITED_BYTES)  # the first one brings the frame's size
    tags_alone = version is ssl.TLSVersion.TLSv1_2  # the length of whose records depends on the cipher
    assert len([channel for channel in receives if channel is not own]) <= parts + tags_alone
    assert await client.receive_frame() == REQUEST


@VERSIONS
@pytest.mark.parametrize("sent_bytes", [2000, 40_000, 129_000])
async def test_a_peer_that_ends_amid_a_frame_is_forgotten(
    loop: SimLoop, version: ssl.TLSVersion | None, sent_bytes: int, tls: ServerTls
):
    world = World(loop, tls=tls if version else None)
    client = await new_client(world, version)
    await client.send(FRAME[:sent_bytes])
    await asyncio.sleep(0.1)
    assert world.reactor.connection_count == 1
    client.channel.close()
    await asyncio.sleep(0.1)
    assert world.reactor.connection_count == 0
    assert world.reactor.request_memory.bytes == 0


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_goodbye_amid_a_frame_is_heard_long_before_the_connection_is_idle(
    loop: SimLoop, version: ssl.TLSVersion, tls: ServerTls
):
    """The peer waits for the broker's close_notify, and so the end of the stream does not wake the broker."""
    world = World(loop, ReactorLimits(connections_max_idle_ms=3_600_000), tls=tls)
    client = await new_client(world, version)
    await client.send(FRAME[:40_000])
    await asyncio.sleep(0.1)
    client.channel._session.send_close_notify()
    await client.wait_end()
    assert loop.now_ms() < 61_000


@VERSIONS
async def test_a_peer_that_sends_little_at_a_time_is_not_idle(
    loop: SimLoop, version: ssl.TLSVersion | None, tls: ServerTls
):
    world = World(loop, ReactorLimits(connections_max_idle_ms=1000), tls=tls if version else None)
    client, idle = await new_client(world, version), await new_client(world, version)
    await idle.send(FRAME[:40_000])
    await client.send(FRAME[:40_000])
    for byte in FRAME[40_000:40_020]:
        await asyncio.sleep(0.4)
        await client.send(bytes([byte]))
    await client.send(FRAME[40_020:])
    assert await client.receive_frame() == REQUEST
    assert idle.is_ended
    assert world.reactor.connection_count == 1


@VERSIONS
async def test_the_request_behind_a_large_one_is_read_as_soon_as_it_arrives(
    loop: SimLoop, version: ssl.TLSVersion | None, tls: ServerTls
):
    world = World(loop, tls=tls if version else None)
    client = await new_client(world, version)
    for _ in range(3):
        await client.send(FRAME)
        assert await client.receive_frame() == REQUEST
        assert await world.round_trip_ms(client) < 2


@VERSIONS
@pytest.mark.parametrize("capacity_bytes", [3000, 20_000])
async def test_a_receive_buffer_that_is_smaller_than_what_is_awaited_is_read_when_full(
    loop: SimLoop, version: ssl.TLSVersion | None, capacity_bytes: int, tls: ServerTls
):
    world = World(loop, tls=tls if version else None, rules=LinkRules(capacity_bytes=capacity_bytes))
    client = await new_client(world, version)
    sender = asyncio.create_task(client.send(FRAME * 3))
    assert [await client.receive_frame() for _ in range(3)] == [REQUEST] * 3
    await sender
