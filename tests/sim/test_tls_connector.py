"""Connections of a node to others over TLS: what is reported of a handshake that fails, and how often."""

import asyncio
import logging
import ssl
from pathlib import Path

import pytest

from kafkapy.reactor.tls import TlsChannel
from kafkapy.reactor.tls_admission import ServerTls
from kafkapy.reactor.tls_connector import LOG_AGAIN_S, TlsConnector
from tests.simulator.loop import SimLoop
from tests.simulator.network import SimConnector
from tests.simulator.reactor_world import ADDRESS, World
from tests.support.certificates import Authority, client_context, server_context

AUTHORITY, STRANGER = Authority(), Authority("another CA")
TIMEOUT_MS = 10_000


class Node:
    """A node that connects to a server which demands a certificate."""

    def __init__(self, loop: SimLoop, directory: Path, context: ssl.SSLContext) -> None:
        tls = ServerTls(server_context(AUTHORITY.issue("broker"), directory, AUTHORITY), lambda _: "User:ANONYMOUS")
        self.world = World(loop, tls=tls)
        connector = SimConnector(self.world.network, "10.0.0.1")
        self._connector = TlsConnector(loop, connector, lambda: context, TIMEOUT_MS)

    async def connect(self) -> TlsChannel | OSError:
        done: asyncio.Future[TlsChannel | OSError] = asyncio.get_running_loop().create_future()
        self._connector.connect(*ADDRESS, lambda channel, error: done.set_result(channel or error))
        return await done

    async def refused(self) -> str:
        """Connect, and return why the server does not want that: it says so after a TLS 1.3 client is done."""
        channel = await self.connect()
        assert isinstance(channel, TlsChannel)
        await asyncio.sleep(0.1)
        with pytest.raises(ssl.SSLError) as raised:
            channel.receive(1000)
        channel.close()
        return str(raised.value.reason)


def failures(caplog: pytest.LogCaptureFixture) -> list[str]:
    where = f"Failed authentication with {ADDRESS[0]}:{ADDRESS[1]} (SSL handshake failed): "
    return [message.removeprefix(where) for message in caplog.messages if message.startswith(where)]


async def test_a_node_whose_certificate_is_refused_logs_it_once_a_minute(
    loop: SimLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    node = Node(loop, tmp_path, client_context(AUTHORITY))
    for _ in range(3):
        assert await node.refused() == "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    assert failures(caplog) == ["tlsv13 alert certificate required"]
    await asyncio.sleep(LOG_AGAIN_S)
    await node.refused()
    assert failures(caplog) == ["tlsv13 alert certificate required"] * 2


async def test_a_server_that_is_not_trusted_is_not_connected_to(
    loop: SimLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    error = await Node(loop, tmp_path, client_context(STRANGER)).connect()
    assert isinstance(error, ConnectionError)
    assert failures(caplog) == [str(error)]
    assert "certificate is refused" in str(error)


async def test_a_server_that_does_not_shake_hands_is_given_up_in_time(loop: SimLoop, tmp_path: Path) -> None:
    node = Node(loop, tmp_path, client_context(AUTHORITY))
    node.world.listener.on_acceptable(None)
    before_ms = loop.now_ms()
    error = await node.connect()
    assert isinstance(error, ConnectionError)
    assert f"took longer than {TIMEOUT_MS} ms" in str(error)
    assert TIMEOUT_MS <= loop.now_ms() - before_ms < TIMEOUT_MS + 100
