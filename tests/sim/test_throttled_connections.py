"""Connections that are muted for as long as a quota says, which may be days. KIP-219."""

import asyncio
from typing import Any

from kafkapy.protocol.primitives import Writer
from kafkapy.protocol.serving import ConnectionInfo
from tests.simulator.loop import SimLoop
from tests.simulator.reactor_world import World, response_of

DAYS_MS = 10**9


async def throttle(info: ConnectionInfo, request: bytes) -> Writer:
    info.throttle_ms = int(request.split()[1])
    return response_of(request)


async def throttle_later(info: ConnectionInfo, request: bytes) -> Writer:
    _, throttle_ms, wait_ms = request.split()
    await asyncio.sleep(int(wait_ms) / 1000)
    info.throttle_ms = int(throttle_ms)
    return response_of(request)


def new_world(loop: SimLoop) -> World:
    return World(loop, throttle=throttle, later=throttle_later)


def last_timer_s(loop: Any) -> float:
    return max((handle.when() for handle in loop._scheduled if not handle.cancelled()), default=0.0)


async def test_of_throttles_that_overlap_the_longest_counts(loop: SimLoop) -> None:
    client = new_world(loop).connect()
    for request in (b"later 300 10", b"later 500 20", b"later 100 30"):
        await client.send_frame(request)
    for _ in range(3):
        await client.receive_frame()
    await client.send_frame(b"echo 2")
    await client.receive_frame()
    assert 520 <= loop.now_ms() < 530


async def test_a_connection_throttled_for_days_ends_when_it_is_idle(loop: SimLoop) -> None:
    world = new_world(loop)
    client = world.connect()
    await client.send_frame(b"throttle %d" % DAYS_MS)
    await client.receive_frame()
    assert last_timer_s(loop) >= DAYS_MS / 1000
    await client.wait_end()
    assert world.reactor.connection_count == 0
    assert loop.now_ms() < 700_000, "connections.max.idle.ms"
    assert last_timer_s(loop) < 4000, "nothing waits for the end of the throttle"
