"""Responses that take long to read: who reads is not closed, however large the response, and memory stays bounded."""

import asyncio
import tracemalloc
from pathlib import Path

import pytest

from kafkapy.metadata.image import RESOURCE_GROUP
from kafkapy.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkapy.protocol.primitives import Writer
from kafkapy.protocol.serving import ConnectionInfo
from kafkapy.reactor.byte_account import MAX_UNSENT_BYTES, READ_SECONDS
from kafkapy.reactor.tls_admission import ServerTls
from kafkapy.seams import FileRegion
from tests.simulator.broker_world import Machine
from tests.simulator.bytes_file import BytesFile
from tests.simulator.loop import SimLoop
from tests.simulator.network import LinkRules, SimClient
from tests.simulator.reactor_world import World, response_of, wait_handler
from tests.support.certificates import Authority, client_context, server_context

MIB = 1 << 20
SLOW_LINE = LinkRules(capacity_bytes=200_000)


async def big_handler(info: ConnectionInfo, request: bytes) -> Writer:
    """`big 1000` answers with 1000 bytes."""
    return response_of(bytes(int(request.split(b" ")[1])))


async def ask(world: World, byte_count: int) -> SimClient:
    """Return a client that has requested so many bytes and reads nothing yet."""
    client = world.connect(rules=SLOW_LINE)
    client.stop_reading()
    await client.send_frame(b"big %d" % byte_count)
    await asyncio.sleep(0.01)
    return client


async def read_slowly(client: SimClient, byte_count: int, bytes_per_second: int) -> int:
    """Read so many bytes at this rate, or up to the end; return how many came."""
    left = byte_count
    while left:
        data = client.channel.receive(min(left, bytes_per_second // 10))
        if data == b"":
            break
        left -= len(data or b"")
        await asyncio.sleep(0.1)
    return byte_count - left


async def test_a_response_above_the_bound_is_received_at_a_megabyte_a_second_beside_other_clients(loop: SimLoop):
    world = World(loop, big=big_handler)
    reader = await ask(world, 30 * MIB)
    reading = asyncio.create_task(read_slowly(reader, 30 * MIB + 4, 1_000_000))
    others = 0
    while not reading.done():
        other = await ask(world, 400_000)
        other.read()
        assert len(await other.receive_frame()) == 400_000
        others += 1
        await asyncio.sleep(1)
    assert await reading == 30 * MIB + 4
    assert others >= 25
    assert world.reactor.unsent.bytes == 0


async def test_a_response_above_the_bound_is_closed_if_its_peer_reads_a_byte_now_and_then(loop: SimLoop):
    world = World(loop, big=big_handler)
    trickling = await ask(world, 30 * MIB)
    reading = asyncio.create_task(read_slowly(trickling, MIB, 1000))
    await asyncio.sleep(READ_SECONDS - 1)
    assert world.reactor.unsent.bytes > 29 * MIB
    await asyncio.sleep(2)
    assert world.reactor.unsent.bytes == 0
    assert world.reactor.connection_count == 0
    reading.cancel()


async def test_of_two_responses_above_the_bound_the_one_that_is_read_goes_on_and_small_ones_are_left_alone(
    loop: SimLoop, caplog: pytest.LogCaptureFixture
):
    world = World(loop, big=big_handler)
    small = await ask(world, 500_000)
    first = await ask(world, 30 * MIB)
    reading = asyncio.create_task(read_slowly(first, 30 * MIB + 4, 1_000_000))
    await asyncio.sleep(5)
    second = await ask(world, 31 * MIB)
    assert world.reactor.connection_count == 2
    assert caplog.text.count("Closed 1 connections") == 1
    second.read()
    await second.wait_end()
    assert await reading == 30 * MIB + 4
    small.read()
    assert len(await small.receive_frame()) == 500_000


async def test_unread_responses_exceed_the_bound_by_one_connection_at_most(loop: SimLoop):
    world = World(loop, big=big_handler)
    reader = await ask(world, 10 * MIB)
    reading = asyncio.create_task(read_slowly(reader, 10 * MIB + 4, 1_000_000))
    for _ in range(80):
        await ask(world, MIB)
        assert world.reactor.unsent.bytes <= MAX_UNSENT_BYTES + 10 * MIB + 4
    assert world.reactor.unsent.bytes > MAX_UNSENT_BYTES
    assert await reading == 10 * MIB + 4
    assert world.reactor.unsent.bytes <= MAX_UNSENT_BYTES


async def test_responses_that_wait_for_a_parked_request_count_as_unread(loop: SimLoop):
    """A client chooses for how long its JoinGroup is parked, and may send 63 other requests behind it."""
    world = World(loop, big=big_handler, wait=wait_handler)
    clients = [world.connect() for _ in range(20)]
    for client in clients:
        await client.send_frame(b"wait 60000 x")
        for _ in range(20):
            await client.send_frame(b"big %d" % (2 * MIB))
        await asyncio.sleep(0.1)
        assert world.reactor.unsent.bytes <= MAX_UNSENT_BYTES + 2 * MIB
    assert len(world.started) == 2 * len(clients), "behind a response that waits no other request starts"
    await asyncio.sleep(60)
    assert await clients[-1].receive_frame() == b"wait 60000 x"
    for _ in range(20):
        assert len(await clients[-1].receive_frame()) == 2 * MIB
    assert world.reactor.unsent.bytes == 0


@pytest.mark.parametrize("is_tls", [False, True], ids=["plaintext", "tls"])
async def test_a_fetch_of_50_mib_is_received_at_a_megabyte_a_second_and_takes_no_memory(
    loop: SimLoop, tmp_path: Path, is_tls: bool
):
    """After it on the same connection a response of 30 MiB, which does."""

    async def fetch(info: ConnectionInfo, request: bytes) -> Writer:
        return response_of(b"records ", FileRegion(file, 0, len(file.data), lambda: None))

    file = BytesFile(bytes(50 * MIB))
    authority = Authority()
    tls = ServerTls(server_context(authority.issue("broker"), tmp_path), lambda _: "User:a") if is_tls else None
    world = World(loop, tls=tls, fetch=fetch, big=big_handler)
    context = client_context(authority)
    client = await world.connect_tls(context, rules=SLOW_LINE) if is_tls else world.connect(rules=SLOW_LINE)
    client.stop_reading()
    await client.send_frame(b"fetch x")
    reading = asyncio.create_task(read_slowly(client, 50 * MIB + 12, 1_000_000))
    while not reading.done():
        assert world.reactor.unsent.bytes <= 12
        await asyncio.sleep(1)
    assert await reading == 50 * MIB + 12
    await client.send_frame(b"big %d" % (30 * MIB))
    assert await read_slowly(client, 30 * MIB + 4, 1_000_000) == 30 * MIB + 4


async def test_slow_readers_of_many_small_partitions_keep_little_in_memory(loop: SimLoop):
    """Of 60 partitions with 60 KB each only what a socket may accept at once is read from the files."""

    async def fetch(info: ConnectionInfo, request: bytes) -> Writer:
        out = response_of(b"")
        out.splices += [(0, FileRegion(file, 0, len(file.data), lambda: None)) for _ in range(60)]
        return out

    file = BytesFile(bytes(60_000))
    world = World(loop, fetch=fetch)
    clients = [world.connect(rules=SLOW_LINE) for _ in range(70)]
    for client in clients:
        client.stop_reading()
        await client.send_frame(b"fetch x")
    await asyncio.sleep(0.01)
    assert world.reactor.unsent.bytes <= 70 * 325_000
    for client in clients:
        client.read()
    for client in clients:
        assert len(await client.receive_frame()) == 3_600_000


async def test_configs_that_resources_share_are_in_memory_once_while_nobody_reads_them(loop: SimLoop):
    """A copy for each resource took 2.9 times the response: that of one peer, and two that were being made."""
    machine = Machine(loop)
    await machine.boot()
    machine.server._reactor.unsent.max_bytes = 2 * MIB
    names = [f"group-{each}" for each in range(1_300)]
    resources = [DescribeConfigsResource(resource_type=RESOURCE_GROUP, resource_name=name) for name in names]
    request = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
    reader = machine.connect()
    response_bytes = len((await reader.call(request, 4)).encode(4))
    assert response_bytes > 4_000_000

    tracemalloc.start()
    try:
        for _ in range(6):
            silent = machine.connect()
            silent.link.stop_reading()
            await silent.send(request, 4)
        await asyncio.sleep(READ_SECONDS + 1)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < response_bytes
    assert machine.server._reactor.connection_count <= 2, "each is counted as what is sent, and all but one closed"
    assert [result.resource_name for result in (await reader.call(request, 4)).results] == names
    await machine.stop()
