"""Requests and answers over simulated connections: order, overlap, errors, muting, the end of a connection."""

import asyncio
import gc
import struct

import pytest

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.primitives import Writer
from kafkapy.protocol.serving import ConnectionInfo
from kafkapy.reactor.processor import MAX_UNSENT
from kafkapy.seams import FileRegion
from tests.simulator.bytes_file import BytesFile
from tests.simulator.loop import SimLoop, run
from tests.simulator.network import LinkRules
from tests.simulator.reactor_world import World, response_of, wait_handler


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize("seed", range(5))
async def test_responses_come_in_request_order_though_waits_overlap(loop: SimLoop, seed: int):
    world = World(loop, wait=wait_handler, rules=LinkRules(0, 5, max_piece_bytes=7))
    client = world.connect()
    waits = [loop.rng.randrange(0, 300) for _ in range(30)]
    requests = [b"wait %d %d" % (wait, index) for index, wait in enumerate(waits)]
    for request in requests:
        await client.send_frame(request)
    assert [await client.receive_frame() for _ in requests] == requests
    assert world.started == requests
    assert loop.now_ms() < 300 + 1100, "the waits overlapped"


async def test_answers_of_many_connections_at_one_time_all_leave(loop: SimLoop):
    """The first sends at once, the others together; they are more than leave together."""

    world = World(loop, echo=_echo)
    clients = [world.connect() for _ in range(3 * MAX_UNSENT + 2)]
    for number, client in enumerate(clients):
        await client.send_frame(b"echo %d" % number)
    assert [await client.receive_frame() for client in clients] == [b"echo %d" % n for n in range(len(clients))]


async def _echo(info: ConnectionInfo, request: bytes) -> Writer:
    return response_of(request)


async def test_the_next_request_starts_when_the_one_before_waits(loop: SimLoop):
    steps = []

    async def step(info: ConnectionInfo, request: bytes) -> Writer:
        steps.append(b"start " + request)
        steps.append(b"append " + request)
        await asyncio.sleep(0.01)
        steps.append(b"end " + request)
        return response_of(request)

    world = World(loop, step=step)
    client = world.connect()
    await client.send(frame(b"step 1") + frame(b"step 2"))
    await client.receive_frame()
    assert steps[:4] == [b"start step 1", b"append step 1", b"start step 2", b"append step 2"]


async def test_a_handler_that_gives_way_is_answered_before_the_loop_reads_again(loop: SimLoop):
    """It goes on after what was scheduled before, and its response leaves in the same pass."""

    events: list[str] = []
    in_next_pass: list[bool] = []

    async def commit(info: ConnectionInfo, request: bytes) -> Writer:
        loop.call_soon(events.append, "flushed")
        loop.call_soon(loop.call_soon, lambda: in_next_pass.append(world.reactor.is_quiet))
        await asyncio.sleep(0)
        events.append("answered")
        return response_of(request)

    world = World(loop, commit=commit)
    client = world.connect()
    await client.send_frame(b"commit")
    assert await client.receive_frame() == b"commit"
    assert events == ["flushed", "answered"]
    assert in_next_pass == [True]


async def test_a_handler_may_yield_to_the_loop_and_await_tasks(loop: SimLoop):
    async def busy(info: ConnectionInfo, request: bytes) -> Writer:
        await asyncio.sleep(0)
        results = await asyncio.gather(asyncio.sleep(0.01, b"a"), asyncio.sleep(0.02, b"b"))
        return response_of(b"".join(results))

    client = World(loop, busy=busy).connect()
    await client.send_frame(b"busy x")
    assert await client.receive_frame() == b"ab"


async def test_a_request_without_a_response_keeps_the_order(loop: SimLoop):
    async def silent(info: ConnectionInfo, request: bytes) -> None:
        await asyncio.sleep(0.02)

    world = World(loop, silent=silent)
    client = world.connect()
    await client.send(frame(b"echo 1") + frame(b"silent 2") + frame(b"echo 3"))
    assert [await client.receive_frame(), await client.receive_frame()] == [b"echo 1", b"echo 3"]
    assert loop.now_ms() >= 20


@pytest.mark.parametrize(
    "bad", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", struct.pack(">i", 104_857_601), frame(b"??")]
)
def test_a_bad_frame_closes_its_own_connection_only(bad: bytes, caplog: pytest.LogCaptureFixture):
    async def main(loop: SimLoop) -> None:
        world = World(loop)
        client, other = world.connect(), world.connect()
        assert await world.round_trip_ms(other) < 1
        await client.send(frame(b"echo 1") + bad + frame(b"echo 2"))
        assert await client.receive_frame() == b"echo 1"
        await client.wait_end()
        assert not client.received
        assert await world.round_trip_ms(other) < 1
        assert world.reactor.connection_count == 1
        assert world.reactor.request_memory.bytes == 0

    run(main)
    assert len(caplog.records) == 1
    assert "10.0.0.9:9092-10.0.0.1:40001-0-0" in caplog.text
    assert "cannot be read" in caplog.text


def test_the_log_names_the_api_of_a_request_that_cannot_be_read(caplog: pytest.LogCaptureFixture):
    async def main(loop: SimLoop) -> None:
        client = World(loop).connect()
        await client.send_frame(b"\x00\x01\x00\x0d rest of a damaged fetch")
        await client.wait_end()

    run(main)
    assert "api Fetch (1) cannot be read" in caplog.text


@pytest.mark.parametrize("wait", [False, True])
def test_an_unexpected_error_closes_the_connection_with_its_traceback(wait: bool, caplog: pytest.LogCaptureFixture):
    async def main(loop: SimLoop) -> None:
        async def broken(info: ConnectionInfo, request: bytes) -> Writer:
            if wait:
                await asyncio.sleep(0.01)
            raise KeyError("our mistake")

        world = World(loop, broken=broken)
        client, other = world.connect(), world.connect()
        await client.send_frame(b"broken x")
        await client.wait_end()
        assert await world.round_trip_ms(other) < 1
        assert world.reactor.request_memory.bytes == 0

    run(main)
    assert "KeyError: 'our mistake'" in caplog.text


async def test_a_throttled_response_leaves_first_and_then_nothing_starts(loop: SimLoop):
    async def throttle(info: ConnectionInfo, request: bytes) -> Writer:
        info.throttle_ms = 300
        return response_of(request)

    world = World(loop, throttle=throttle)
    client = world.connect()
    await client.send(frame(b"throttle 1") + frame(b"echo 2"))
    assert await client.receive_frame() == b"throttle 1"
    assert loop.now_ms() < 5
    assert await client.receive_frame() == b"echo 2"
    assert 300 <= loop.now_ms() < 305


async def test_close_after_answer_sends_the_response_and_starts_nothing_more(loop: SimLoop):
    async def fail(info: ConnectionInfo, request: bytes) -> Writer:
        info.close_after_response = True
        return response_of(b"login failed")

    world = World(loop, fail=fail)
    client = world.connect()
    await client.send(frame(b"fail 1") + frame(b"echo 2"))
    assert await client.receive_frame() == b"login failed"
    await client.wait_end()
    assert world.started == [b"fail 1"]


async def test_a_failed_request_without_a_response_can_close_the_connection(loop: SimLoop):
    async def acks_zero(info: ConnectionInfo, request: bytes) -> None:
        info.close_after_response = True

    client = World(loop, acks_zero=acks_zero).connect()
    await client.send_frame(b"acks_zero 1")
    await client.wait_end()
    assert not client.received


async def test_before_login_requests_go_one_at_a_time_and_small(loop: SimLoop):
    async def login(info: ConnectionInfo, request: bytes) -> Writer:
        await asyncio.sleep(0.05)
        info.is_authenticated = True
        return response_of(b"welcome")

    world = World(loop, security_protocol="SASL_PLAINTEXT", login=login)
    client, stranger = world.connect(), world.connect()
    await client.send(frame(b"login x") + frame(b"echo " + bytes(2000)))
    assert await client.receive_frame() == b"welcome"
    assert len(await client.receive_frame()) == 2005
    await stranger.send(frame(b"echo " + bytes(2000)))
    await stranger.wait_end()


async def test_a_login_may_take_ten_seconds(loop: SimLoop):
    async def login(info: ConnectionInfo, request: bytes) -> Writer:
        info.is_authenticated = True
        return response_of(b"welcome")

    world = World(loop, security_protocol="SASL_PLAINTEXT", login=login)
    clients = silent, trickling, chatting, prompt = [world.connect() for _ in range(4)]
    await trickling.send(frame(b"login x")[:5])
    await chatting.send_frame(b"echo 1")
    await prompt.send_frame(b"login x")
    await asyncio.sleep(9.9)
    assert world.reactor.connection_count == len(clients)
    await asyncio.sleep(0.2)
    assert world.reactor.connection_count == 1
    for client in (silent, trickling):
        await client.wait_end()
    assert await prompt.receive_frame() == b"welcome"
    await world.round_trip_ms(prompt)


async def test_a_half_closed_peer_is_still_answered(loop: SimLoop):
    world = World(loop, wait=wait_handler)
    client = world.connect()
    await client.send(frame(b"echo 1") + frame(b"wait 100 2"))
    client.channel.end()
    assert await client.receive_frame() == b"echo 1"
    assert await client.receive_frame() == b"wait 100 2"
    await client.wait_end()
    assert world.reactor.connection_count == 0


async def test_a_half_closed_peer_is_not_waited_for_longer_than_the_linger(loop: SimLoop):
    world = World(loop, wait=wait_handler)
    client = world.connect()
    await client.send_frame(b"wait 60000 x")
    client.channel.end()
    await client.wait_end()
    assert 5000 <= loop.now_ms() < 5010
    await asyncio.sleep(60)
    assert world.reactor.request_memory.bytes == 0


async def test_a_reset_while_a_request_waits_drops_its_response_and_releases_its_region(loop: SimLoop):
    released = []

    async def fetch(info: ConnectionInfo, request: bytes) -> Writer:
        await asyncio.sleep(0.1)
        return response_of(b"", FileRegion(BytesFile(bytes(1000)), 0, 1000, lambda: released.append(True)))

    world = World(loop, fetch=fetch)
    client = world.connect()
    await client.send_frame(b"fetch x")
    await asyncio.sleep(0.05)
    client.channel.reset()
    await asyncio.sleep(0.01)
    assert world.reactor.connection_count == 0
    await asyncio.sleep(0.1)
    assert released == [True]
    assert world.reactor.request_memory.bytes == 0


async def test_shut_down_lets_waiting_requests_be_answered_within_the_grace(loop: SimLoop):
    world = World(loop, wait=wait_handler)
    quick, slow = world.connect(), world.connect()
    await quick.send_frame(b"wait 100 x")
    await slow.send_frame(b"wait 9000 x")
    await asyncio.sleep(0.01)
    await world.reactor.shut_down(500)
    assert await quick.receive_frame() == b"wait 100 x"
    await slow.wait_end()
    assert 500 <= loop.now_ms() < 600
    assert world.reactor.request_memory.bytes == 0


async def test_a_client_that_asks_again_at_once_does_not_delay_a_stop(loop: SimLoop):
    """A consumer's next Fetch would be parked, and answered by what the node hears of its own end."""
    world = World(loop, wait=wait_handler)
    consumer, silent = world.connect(), world.connect()
    await silent.send_frame(b"wait 0 x")
    await silent.receive_frame()
    await consumer.send_frame(b"wait 100 first")
    await asyncio.sleep(0.01)

    world.reactor.stop_serving()
    await consumer.send_frame(b"wait 400 second")
    await silent.wait_end()
    assert await consumer.receive_frame() == b"wait 100 first"
    await consumer.wait_end()
    await world.reactor.shut_down(500)

    assert world.started == [b"wait 0 x", b"wait 100 first"]
    assert loop.now_ms() < 150


async def test_a_waiting_handler_is_cancelled_at_the_end(loop: SimLoop):
    ended = []

    async def hold(info: ConnectionInfo, request: bytes) -> Writer:
        try:
            await loop.create_future()
        finally:
            ended.append(True)
        raise AssertionError("never")

    world = World(loop, hold=hold)
    client = world.connect()
    await client.send_frame(b"hold x")
    await asyncio.sleep(0.01)
    world.reactor.close()
    assert ended == [True]


@pytest.mark.parametrize("fails_first", [True, False], ids=["failed before", "failed after"])
async def test_the_error_of_a_handler_that_is_cancelled_at_the_end_is_no_error_of_the_loop(
    loop: SimLoop, fails_first: bool
):
    """A stop fails what is parked and closes in the same pass, if the request's connection is gone already."""
    errors = []
    loop.set_exception_handler(lambda _, details: errors.append(details["message"]))
    waits = [loop.create_future()]

    async def park(info: ConnectionInfo, request: bytes) -> Writer:
        await waits[0]
        raise AssertionError("never")

    def fail() -> None:
        waits.pop().set_exception(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    world = World(loop, park=park)
    client = world.connect()
    await client.send_frame(b"park x")
    await asyncio.sleep(0.01)
    client.channel.reset()
    await asyncio.sleep(0.01)
    if fails_first:
        fail()
    await world.reactor.shut_down(500)
    if not fails_first:
        fail()
    await asyncio.sleep(0.01)
    gc.collect()
    assert errors == []


def test_no_request_is_lost_or_doubled_on_a_bad_network():
    async def main(loop: SimLoop) -> None:
        world = World(loop, wait=wait_handler, rules=LinkRules(0, 20, max_piece_bytes=1000, capacity_bytes=3000))

        async def converse() -> None:
            client = world.connect()
            requests = [b"wait %d " % loop.rng.randrange(20) + bytes(loop.rng.randrange(9000)) for _ in range(20)]
            sender = asyncio.create_task(client.send(b"".join(map(frame, requests))))
            assert [await client.receive_frame() for _ in requests] == requests
            await sender

        await asyncio.gather(*[converse() for _ in range(20)])
        assert world.reactor.request_memory.bytes == 0

    run(main, seed=3)


async def test_a_handler_may_hold_its_connection_until_it_is_done(loop: SimLoop):
    """Others of the connection start behind it, whenever it asked for that; those of other connections do not care."""

    async def hold(info: ConnectionInfo, request: bytes) -> Writer | None:
        info.is_held = True
        await asyncio.sleep(0.1)
        return response_of(request)

    async def late_hold(info: ConnectionInfo, request: bytes) -> Writer | None:
        await asyncio.sleep(0.1)
        return await hold(info, request)

    world = World(loop, hold=hold, late_hold=late_hold, wait=wait_handler)
    client, other = world.connect(), world.connect()
    for request in (b"wait 50", b"hold a", b"echo b", b"late_hold c", b"hold d", b"echo e"):
        await client.send_frame(request)
    await asyncio.sleep(0.09)
    assert world.started == [b"wait 50", b"hold a"]
    assert await world.round_trip_ms(other) < 1
    for expected in (b"wait 50", b"hold a", b"echo b", b"late_hold c", b"hold d", b"echo e"):
        assert await client.receive_frame() == expected
    assert await world.round_trip_ms(client) < 1
