"""The reactor's bounds: memory both ways, connections, idle time, descriptors; full means wait, nobody is starved."""

import asyncio
import errno
import struct

import pytest

from kafkapy.protocol.primitives import Writer
from kafkapy.protocol.serving import ConnectionInfo, ConnectionLimits
from kafkapy.reactor.byte_account import READ_SECONDS
from kafkapy.reactor.limits import FRAMES_PER_TURN, ReactorLimits
from kafkapy.seams import FileRegion
from tests.simulator.bytes_file import BytesFile
from tests.simulator.loop import SimLoop, run
from tests.simulator.network import LinkRules, SimClient
from tests.simulator.reactor_world import World, response_of, wait_handler


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


async def big_handler(info: ConnectionInfo, request: bytes) -> Writer:
    """`big 1000` answers with 1000 bytes."""
    return response_of(bytes(int(request.split(b" ")[1])))


# ---- answers that nobody takes


async def test_a_peer_that_does_not_drain_is_not_read_from(loop: SimLoop):
    limits = ReactorLimits(connection=ConnectionLimits(max_output_bytes=50_000))
    world = World(loop, limits, big=big_handler, rules=LinkRules(capacity_bytes=10_000))
    client = world.connect()
    client.stop_reading()
    sender = asyncio.create_task(client.send(frame(b"big 10000") * 5000))
    await asyncio.sleep(1)
    assert len(world.started) <= 7, "one buffer on its way and the bound of responses"
    assert not sender.done()
    assert world.reactor.request_memory.bytes < 10_000
    client.read()
    for _ in range(5000):
        assert len(await client.receive_frame()) == 10_000
    await sender


async def test_500_stuck_consumers_hold_no_memory_and_do_not_delay_the_others(loop: SimLoop):
    released = []

    async def fetch(info: ConnectionInfo, request: bytes) -> Writer:
        return response_of(b"records ", FileRegion(file, 0, len(file.data), lambda: released.append(True)))

    file = BytesFile(bytes(2_000_000))
    world = World(loop, fetch=fetch)
    stuck = [world.connect() for _ in range(500)]
    for client in stuck:
        client.stop_reading()
        await client.send(frame(b"fetch x") * 3)
    await asyncio.sleep(1)
    assert len(world.started) == 500, "one response each, as a region"
    assert world.reactor.request_memory.bytes <= 500 * 3 * len(frame(b"fetch x"))
    assert world.reactor.request_memory.requests == 0
    other = world.connect()
    assert await world.round_trip_ms(other) < 1
    world.reactor.close()
    assert len(released) == 500
    assert world.reactor.request_memory.bytes == 0


async def test_beyond_the_bound_of_all_unread_responses_those_that_wait_for_longest_are_closed(
    loop: SimLoop, caplog: pytest.LogCaptureFixture
):
    """The next response of each is larger than what a connection may have unread when its request is started."""
    world = World(loop, big=big_handler, rules=LinkRules(capacity_bytes=10_000))
    world.reactor.unsent.max_bytes = 11_000_000
    stuck = [world.connect() for _ in range(20)]
    for client in stuck:
        client.stop_reading()
        await client.send(frame(b"big 2000000") * 3)
        await asyncio.sleep(0.01)
        assert world.reactor.unsent.bytes <= 13_000_000, (
            "the largest is beyond the bound, as its peer may begin to read"
        )
    await asyncio.sleep(READ_SECONDS)
    assert world.reactor.unsent.bytes <= 11_000_000
    assert world.reactor.connection_count == 5
    assert caplog.text.count("Closed 1 connections: there were more than 11000000 bytes of responses") == 15
    other = world.connect()
    assert await world.round_trip_ms(other) < 1
    for client in stuck[-4:]:
        client.read()
        for _ in range(3):
            assert len(await client.receive_frame()) == 2_000_000
    await asyncio.sleep(0.1)
    assert world.reactor.unsent.bytes < 3_000_000, "that of the one that does not read"


async def test_begun_frames_of_peers_that_have_not_logged_in_have_a_bound_of_their_own(loop: SimLoop):
    """Those that have had something in it for longest are closed; others log in without waiting."""
    world = World(loop, security_protocol="SASL_PLAINTEXT")
    world.reactor.logins.max_bytes = 4500
    stuck = [world.connect() for _ in range(20)]
    for client in stuck:
        await client.send(frame(bytes(900))[:-4])
        await asyncio.sleep(0.001)
        assert world.reactor.logins.bytes == world.reactor.request_memory.bytes <= 4500
    assert world.reactor.connection_count == 5
    other = world.connect()
    assert await world.round_trip_ms(other) < 1
    assert world.reactor.connection_count == 6
    world.reactor.close()
    assert world.reactor.logins.bytes == 0


# ---- requests beyond what the broker holds


async def test_queued_bytes_at_their_bound_stop_reading_and_go_on_below_it(loop: SimLoop):
    limits = ReactorLimits(queued_max_request_bytes=100_000)
    world = World(loop, limits, wait=wait_handler)
    clients = [world.connect() for _ in range(20)]
    requests = [b"wait 100 %02d" % index + bytes(30_000) for index in range(20)]
    for client, request in zip(clients, requests, strict=True):
        await client.send_frame(request)
    await asyncio.sleep(0.05)
    assert len(world.started) <= 5
    assert world.reactor.request_memory.bytes <= 100_000 + 64 * 1024
    for client, request in zip(clients, requests, strict=True):
        assert await client.receive_frame() == request
    assert world.reactor.request_memory.bytes == 0
    assert not world.reactor.request_memory.waiting


async def test_begun_frames_that_fill_the_backlog_are_completed_one_after_another(loop: SimLoop):
    world = World(loop, ReactorLimits(queued_max_request_bytes=100_000))
    clients = [world.connect() for _ in range(5)]
    request = b"echo " + bytes(60_000)
    for client in clients:
        await client.send(frame(request)[:40_000])
    await asyncio.sleep(0.01)
    assert world.reactor.request_memory.is_full
    for client in clients:
        await client.send(frame(request)[40_000:])
    for client in clients:
        assert await client.receive_frame() == request
    assert world.reactor.request_memory.bytes == 0
    assert world.reactor.request_memory.lease_holder is None


def test_a_begun_frame_that_stalls_a_full_broker_is_closed(caplog: pytest.LogCaptureFixture):
    async def main(loop: SimLoop) -> None:
        world = World(loop, ReactorLimits(queued_max_request_bytes=100_000))
        hostile = world.connect()
        await hostile.send(frame(bytes(1_000_000))[:150_000])
        await asyncio.sleep(0.01)
        other = world.connect()
        assert 1000 <= await world.round_trip_ms(other) <= 1501
        await hostile.wait_end()

    run(main)
    assert "arrives too slowly while others wait for memory" in caplog.text


async def test_queued_requests_at_their_bound_stop_reading_until_the_queue_is_worked_off(loop: SimLoop):
    world = World(loop, ReactorLimits(queued_max_requests=3, num_network_threads=2))
    clients = [world.connect() for _ in range(12)]
    for client in clients:
        await client.send(frame(b"echo x") * 100)
    for client in clients:
        for _ in range(100):
            assert await client.receive_frame() == b"echo x"
    assert world.reactor.request_memory.requests == 0
    assert not world.reactor.request_memory.waiting


async def test_waiting_requests_do_not_count_as_queued(loop: SimLoop):
    world = World(loop, ReactorLimits(queued_max_requests=10), wait=wait_handler)
    for _ in range(100):
        await world.connect().send_frame(b"wait 30000 x")
    await asyncio.sleep(0.01)
    assert len(world.started) == 100
    assert await world.round_trip_ms(world.connect()) < 1


async def test_a_connection_with_much_to_do_takes_turns_with_the_others(loop: SimLoop):
    world = World(loop, ReactorLimits(num_network_threads=1))
    busy, other = world.connect(), world.connect()
    await busy.send(frame(b"echo busy") * 3000)
    await other.send_frame(b"echo other")
    assert await other.receive_frame() == b"echo other"
    assert world.started.index(b"echo other") <= 2 * FRAMES_PER_TURN
    for _ in range(3000):
        await busy.receive_frame()


# ---- connections


async def test_at_max_connections_the_next_waits_in_the_backlog(loop: SimLoop):
    world = World(loop, ReactorLimits(max_connections=2))
    first, second, third = world.connect(), world.connect(), world.connect()
    await asyncio.sleep(0.01)
    assert world.reactor.connection_count == 2
    assert len(world.listener.backlog) == 1
    waiting = asyncio.create_task(world.round_trip_ms(third))
    await asyncio.sleep(1)
    assert not waiting.done()
    first.channel.close()
    assert await waiting > 999
    assert await world.round_trip_ms(second) < 1


async def test_a_listener_has_its_own_bound(loop: SimLoop):
    world = World(loop, ReactorLimits(listener_max_connections={"MAIN": 1}))
    admin = world.network.listen("10.0.0.9", 9093)
    world.reactor.add_listener("ADMIN", "PLAINTEXT", admin)
    world.reactor.start()
    world.connect(), world.connect()
    through_admin = SimClient(world.network.connect(("10.0.0.9", 9093)))
    assert await world.round_trip_ms(through_admin) < 1
    assert world.reactor.connection_count == 2


async def test_beyond_max_connections_per_ip_a_connection_is_closed(loop: SimLoop):
    limits = ReactorLimits(max_connections_per_ip=1, max_connections_per_ip_overrides={"10.0.0.2": 2})
    world = World(loop, limits)
    kept = [world.connect(from_host=host) for host in ("10.0.0.1", "10.0.0.2", "10.0.0.2")]
    refused = [world.connect(from_host=host) for host in ("10.0.0.1", "10.0.0.2")]
    for client in refused:
        await client.wait_end()
    for client in kept:
        assert await world.round_trip_ms(client) < 1
    kept[0].channel.close()
    await asyncio.sleep(0.01)
    assert await world.round_trip_ms(world.connect(from_host="10.0.0.1")) < 1


def test_out_of_descriptors_accepting_rests_and_goes_on(caplog: pytest.LogCaptureFixture):
    async def main(loop: SimLoop) -> None:
        world = World(loop)
        world.listener.errors += [OSError(errno.EMFILE, "too many open files"), OSError(errno.ENFILE, "too many")]
        assert 1000 <= await world.round_trip_ms(world.connect()) < 1010

    run(main)
    assert len(caplog.records) == 2


async def test_a_peer_gone_before_it_is_accepted_is_passed_over(loop: SimLoop):
    world = World(loop)
    world.listener.errors.append(ConnectionAbortedError(errno.ECONNABORTED, "aborted"))
    assert await world.round_trip_ms(world.connect()) < 1


async def test_connections_are_dealt_to_the_processors_in_turn(loop: SimLoop):
    world = World(loop, ReactorLimits(num_network_threads=3))
    for _ in range(7):
        await world.round_trip_ms(world.connect())
    assert [len(processor.links) for processor in world.reactor.processors] == [3, 2, 2]


async def test_an_idle_connection_is_closed_and_an_active_one_is_not(loop: SimLoop):
    world = World(loop, ReactorLimits(connections_max_idle_ms=10_000))
    idle, active = world.connect(), world.connect()
    await world.round_trip_ms(idle)
    for _ in range(30):
        assert await world.round_trip_ms(active) < 1
        await asyncio.sleep(1)
        if loop.now < 10:
            assert not idle.is_ended
        if loop.now > 11.1:
            assert idle.is_ended
    assert world.reactor.connection_count == 1
