"""TLS over simulated connections: the channel's promises to a link, handshakes and their bounds."""

import asyncio
import logging
import ssl
import struct
import sys
from pathlib import Path

import pytest

from kafkapy.protocol.primitives import Writer
from kafkapy.protocol.serving import ConnectionInfo, ConnectionLimits
from kafkapy.reactor import tls_handshake
from kafkapy.reactor.limits import FRAMES_PER_TURN, ReactorLimits
from kafkapy.reactor.tls import MAX_WASTED_BYTES
from kafkapy.reactor.tls_admission import ServerTls
from kafkapy.reactor.tls_handshake import MAX_ONE_HANDSHAKE_BYTES, STATE_BYTES, STEPS_PER_TURN
from kafkapy.seams import FileRegion
from tests.simulator.bytes_file import BytesFile
from tests.simulator.loop import SimLoop, run
from tests.simulator.network import LinkRules, SimChannel, SimClient
from tests.simulator.reactor_world import World, response_of, wait_handler
from tests.support.certificates import Authority, client_context, server_context

AUTHORITY = Authority()


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def principal_of(certificate: bytes | None) -> str:
    return "User:ANONYMOUS" if certificate is None else f"User:{len(certificate)} bytes"


@pytest.fixture
def tls(tmp_path: Path) -> ServerTls:
    return ServerTls(server_context(AUTHORITY.issue("broker"), tmp_path), principal_of)


@pytest.fixture
def context() -> ssl.SSLContext:
    return client_context(AUTHORITY)


async def whoami(info: ConnectionInfo, request: bytes) -> Writer:
    return response_of(info.principal.encode())


async def big(info: ConnectionInfo, request: bytes) -> Writer:
    """`big 1000` answers with 1000 bytes."""
    return response_of(bytes(int(request.split(b" ")[1])))


# ---- what a link relies on


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_requests_of_all_sizes_are_answered_over_a_link_that_cuts(
    loop: SimLoop, seed: int, version: ssl.TLSVersion, tls: ServerTls, context: ssl.SSLContext
):
    context.maximum_version = version
    rules = LinkRules(0, 3, max_piece_bytes=[301, 20_000, 1461][seed], capacity_bytes=30_000)
    world = World(loop, tls=tls, rules=rules, wait=wait_handler)
    client = await world.connect_tls(context)
    sizes = [loop.rng.choice([1, 100, 16_384, 16_385, 70_000, 140_000]) for _ in range(10)]
    requests = [b"wait %d " % loop.rng.randrange(3) + loop.rng.randbytes(size) for size in sizes]
    sender = asyncio.create_task(client.send(b"".join(map(frame, requests))))
    for request in requests:
        assert await client.receive_frame() == request
    await sender
    assert world.reactor.request_memory.bytes == 0


async def test_requests_beyond_a_turn_go_on_without_another_byte_from_the_peer(
    loop: SimLoop, tls: ServerTls, context: ssl.SSLContext
):
    """All arrive at once in few records: what OpenSSL holds when a turn ends, the socket does not call for."""

    world = World(loop, tls=tls)
    client = await world.connect_tls(context)
    requests = [b"echo %05d" % number + bytes(2000) for number in range(20 * FRAMES_PER_TURN)]
    await client.send(b"".join(map(frame, requests)))
    assert [await client.receive_frame() for _ in requests] == requests


def test_the_end_of_a_frame_is_received_with_the_whole_record_that_holds_it(
    tls: ServerTls, context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
):
    """Frames end amid records, whose rest once came in pieces of 513 bytes: thirty receives for a record."""
    receives: list[int] = []
    receive = SimChannel.receive

    def counted(channel: SimChannel, max_bytes: int) -> bytes | None:
        receives.append(max_bytes)
        return receive(channel, max_bytes)

    async def main(loop: SimLoop) -> None:
        world = World(loop, tls=tls, rules=LinkRules(0, 0, capacity_bytes=4_000_000), wait=wait_handler)
        client = await world.connect_tls(context)
        monkeypatch.setattr(SimChannel, "receive", counted)
        await client.send(b"".join(frame(b"wait 0 " + bytes(130_000 + 131 * number)) for number in range(20)))
        for _ in range(20):
            await client.receive_frame()

    run(main)
    assert min(receives) >= 16 * 1024


async def test_requests_held_while_muted_are_served_when_that_ends(
    loop: SimLoop, tls: ServerTls, context: ssl.SSLContext
):
    async def throttle(info: ConnectionInfo, request: bytes) -> Writer:
        info.throttle_ms = 500
        return response_of(request)

    world = World(loop, tls=tls, throttle=throttle)
    client = await world.connect_tls(context)
    await client.send(frame(b"throttle x") + b"".join(frame(b"echo %d" % n + bytes(10_000)) for n in range(20)))
    assert await client.receive_frame() == b"throttle x"
    assert loop.now_ms() < 100
    for number in range(20):
        assert (await client.receive_frame()).startswith(b"echo %d" % number)
    assert 500 <= loop.now_ms() < 600


async def test_requests_held_while_the_account_is_full_are_served_when_it_has_room(
    loop: SimLoop, tls: ServerTls, context: ssl.SSLContext
):
    limits = ReactorLimits(queued_max_request_bytes=100_000, connection=ConnectionLimits(max_frame_bytes=50_000))
    world = World(loop, limits, tls=tls, wait=wait_handler)
    hog, client = await world.connect_tls(context), await world.connect_tls(context)
    await hog.send(frame(b"wait 300 " + bytes(45_000)) + frame(b"wait 300 " + bytes(45_000)))
    await asyncio.sleep(0.01)
    for number in range(40):
        await client.send(frame(b"echo %d " % number + bytes(5000)))
    for number in range(40):
        assert (await client.receive_frame()).startswith(b"echo %d " % number)
    assert world.reactor.request_memory.bytes <= 100_000


async def test_regions_are_read_in_pieces_and_released_once_their_ciphertext_has_left(
    loop: SimLoop, tls: ServerTls, context: ssl.SSLContext
):
    data = bytes(range(256)) * 8000
    file = BytesFile(data)
    released: list[float] = []

    async def fetch(info: ConnectionInfo, request: bytes) -> Writer:
        return response_of(b"records ", FileRegion(file, 1000, 2_000_000, lambda: released.append(loop.time())))

    world = World(loop, tls=tls, fetch=fetch, rules=LinkRules(capacity_bytes=50_000))
    client = await world.connect_tls(context)
    client.stop_reading()
    await client.send(frame(b"fetch x") + frame(b"echo behind"))
    await asyncio.sleep(1)
    assert not released
    client.read()
    assert await client.receive_frame() == b"records " + data[1000:2_001_000]
    assert await client.receive_frame() == b"echo behind"
    assert len(released) == 1


async def test_a_region_that_was_cut_ends_its_connection(loop: SimLoop, tls: ServerTls, context: ssl.SSLContext):
    async def fetch(info: ConnectionInfo, request: bytes) -> Writer:
        return response_of(b"records ", FileRegion(BytesFile(bytes(90_000)), 0, 100_000))

    world = World(loop, tls=tls, fetch=fetch)
    client = await world.connect_tls(context)
    await client.send_frame(b"fetch x")
    await client.wait_end()
    assert world.reactor.connection_count == 0


async def test_a_peer_that_does_not_drain_is_not_read_from(loop: SimLoop, tls: ServerTls, context: ssl.SSLContext):
    limits = ReactorLimits(connection=ConnectionLimits(max_output_bytes=50_000))
    world = World(loop, limits, tls=tls, big=big, rules=LinkRules(capacity_bytes=10_000))
    client = await world.connect_tls(context)
    client.stop_reading()
    sender = asyncio.create_task(client.send(frame(b"big 10000") * 2000))
    await asyncio.sleep(1)
    assert len(world.started) <= 20
    assert world.reactor.request_memory.bytes < 20_000
    client.read()
    for _ in range(2000):
        assert len(await client.receive_frame()) == 10_000
    await sender


async def test_the_last_response_leaves_whole_before_the_connection_closes(
    loop: SimLoop, tls: ServerTls, context: ssl.SSLContext
):
    async def last(info: ConnectionInfo, request: bytes) -> Writer:
        info.close_after_response = True
        return response_of(bytes(300_000))

    world = World(loop, tls=tls, last=last, rules=LinkRules(capacity_bytes=5000))
    client = await world.connect_tls(context)
    await client.send_frame(b"last x")
    assert len(await client.receive_frame()) == 300_000
    await client.wait_end()


async def test_both_sides_say_goodbye(loop: SimLoop, tls: ServerTls, context: ssl.SSLContext):
    """A client that says close_notify is answered first; a broker that ends says it, so that nothing looks cut off."""

    world = World(loop, tls=tls, wait=wait_handler)
    client = await world.connect_tls(context)
    await client.send_frame(b"wait 20 x")
    client.channel._session.send_close_notify()
    assert await client.receive_frame() == b"wait 20 x"
    await client.wait_end()
    assert world.reactor.connection_count == 0
    other = await world.connect_tls(context)
    assert await world.round_trip_ms(other) < 2
    world.reactor.close()
    other.stop_reading()
    await asyncio.sleep(0.1)
    session = other.channel._session
    session.incoming.write(session.transport.receive(10_000))
    assert session.tls.read(1) == b"", "close_notify: no SSLEOFError, nor that bytes are missing"


# ---- handshakes


async def test_the_principal_is_known_before_the_first_request(loop: SimLoop, tmp_path: Path, context: ssl.SSLContext):
    identity = AUTHORITY.issue("alice", key_number=2)
    tls = ServerTls(server_context(AUTHORITY.issue("broker"), tmp_path, AUTHORITY), principal_of)
    world = World(loop, tls=tls, whoami=whoami)
    client = await world.connect_tls(client_context(AUTHORITY, identity, tmp_path))
    await client.send_frame(b"whoami")
    assert await client.receive_frame() == b"User:%d bytes" % len(identity.certificate_der)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_without_the_required_certificate_is_refused(
    version: ssl.TLSVersion, tmp_path: Path, context: ssl.SSLContext, caplog: pytest.LogCaptureFixture
):
    async def main(loop: SimLoop) -> None:
        context.maximum_version = version
        tls = ServerTls(server_context(AUTHORITY.issue("broker"), tmp_path, AUTHORITY), principal_of)
        world = World(loop, tls=tls)
        with pytest.raises((OSError, EOFError)):
            await _connect_and_send(world, context)
        assert world.reactor.connection_count == 0
        assert not world.started

    caplog.set_level(logging.INFO)
    run(main)
    assert "Failed authentication with 10.0.0.1" in caplog.text
    assert "peer did not return a certificate" in caplog.text


async def _connect_and_send(world: World, context: ssl.SSLContext) -> None:
    """A TLS 1.3 client has connected before the server looks at its certificate: it hears when it asks."""
    await world.round_trip_ms(await world.connect_tls(context))


def test_a_principal_that_cannot_be_named_is_refused(
    tmp_path: Path, context: ssl.SSLContext, caplog: pytest.LogCaptureFixture
):
    async def main(loop: SimLoop) -> None:
        def refuse(certificate: bytes | None) -> str:
            raise ValueError(f"No rules apply to CN=alice{chr(10)}Accepted bob{'x' * 1000}")

        world = World(loop, tls=ServerTls(server_context(AUTHORITY.issue("broker"), tmp_path), refuse))
        with pytest.raises((OSError, EOFError)):
            await _connect_and_send(world, context)
        assert world.reactor.connection_count == 0

    caplog.set_level(logging.INFO)
    run(main)
    assert "No rules apply to CN=alice\\nAccepted bob" in caplog.text, "a name can forge no line"
    assert len(caplog.text) < 1000


@pytest.mark.parametrize(
    ("output", "spoken"),
    [
        (struct.pack(">ihhih", 10, 18, 0, 0, -1), "Kafka's plain protocol"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH"),
    ],
)
def test_another_protocol_on_a_tls_port_is_one_line_that_says_so(
    output: bytes, spoken: str, tls: ServerTls, caplog: pytest.LogCaptureFixture
):
    async def main(loop: SimLoop) -> None:
        world = World(loop, tls=tls)
        client = world.connect()
        await client.send(output)
        await client.wait_end()
        assert world.reactor.connection_count == 0

    caplog.set_level(logging.INFO)
    run(main)
    (record,) = caplog.records
    assert record.message.partition(": ")[2] == f"the client speaks {spoken} to a TLS port"
    assert record.levelname == "WARNING", "as TLS on a plain port: shown by default"


async def test_handshakes_that_stall_end_after_ten_seconds(loop: SimLoop, tls: ServerTls, context: ssl.SSLContext):
    """Nothing, one byte a second, half of a hello: all are given kafkapy.authentication.timeout.ms."""

    world = World(loop, tls=tls)
    hello = _client_hello(context)
    silent, half, trickling = world.connect(), world.connect(), world.connect()
    await half.send(hello[: len(hello) // 2])
    trickle = asyncio.create_task(_trickle(trickling, hello))
    await asyncio.sleep(9.9)
    assert world.reactor.connection_count == 3
    await asyncio.sleep(0.2)
    assert world.reactor.connection_count == 0
    assert silent.is_ended
    assert half.is_ended
    assert trickling.is_ended
    trickle.cancel()
    client = await world.connect_tls(context)
    assert await world.round_trip_ms(client) < 2


async def _trickle(client: SimClient, data: bytes) -> None:
    for byte in data:
        await client.send(bytes([byte]))
        await asyncio.sleep(1)


def _client_hello(context: ssl.SSLContext) -> bytes:
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


async def test_a_storm_of_handshakes_leaves_others_their_turns(loop: SimLoop, tls: ServerTls, context: ssl.SSLContext):
    """Virtual time does not see what a handshake costs: the hellos read in each pass of the loop are counted."""

    world = World(loop, tls=tls)
    canary = await world.connect_tls(context)
    await world.round_trip_ms(canary)
    in_passes = [0]

    def note_hello(*_: object) -> None:
        if not in_passes[-1]:
            loop.call_soon(in_passes.append, 0)
        in_passes[-1] += 1

    tls.context.sni_callback = note_hello
    hello = _client_hello(context)
    for client in [world.connect() for _ in range(200)]:
        await client.send(hello)
    for _ in range(30):
        assert await world.round_trip_ms(canary) < 2
    assert sum(in_passes) == 200
    assert max(in_passes) == STEPS_PER_TURN
    assert world.reactor.connection_count == 201
    world.reactor.close()
    assert world.reactor.connection_count == 0


async def test_the_longest_handshake_goes_when_max_connections_is_exceeded(
    loop: SimLoop, tls: ServerTls, context: ssl.SSLContext
):
    world = World(loop, ReactorLimits(max_connections=3), tls=tls)
    silent = world.connect()
    await asyncio.sleep(1)
    clients = [await world.connect_tls(context) for _ in range(2)]
    world.reactor.update_connection_limits(ReactorLimits(max_connections=2))
    await silent.wait_end()
    assert [await world.round_trip_ms(client) < 2 for client in clients] == [True, True]


@pytest.mark.parametrize(
    "flood",
    [b"\x16\x03\x03\x00\x00", b"\x14\x03\x03\x00\x01\x01", b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + bytes(16380)],
    ids=["empty records", "change_cipher_spec", "endless hello"],
)
@pytest.mark.parametrize("is_after_hello", [False, True])
def test_a_flood_amid_a_handshake_is_broken_off(
    flood: bytes,
    is_after_hello: bool,
    tls: ServerTls,
    context: ssl.SSLContext,
    caplog: pytest.LogCaptureFixture,
):
    async def main(loop: SimLoop) -> None:
        world = World(loop, tls=tls)
        client = world.connect()
        await client.send(_client_hello(context) if is_after_hello else flood)
        with pytest.raises(BrokenPipeError):
            await client.send(flood * (1_000_000 // len(flood)))
        assert loop.now_ms() < 1000
        await asyncio.sleep(0.1)
        assert world.reactor.connection_count == 0

    caplog.set_level(logging.INFO)
    run(main)
    assert "Failed authentication" in caplog.text


def test_a_hello_of_records_of_one_byte_is_broken_off(tls: ServerTls, caplog: pytest.LogCaptureFixture):
    """OpenSSL would wait for all of the 128 KiB that it announces."""

    async def main(loop: SimLoop) -> None:
        world = World(loop, tls=tls)
        client = world.connect()
        hello = b"\1\2\0\0" + bytes(12_000)
        await client.send(b"".join(b"\x16\x03\x01\0\1" + bytes((byte,)) for byte in hello))
        await client.wait_end()

    caplog.set_level(logging.INFO)
    run(main)
    assert f"the handshake is longer than {MAX_ONE_HANDSHAKE_BYTES} bytes" in caplog.text


def test_a_hello_that_declares_too_much_is_refused_at_its_first_bytes(tls: ServerTls, caplog: pytest.LogCaptureFixture):
    """OpenSSL would make room for all of it."""

    async def main(loop: SimLoop) -> None:
        world = World(loop, tls=tls)
        client = world.connect()
        declared = MAX_ONE_HANDSHAKE_BYTES + 1
        await client.send(b"\x16\x03\x01\x20\0\1" + declared.to_bytes(3, "big") + bytes(100))
        await client.wait_end()

    caplog.set_level(logging.INFO)
    run(main)
    assert f"the handshake is longer than {MAX_ONE_HANDSHAKE_BYTES} bytes" in caplog.text


def test_begun_handshakes_have_a_bound_together(
    tls: ServerTls, context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(tls_handshake, "MAX_HANDSHAKE_BYTES", 500_000)

    async def main(loop: SimLoop) -> None:
        world = World(loop, tls=tls)
        for _ in range(40):
            await world.connect().send(_client_hello(context)[:100])
            await asyncio.sleep(0.001)
        assert 20 <= world.reactor.connection_count <= 500_000 // STATE_BYTES
        client = await world.connect_tls(context)
        assert await world.round_trip_ms(client) < 1

    caplog.set_level(logging.INFO)
    run(main)
    assert "there were more than 500000 bytes of TLS handshakes" in caplog.text


async def test_the_handshakes_of_addresses_take_turns(
    loop: SimLoop, tls: ServerTls, context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
):
    steps: list[str] = []
    step = tls_handshake.Handshake.step

    def note(handshake: tls_handshake.Handshake) -> None:
        steps.append(handshake.address)
        step(handshake)

    monkeypatch.setattr(tls_handshake.Handshake, "step", note)
    world = World(loop, tls=tls)
    for host in (*["10.0.0.1"] * 50, "10.0.0.2"):
        await world.connect(from_host=host).send(_client_hello(context))
    await asyncio.sleep(0.1)
    assert len(steps) == 51
    assert steps.index("10.0.0.2") <= STEPS_PER_TURN


# ---- records without data


@pytest.mark.parametrize("seed", range(2))
async def test_one_byte_in_a_record_is_enough_for_a_peer_that_sends_little(
    loop: SimLoop, seed: int, tls: ServerTls, context: ssl.SSLContext
):
    world = World(loop, tls=tls)
    client = await world.connect_tls(context)
    for _ in range(50):
        for byte in frame(b"echo ping"):
            await client.send(bytes([byte]))
        assert await client.receive_frame() == b"echo ping"


def test_a_peer_that_sends_records_of_nothing_is_closed(
    tls: ServerTls, context: ssl.SSLContext, caplog: pytest.LogCaptureFixture
):
    """Records of padding alone cannot be made here; those of one byte that begin a frame, and no more, can."""

    async def main(loop: SimLoop) -> None:
        world = World(loop, tls=tls)
        client, canary = await world.connect_tls(context), await world.connect_tls(context)
        flood = asyncio.create_task(_send_bytes_apart(client, frame(bytes(400_000)), 20_000))
        slowest = max([await world.round_trip_ms(canary) for _ in range(50)])
        assert slowest < 5
        await client.wait_end()
        with pytest.raises(BrokenPipeError):
            await flood
        assert world.reactor.connection_count == 1

    caplog.set_level(logging.INFO)
    run(main)
    assert "the peer sends TLS records without data" in caplog.text


async def test_ciphertext_is_not_called_wasted_before_its_data_was_taken(
    loop: SimLoop, tls: ServerTls, context: ssl.SSLContext
):
    """Four records are given to OpenSSL at once, and their owner may stop after ten bytes of them."""
    world = World(loop, tls=tls, big=big, rules=LinkRules(capacity_bytes=200_000))
    client = await world.connect_tls(context)
    client.stop_reading()
    await client.send_frame(b"big 70000")
    await asyncio.sleep(0.1)
    channel = client.channel
    channel._wasted_bytes = MAX_WASTED_BYTES
    received = channel.receive(10)
    while part := channel.receive(100_000):
        received += part
    assert len(received) == 4 + 70_000


async def _send_bytes_apart(client: SimClient, data: bytes, count: int) -> None:
    for byte in data[:count]:
        await client.send(bytes([byte]))


# ---- a connection that cannot be set up


def test_a_connection_that_cannot_be_set_up_is_closed_and_the_next_is_served(
    tls: ServerTls, context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """The link's module is imported with the first connection, which fails without a free descriptor."""

    async def main(loop: SimLoop) -> None:
        world = World(loop, tls=tls)
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "kafkapy.reactor.link", None)
            refused = await world.connect_tls(context)
            with pytest.raises((EOFError, OSError)):
                await refused.receive_frame()
        assert world.reactor.connection_count == 0
        assert await world.round_trip_ms(await world.connect_tls(context)) < 1

    run(main)
    assert "Failed to set up a connection from 10.0.0.1" in caplog.messages
