"""What a TLS channel promises to any owner, whatever that takes at a time. In test_tls.py the owner is a link."""

import asyncio
import ssl
from pathlib import Path

import pytest

from kafkapy.protocol.primitives import Writer
from kafkapy.protocol.serving import ConnectionInfo
from kafkapy.reactor.tls import TlsChannel
from kafkapy.reactor.tls_admission import ServerTls
from tests.simulator.loop import SimLoop
from tests.simulator.network import LinkRules
from tests.simulator.reactor_world import World, response_of
from tests.support.certificates import Authority, client_context, server_context

AUTHORITY = Authority()


@pytest.fixture
def tls(tmp_path: Path) -> ServerTls:
    return ServerTls(server_context(AUTHORITY.issue("broker"), tmp_path), lambda _: "User:ANONYMOUS")


@pytest.fixture
def context() -> ssl.SSLContext:
    return client_context(AUTHORITY)


async def last(info: ConnectionInfo, request: bytes) -> Writer:
    info.close_after_response = True
    return response_of(bytes(60_000))


async def big(info: ConnectionInfo, request: bytes) -> Writer:
    return response_of(bytes(60_000))


class Owner:
    """Takes so many bytes each time that it is called."""

    def __init__(self, channel: TlsChannel, count: int) -> None:
        self._channel = channel
        self._count = count
        self.parts: list[bytes] = []
        channel.on_readable(self._on_readable)

    def _on_readable(self) -> None:
        part = self._channel.receive(self._count)
        if part is not None:
            self.parts.append(part)
        if part == b"":
            self._channel.on_readable(None)


@pytest.mark.parametrize("count", [100, 16_384, 70_000])
async def test_an_owner_is_called_until_all_has_come_and_the_end(
    loop: SimLoop, count: int, tls: ServerTls, context: ssl.SSLContext
) -> None:
    """All has arrived before it takes the first bytes: the socket calls for no more, and its end stays unheard."""
    world = World(loop, tls=tls, last=last, rules=LinkRules(0, 0, capacity_bytes=200_000))
    client = await world.connect_tls(context)
    client.stop_reading()
    await client.send_frame(b"last x")
    await asyncio.sleep(1)
    transport = client.channel._session.transport
    ciphertext = transport.receive(200_000)
    assert len(ciphertext) > 60_000
    transport.on_readable = lambda callback: None  # nothing more comes, not even the end
    client.channel._records.add(ciphertext)
    owner = Owner(client.channel, count)
    await asyncio.sleep(1)
    assert sum(map(len, owner.parts)) == 4 + 60_000
    assert owner.parts[-1] == b"", "close_notify is the end"
    assert max(map(len, owner.parts)) <= count


async def test_an_owner_that_the_socket_calls_is_called_for_what_the_socket_does_not_hold_any_more(
    loop: SimLoop, tls: ServerTls, context: ssl.SSLContext
) -> None:
    world = World(loop, tls=tls, big=big, rules=LinkRules(0, 0, capacity_bytes=200_000))
    client = await world.connect_tls(context)
    owner = Owner(client.channel, 100)
    await client.send_frame(b"big x")
    await asyncio.sleep(1)
    assert sum(map(len, owner.parts)) == 4 + 60_000


async def test_what_openssl_has_to_say_by_itself_leaves_when_there_is_room(
    loop: SimLoop, tls: ServerTls, context: ssl.SSLContext
) -> None:
    """A ticket for the next session follows the handshake, whether the broker has anything else to send or not."""
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    world = World(loop, tls=tls, rules=LinkRules(0, 0, capacity_bytes=100))
    client = await world.connect_tls(context)
    await asyncio.sleep(1)
    session = client.channel._session.tls.session
    assert session is not None
    assert session.has_ticket
