"""How fast connections may come and how many there may be, on a simulated network. KIP-402, KIP-612."""

import asyncio
from dataclasses import replace

import pytest

from kafkapy.reactor.connection_quotas import ConnectionRate
from kafkapy.reactor.limits import ReactorLimits
from tests.simulator.loop import SimLoop
from tests.simulator.network import SimClient
from tests.simulator.reactor_world import World

INTERNAL = ("10.0.0.9", 9094)


def with_internal_listener(world: World) -> World:
    world.reactor.add_listener("INTERNAL", "PLAINTEXT", world.network.listen(*INTERNAL))
    world.reactor.start()
    return world


def test_a_burst_after_silence_passes_and_then_the_rate_holds() -> None:
    """10 a second over at least 10 s: 100 at once; the next has to wait as long as one may, and so on."""
    rate = ConnectionRate(window_count=11, window_ms=1000)
    assert [rate.record(5000, 10) for _ in range(100)] == [0] * 100
    assert rate.record(5000, 10) == 100  # 101 in 10 s are 10.1 a second: 0.01 of 10 s too soon
    assert rate.record(5000, 10) == 200
    assert [rate.record(5000, 10) for _ in range(20)][-1] == 1000
    assert rate.record(16_000, 10) == 0  # what is older than 11 windows is forgotten


@pytest.mark.parametrize("per_second", [1, 5, 50])
def test_over_time_no_more_come_than_the_rate_allows(per_second: int) -> None:
    rate = ConnectionRate(window_count=11, window_ms=1000)
    now_ms = count = 0
    while now_ms < 100_000:
        count += 1
        now_ms += rate.record(now_ms, per_second)
    assert per_second * 100 <= count <= per_second * 111


async def test_connections_beyond_the_rate_wait_in_their_order(loop: SimLoop) -> None:
    world = World(loop, ReactorLimits(max_connection_creation_rate=2))
    clients = [world.connect() for _ in range(23)]
    for client in clients[:20]:
        assert await world.round_trip_ms(client) < 1
    waited_ms = [await world.round_trip_ms(client) for client in clients[20:]]
    assert all(400 <= each <= 1001 for each in waited_ms), waited_ms
    assert world.reactor.connection_count == 23


async def test_a_listener_has_a_rate_of_its_own(loop: SimLoop) -> None:
    world = World(loop, ReactorLimits(listener_max_connection_creation_rate={"MAIN": 1}))
    with_internal_listener(world)
    clients = [world.connect() for _ in range(11)]
    for client in clients[:10]:
        assert await world.round_trip_ms(client) < 1
    assert await world.round_trip_ms(SimClient(world.network.connect(INTERNAL))) < 1
    assert 900 <= await world.round_trip_ms(clients[10]) <= 1001


async def test_the_rate_can_be_changed_and_who_waits_waits_out_its_time(loop: SimLoop) -> None:
    limits = ReactorLimits(max_connection_creation_rate=1)
    world = World(loop, limits)
    clients = [world.connect() for _ in range(12)]
    await asyncio.sleep(0.1)
    assert world.reactor.connection_count == 10
    world.reactor.update_connection_limits(replace(limits, max_connection_creation_rate=1000))
    assert world.reactor.connection_count == 10
    await asyncio.sleep(1)
    assert world.reactor.connection_count == 12
    for client in clients:
        assert await world.round_trip_ms(client) < 1


async def test_who_waits_for_the_rate_is_closed_with_the_broker(loop: SimLoop) -> None:
    world = World(loop, ReactorLimits(max_connection_creation_rate=1))
    clients = [world.connect() for _ in range(11)]
    await asyncio.sleep(0.1)
    world.reactor.close()
    for client in clients:
        await client.wait_end()


async def test_when_the_bound_is_lowered_the_longest_idle_go(loop: SimLoop) -> None:
    limits = ReactorLimits()
    world = World(loop, limits)
    clients = [world.connect() for _ in range(4)]
    for client in (clients[2], clients[0], clients[3], clients[1]):
        await world.round_trip_ms(client)
        await asyncio.sleep(1)
    world.reactor.update_connection_limits(replace(limits, max_connections=2))
    assert world.reactor.connection_count == 2
    for client in (clients[2], clients[0]):
        await client.wait_end()
    assert await world.round_trip_ms(clients[1]) < 1


async def test_brokers_find_room_where_clients_do_not(loop: SimLoop) -> None:
    world = World(loop, ReactorLimits(max_connections=2, inter_broker_listener_name="INTERNAL"))
    with_internal_listener(world)
    first, second = world.connect(), world.connect()
    await world.round_trip_ms(second)
    await asyncio.sleep(1)
    await world.round_trip_ms(first)
    broker = SimClient(world.network.connect(INTERNAL))
    assert await world.round_trip_ms(broker) < 1
    await second.wait_end()
    others = [SimClient(world.network.connect(INTERNAL)) for _ in range(3)]
    for other in others:
        assert await world.round_trip_ms(other) < 1
    await first.wait_end()
    assert world.reactor.connection_count == 4, "those between brokers stay"
