"""A pass of the event loop stays short, however many connections have requests; each has its turn, in order."""

import asyncio
from itertools import pairwise
from struct import pack

import pytest

from kafkapy.protocol.primitives import Writer
from kafkapy.protocol.serving import ConnectionInfo
from kafkapy.reactor.limits import (
    ACCEPT_SECONDS,
    FRAMES_PER_TURN,
    PASS_SECONDS,
    ReactorLimits,
)
from tests.simulator.loop import SimLoop, run
from tests.simulator.network import LinkRules
from tests.simulator.reactor_world import World, response_of

WORK_MS = 10
CONNECTIONS = 100


async def waits_of(loop: SimLoop, ends: "asyncio.Future[object]") -> list[float]:
    """Return how long a timer of a millisecond takes, set again and again until `ends` is done; in seconds."""
    times = [loop.time()]

    def tick() -> None:
        times.append(loop.time())
        if not ends.done():
            loop.call_later(0.001, tick)

    tick()
    await ends
    return [later - earlier for earlier, later in pairwise(times)]


def world_of(loop: SimLoop, work_ms: float = WORK_MS) -> World:
    async def work(info: ConnectionInfo, request: bytes) -> Writer:
        loop.block(work_ms)
        return response_of(request)

    return World(loop, work=work)


async def test_a_pass_stays_short_while_all_connections_have_requests(loop: SimLoop) -> None:
    world = world_of(loop)
    clients = [world.connect() for _ in range(CONNECTIONS)]
    for number, client in enumerate(clients):
        await client.send_frame(b"work %d" % number)
    answered = asyncio.gather(*[client.receive_frame() for client in clients])
    waits = await waits_of(loop, answered)
    assert max(waits) < 2 * (PASS_SECONDS + WORK_MS / 1000) + 0.002, "two passes"
    assert sum(waits) >= CONNECTIONS * WORK_MS / 1000
    assert sorted(world.started) == sorted(b"work %d" % number for number in range(CONNECTIONS))


async def test_connections_take_turns_when_no_pass_has_time_for_all(loop: SimLoop) -> None:
    world = world_of(loop)
    clients = [world.connect() for _ in range(CONNECTIONS)]

    async def ask(number: int) -> None:
        for _ in range(3):
            await clients[number].send_frame(b"work %d" % number)
            await clients[number].receive_frame()

    await asyncio.gather(*map(ask, range(CONNECTIONS)))
    for first in range(0, 3 * CONNECTIONS, CONNECTIONS):
        assert len(set(world.started[first : first + CONNECTIONS])) >= CONNECTIONS * 0.9
    assert world.reactor.request_memory.requests == 0


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_pass_stays_short_while_few_connections_have_many_requests(
    count: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A connection alone in the queue is queued again during its turn: it must not get two turns in the next pass."""

    async def main(loop: SimLoop) -> None:
        world = world_of(loop, work_ms=1)
        requests = pack(">i", len(b"work 1")) + b"work 1"
        turns = 12

        async def ask() -> None:
            client = world.connect()
            await client.send(turns * FRAMES_PER_TURN * requests)
            for _ in range(turns * FRAMES_PER_TURN):
                await client.receive_frame()

        waits = await waits_of(loop, asyncio.gather(*[ask() for _ in range(count)]))
        assert max(waits) < 2 * (PASS_SECONDS + FRAMES_PER_TURN / 1000) + 0.002, "two passes"
        assert world.reactor.request_memory.requests == 0

    run(main)
    assert not caplog.records


async def test_connections_are_accepted_between_turns(loop: SimLoop) -> None:
    """The kernel's listen queue holds 50; a client that finds no place in it waits for a second."""
    waiting = []

    async def work(info: ConnectionInfo, request: bytes) -> Writer:
        loop.block(1)
        world.connect()
        waiting.append(len(world.listener.backlog))
        return response_of(request)

    world = World(loop, work=work)
    clients = [world.connect() for _ in range(CONNECTIONS)]
    for client in clients:
        await client.send_frame(b"work")
    for client in clients:
        await client.receive_frame()
    assert len(waiting) == CONNECTIONS
    assert max(waiting) <= 1000 * ACCEPT_SECONDS + 1


async def test_a_listener_without_new_connections_is_left_alone_between_turns(loop: SimLoop) -> None:
    world = world_of(loop, work_ms=1)
    clients = [world.connect() for _ in range(CONNECTIONS)]
    await asyncio.sleep(0.1)
    asked = []
    world.listener.accept = lambda: asked.append(loop.time())  # type: ignore[method-assign]
    for client in clients:
        await client.send_frame(b"work")
    for client in clients:
        await client.receive_frame()
    assert len(asked) == 1, "the look that finds none is the last"


def test_a_connection_goes_on_when_its_responses_leave_after_the_turns_of_others() -> None:
    """A turn's last response fills the output while another connection has a turn: it is sent after the turns."""

    async def large(info: ConnectionInfo, request: bytes) -> Writer:
        return response_of(bytes(ReactorLimits().connection.max_output_bytes // FRAMES_PER_TURN + 10))

    async def main(loop: SimLoop) -> None:
        world = World(loop, ReactorLimits(num_network_threads=1), large=large)
        other = world.connect()
        client = world.connect(rules=LinkRules(capacity_bytes=1 << 22))
        await other.send_frame(b"echo")
        count = 2 * FRAMES_PER_TURN
        await client.send(b"\0\0\0\5large" * count)
        for _ in range(count):
            await asyncio.wait_for(client.receive_frame(), 10)

    run(main)
