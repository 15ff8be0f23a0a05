"""Begun frames that fill the account of received bytes: small requests are served, frames that stall are closed."""

import asyncio
import struct
from random import Random

import pytest

from kafkapy.reactor.limits import ReactorLimits
from kafkapy.reactor.request_memory import LAST_RECEIVE_BYTES
from tests.simulator.loop import SimLoop, run
from tests.simulator.network import SimClient
from tests.simulator.reactor_world import World, wait_handler

ACCOUNT_BYTES = 8 << 20
LIMITS = ReactorLimits(queued_max_request_bytes=ACCOUNT_BYTES)
MAX_MS = 250
"""What no request may keep another connection waiting."""
STALLS_MS = 21_000
"""By then a begun frame that stalls the others is closed."""


async def begin_frame(world: World, body_bytes: int, sent_bytes: int) -> SimClient:
    """Return a connection that has sent part of an echo."""
    client = world.connect()
    sending = asyncio.create_task(client.send(struct.pack(">i", 5 + body_bytes) + b"echo " + bytes(sent_bytes)))
    await asyncio.wait([sending], timeout=0.05)
    sending.cancel()
    client.channel.on_writable(None)
    return client


async def echo_ms(world: World, body_bytes: int = 10) -> float:
    """Return how long an echo of a new connection takes."""
    start, client, request = world.loop.time(), world.connect(), b"echo " + bytes(body_bytes)
    await client.send_frame(request)
    assert await client.receive_frame() == request
    client.channel.close()
    return (world.loop.time() - start) * 1000


@pytest.mark.parametrize("body_bytes", [700_001, 2 << 20, 99 << 20])
async def test_twelve_begun_frames_keep_no_small_request_waiting(loop: SimLoop, body_bytes: int) -> None:
    world = World(loop, LIMITS)
    hostile = [await begin_frame(world, body_bytes, 700_000) for _ in range(12)]
    assert world.reactor.request_memory.bytes > 1 << 20
    assert await echo_ms(world) < MAX_MS
    assert await echo_ms(world, 60_000) < MAX_MS
    assert not any(client.is_ended for client in hostile)


async def test_attackers_that_come_again_and_trickle_keep_nobody_waiting(loop: SimLoop) -> None:
    world = World(loop, LIMITS)

    async def attack() -> None:
        while True:
            client = await begin_frame(world, 2 << 20, 700_000)
            while not client.is_ended:
                await client.send(b"x")
                await asyncio.sleep(0.5)

    attacks = [asyncio.create_task(attack()) for _ in range(12)]
    await asyncio.sleep(1)
    large = asyncio.create_task(echo_ms(world, 3 << 20))
    while loop.time() < 60:
        assert await echo_ms(world) < MAX_MS
        await asyncio.sleep(0.25)
    assert await large < STALLS_MS + 500
    for each in attacks:
        each.cancel()


async def test_all_frames_that_stall_others_are_closed_at_once(loop: SimLoop, caplog: pytest.LogCaptureFixture) -> None:
    world = World(loop, LIMITS)
    hostile = [await begin_frame(world, 2 << 20, 700_000) for _ in range(12)]
    assert 19_000 < await echo_ms(world, 3 << 20) < STALLS_MS
    ended = sum(client.is_ended for client in hostile)
    assert ended >= ACCOUNT_BYTES // 2 // 700_000
    assert caplog.text.count("arrives too slowly while others wait for memory") == ended
    assert not world.reactor.request_memory.waiting


async def test_where_even_small_requests_find_no_room_begun_frames_have_a_second(loop: SimLoop) -> None:
    """From very many connections at once."""

    world = World(loop, ReactorLimits(queued_max_request_bytes=1 << 20))
    hostile = [world.connect() for _ in range(300)]
    for client in hostile:
        await client.send(struct.pack(">i", 8000) + bytes(3900))
    await asyncio.sleep(0.1)
    assert world.reactor.request_memory.is_full
    assert await echo_ms(world) < 2000
    assert world.reactor.request_memory.bytes < 1 << 19


async def test_a_begun_frame_is_not_blamed_for_room_that_requests_at_work_take(loop: SimLoop) -> None:
    world = World(loop, ReactorLimits(queued_max_request_bytes=1 << 20), wait=wait_handler)
    at_work = [world.connect() for _ in range(12)]
    for client in at_work:
        await client.send_frame(b"wait 40000 " + bytes(100_000))
    slow, waiting = await begin_frame(world, 50_004, 40_000), world.connect()
    await waiting.send_frame(b"echo x")
    await asyncio.sleep(35)
    assert not slow.is_ended
    assert await waiting.receive_frame() == b"echo x"


async def test_a_begun_frame_is_not_blamed_for_requests_that_wait_for_their_turn(loop: SimLoop) -> None:
    world = World(loop, ReactorLimits(queued_max_requests=1))
    slow = await begin_frame(world, 50_000, 40_000)
    world.reactor.request_memory.requests += 1
    waiting = world.connect()
    await waiting.send_frame(b"echo x")
    await asyncio.sleep(35)
    assert not waiting.received
    assert not slow.is_ended
    world.reactor.request_memory.requests -= 1


async def test_a_large_frame_that_stalls_does_not_keep_the_lease(loop: SimLoop) -> None:
    world = World(loop, LIMITS)
    stalled = await begin_frame(world, 6 << 20, 1 << 20)
    assert world.reactor.request_memory.lease_holder is not None
    assert await echo_ms(world, 5 << 20) < 2500
    assert not stalled.is_ended


async def test_a_large_frame_that_comes_slowly_keeps_the_lease(loop: SimLoop) -> None:
    world = World(loop, LIMITS)
    slow = await begin_frame(world, 5 << 20, 1 << 20)
    other = await begin_frame(world, 5 << 20, 1 << 20)
    rest = asyncio.create_task(other.send(bytes(4 << 20)))
    for _ in range(64):
        await slow.send(bytes(1 << 16))
        await asyncio.sleep(0.2)
    await rest
    assert not slow.is_ended


@pytest.mark.parametrize("body_bytes", [6 << 20, 10 << 20])
def test_the_lease_ends_with_its_frame_though_nobody_waits_then(body_bytes: int) -> None:
    """Frames larger than the account come one by one, each from a connection that stays open."""

    async def main(loop: SimLoop) -> None:
        world, request = World(loop, LIMITS), b"echo " + bytes(body_bytes)
        for client in [world.connect() for _ in range(3)]:
            start = loop.time()
            await client.send_frame(request)
            assert await client.receive_frame() == request
            assert loop.time() - start < MAX_MS / 1000

    run(main)


async def send_wait(world: World, body_bytes: int) -> SimClient:
    """Return a connection that has sent a request which is answered after 20 s, or sends it as it may."""
    client, request = world.connect(), b"wait 20000 " + bytes(body_bytes)
    await client.send_frame(request)
    return client


@pytest.mark.parametrize("body_bytes", [700_000, 3 << 20, 6 << 20])
async def test_requests_at_work_take_at_most_one_frame_more_than_the_account(loop: SimLoop, body_bytes: int) -> None:
    """As in Apache Kafka: a frame may begin while anything is free. However many large requests come, others wait."""

    world = World(loop, LIMITS, wait=wait_handler)
    memory = world.reactor.request_memory
    sending = [asyncio.create_task(send_wait(world, body_bytes)) for _ in range(20)]
    peak_bytes = answered = 0
    while loop.time() < 600 and answered < len(sending):
        await asyncio.sleep(0.05)
        peak_bytes = max(peak_bytes, memory.bytes)
        answered = sum(task.done() and bool(task.result().received) for task in sending)
    assert answered == len(sending)
    assert ACCOUNT_BYTES // 2 < peak_bytes <= ACCOUNT_BYTES + LAST_RECEIVE_BYTES + len(b"wait 20000 ") + body_bytes + 4
    assert not memory.bytes
    assert not any(task.result().is_ended for task in sending)


@pytest.mark.parametrize("seed", range(2))
def test_the_account_is_exceeded_by_one_frame_at_most_whatever_comes(seed: int) -> None:
    """Frames of all sizes, some larger than the account, some of which stall; connections that end in between."""

    async def main(loop: SimLoop) -> None:
        random = Random(seed)
        world = World(loop, LIMITS, wait=wait_handler)
        memory = world.reactor.request_memory
        assert memory.peak_bytes == ACCOUNT_BYTES + LAST_RECEIVE_BYTES + LIMITS.connection.max_frame_bytes
        largest = 12 << 20

        async def requests() -> None:
            for _ in range(5):
                body_bytes = random.choice([1000, 60_000, 700_000, 3 << 20, largest - 100])
                if random.random() < 0.3:
                    client = await begin_frame(world, body_bytes, body_bytes // 3)
                    await asyncio.sleep(random.random() * 5)
                else:
                    client = world.connect()
                    await client.send_frame(b"wait %d " % random.randrange(1, 20_000) + bytes(body_bytes))
                    assert await client.receive_frame()
                client.channel.close()

        everybody = [asyncio.create_task(requests()) for _ in range(30)]
        peak_bytes = 0
        while loop.time() < 3600 and not all(task.done() for task in everybody):
            await asyncio.sleep(0.02)
            peak_bytes = max(peak_bytes, memory.bytes)
        for task in everybody:
            assert task.done()
            task.result()
        assert ACCOUNT_BYTES < peak_bytes <= ACCOUNT_BYTES + LAST_RECEIVE_BYTES + largest
        assert not memory.waiting
        assert not memory.bytes

    run(main)
