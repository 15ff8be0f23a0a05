"""Begun frames that fill the account of received bytes: small requests are served, frames that stall are closed."""

import asyncio
import struct

import pytest

from kafkapy.reactor.limits import ReactorLimits
from tests.simulator.loop import SimLoop, run
from tests.simulator.network import SimClient
from tests.simulator.reactor_world import World, wait_handler

ACCOUNT_BYTES = 8 << 20
LIMITS = ReactorLimits(queued_max_request_bytes=ACCOUNT_BYTES)
MOST_MS = 250
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
def test_twelve_begun_frames_keep_no_small_request_waiting(body_bytes: int) -> None:
    async def main(loop: SimLoop) -> None:
        world = World(loop, LIMITS)
        hostile = [await begin_frame(world, body_bytes, 700_000) for _ in range(12)]
        assert world.reactor.request_memory.bytes > 1 << 20
        assert await echo_ms(world) < MOST_MS
        assert await echo_ms(world, 60_000) < MOST_MS
        assert not any(client.is_ended for client in hostile)

    run(main)


def test_attackers_that_come_again_and_trickle_keep_nobody_waiting() -> None:
    async def main(loop: SimLoop) -> None:
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
            assert await echo_ms(world) < MOST_MS
            await asyncio.sleep(0.25)
        assert await large < STALLS_MS + 500
        for each in attacks:
            each.cancel()

    run(main)


def test_all_frames_that_stall_others_are_closed_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main(loop: SimLoop) -> None:
        world = World(loop, LIMITS)
        hostile = [await begin_frame(world, 2 << 20, 700_000) for _ in range(12)]
        assert 19_000 < await echo_ms(world, 3 << 20) < STALLS_MS
        ended = sum(client.is_ended for client in hostile)
        assert ended >= ACCOUNT_BYTES // 2 // 700_000
        assert caplog.text.count("arrives too slowly while others wait for memory") == ended
        assert not world.reactor.request_memory.waiting

    run(main)


def test_where_even_small_requests_find_no_room_begun_frames_have_a_second() -> None:
    """From very many connections at once."""

    async def main(loop: SimLoop) -> None:
        world = World(loop, ReactorLimits(queued_max_request_bytes=1 << 20))
        hostile = [world.connect() for _ in range(300)]
        for client in hostile:
            await client.send(struct.pack(">i", 8000) + bytes(3900))
        await asyncio.sleep(0.1)
        assert world.reactor.request_memory.is_full
        assert await echo_ms(world) < 2000
        assert world.reactor.request_memory.bytes < 1 << 19

    run(main)


def test_a_begun_frame_is_not_blamed_for_room_that_requests_at_work_take() -> None:
    async def main(loop: SimLoop) -> None:
        world = World(loop, ReactorLimits(queued_max_request_bytes=1 << 20), wait=wait_handler)
        at_work = [world.connect() for _ in range(12)]
        for client in at_work:
            await client.send_frame(b"wait 40000 " + bytes(100_000))
        slow, waiting = await begin_frame(world, 50_004, 40_000), world.connect()
        await waiting.send_frame(b"echo x")
        await asyncio.sleep(35)
        assert not slow.is_ended
        assert await waiting.receive_frame() == b"echo x"

    run(main)


def test_a_begun_frame_is_not_blamed_for_requests_that_wait_for_their_turn() -> None:
    async def main(loop: SimLoop) -> None:
        world = World(loop, ReactorLimits(queued_max_requests=1))
        slow = await begin_frame(world, 50_000, 40_000)
        world.reactor.request_memory.requests += 1
        waiting = world.connect()
        await waiting.send_frame(b"echo x")
        await asyncio.sleep(35)
        assert not waiting.received
        assert not slow.is_ended
        world.reactor.request_memory.requests -= 1

    run(main)


def test_a_large_frame_that_stalls_does_not_keep_the_lease() -> None:
    async def main(loop: SimLoop) -> None:
        world = World(loop, LIMITS)
        stalled = await begin_frame(world, 6 << 20, 1 << 20)
        assert world.reactor.request_memory.lease_holder is not None
        assert await echo_ms(world, 5 << 20) < 2500
        assert not stalled.is_ended

    run(main)


def test_a_large_frame_that_comes_slowly_keeps_the_lease() -> None:
    async def main(loop: SimLoop) -> None:
        world = World(loop, LIMITS)
        slow = await begin_frame(world, 5 << 20, 1 << 20)
        other = await begin_frame(world, 5 << 20, 1 << 20)
        rest = asyncio.create_task(other.send(bytes(4 << 20)))
        for _ in range(64):
            await slow.send(bytes(1 << 16))
            await asyncio.sleep(0.2)
        await rest
        assert not slow.is_ended

    run(main)
