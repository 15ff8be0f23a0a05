"""connection_creation_rate: how fast connections may come from one address, on a simulated network. KIP-612."""

import asyncio

from kafkapy.reactor.acceptor import MAX_DELAYED_CLOSES
from kafkapy.reactor.ip_rates import IpRates
from kafkapy.reactor.limits import ReactorLimits
from tests.simulator.loop import SimLoop
from tests.simulator.reactor_world import World


def new_rates(*limits: tuple[str | None, float]) -> IpRates:
    rates = IpRates(11, 1000)
    for ip, per_second in limits:
        rates.set_limit(ip, per_second)
    return rates


def test_a_burst_passes_and_what_follows_is_closed_later() -> None:
    """2 a second over at least 10 s: 20 at once; the next is 0.1 a second too many, half a second."""
    rates = new_rates(("10.0.0.1", 2))
    assert [rates.record("10.0.0.1", 0) for _ in range(20)] == [0] * 20
    assert [rates.record("10.0.0.1", 0) for _ in range(3)] == [500] * 3, "what is closed is not counted"
    assert rates.record("10.0.0.1", 11_000) == 0


def test_a_connection_waits_for_a_window_at_most() -> None:
    rates = new_rates(("10.0.0.1", 0.1))
    assert rates.record("10.0.0.1", 0) == 0
    assert rates.record("10.0.0.1", 0) == 1000


def test_a_rate_of_zero_lets_nobody_in() -> None:
    assert new_rates(("10.0.0.1", 0)).record("10.0.0.1", 0) == 1000


def test_each_address_has_the_default_for_itself_and_its_own_before_it() -> None:
    rates = new_rates((None, 0.1), ("10.0.0.2", 1))
    assert [rates.record("10.0.0.1", 0), rates.record("10.0.0.3", 0)] == [0, 0]
    assert rates.record("10.0.0.1", 0) > 0
    assert [rates.record("10.0.0.2", 0) for _ in range(10)] == [0] * 10


def test_an_address_is_the_same_however_it_is_written() -> None:
    rates = new_rates(("::1", 0.1), ("10.0.0.1", 0.1))
    assert rates.record("0:0:0:0:0:0:0:1", 0) == 0
    assert rates.record("::1", 0) > 0
    assert rates.record("::ffff:10.0.0.1", 0) == 0
    assert rates.record("10.0.0.1", 0) > 0


def test_limits_are_removed() -> None:
    rates = new_rates((None, 0.1), ("10.0.0.1", 0.1))
    rates.set_limit("10.0.0.1", None)
    assert not rates.is_empty
    rates.set_limit(None, None)
    assert rates.is_empty
    assert [rates.record("10.0.0.1", 0) for _ in range(3)] == [0] * 3


async def test_a_connection_beyond_the_rate_is_never_served_and_closed_after_its_delay(loop: SimLoop) -> None:
    world = World(loop, ReactorLimits())
    world.reactor.set_ip_rate("10.0.0.1", 1)
    for _ in range(10):
        assert await world.round_trip_ms(world.connect()) < 1
    begun_s = loop.time()
    refused = world.connect()
    await refused.wait_end()
    assert 0.9 <= loop.time() - begun_s <= 1.1
    assert world.reactor.connection_count == 10
    assert await world.round_trip_ms(world.connect(from_host="10.0.0.2")) < 1
    world.reactor.set_ip_rate("10.0.0.1", None)
    assert await world.round_trip_ms(world.connect()) < 1


async def test_what_is_refused_is_counted_in_no_other_rate(loop: SimLoop) -> None:
    """Two a second for all: twenty at once, of which ten come from an address that sends ten more."""
    world = World(
        loop, ReactorLimits(max_connection_creation_rate=2, listener_max_connection_creation_rate={"MAIN": 2})
    )
    world.reactor.set_ip_rate("10.0.0.1", 1)
    for _ in range(10):
        assert await world.round_trip_ms(world.connect()) < 1
    refused = [world.connect() for _ in range(10)]
    for _ in range(10):
        assert await world.round_trip_ms(world.connect(from_host="10.0.0.2")) < 1
    assert await world.round_trip_ms(world.connect(from_host="10.0.0.2")) > 100
    for client in refused:
        await client.wait_end()


async def test_more_than_may_wait_are_closed_at_once(loop: SimLoop) -> None:
    world = World(loop, ReactorLimits())
    world.reactor.set_ip_rate("10.0.0.1", 0.1)
    assert await world.round_trip_ms(world.connect()) < 1
    refused = [world.connect() for _ in range(MAX_DELAYED_CLOSES + 1)]
    begun_s = loop.time()
    await refused[-1].wait_end()
    assert loop.time() - begun_s < 0.1
    await refused[0].wait_end()
    assert loop.time() - begun_s > 0.9


async def test_what_waits_to_be_closed_closes_with_the_listener(loop: SimLoop) -> None:
    world = World(loop, ReactorLimits())
    world.reactor.set_ip_rate("10.0.0.1", 0.1)
    assert await world.round_trip_ms(world.connect()) < 1
    refused = world.connect()
    await asyncio.sleep(0.1)
    world.reactor.stop_accepting()
    begun_s = loop.time()
    await refused.wait_end()
    assert loop.time() - begun_s < 0.1
