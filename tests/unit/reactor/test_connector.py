"""Outbound sockets: connected, refused, resolved off the loop, called off."""

import asyncio
import errno
import socket
from collections.abc import Iterator

import pytest

from kafkapy.reactor.connector import SocketConnector
from kafkapy.reactor.io_pool import ThreadIoPool
from kafkapy.seams import Channel


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener


async def connect(host: str, port: int) -> tuple[Channel | None, OSError | None]:
    loop = asyncio.get_running_loop()
    pool = ThreadIoPool(loop, 1)
    done: asyncio.Future[tuple[Channel | None, OSError | None]] = loop.create_future()
    SocketConnector(loop, pool).connect(host, port, lambda channel, error: done.set_result((channel, error)))
    try:
        return await asyncio.wait_for(done, 60)
    finally:
        pool.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_channel_reaches_who_listens(host: str, listening: socket.socket) -> None:
    channel, error = await connect(host, listening.getsockname()[1])
    assert error is None
    assert channel is not None
    accepted, _ = listening.accept()
    with accepted:
        assert channel.send([b"hello"], False) == 5
        assert accepted.recv(5) == b"hello"
        assert channel.peer == ("127.0.0.1", listening.getsockname()[1])
        channel.close()


async def test_a_port_without_a_listener_refuses() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        channel, error = await connect("127.0.0.1", unused.getsockname()[1])
    assert channel is None
    assert error is not None
    assert error.errno == errno.ECONNREFUSED


async def test_a_name_that_does_not_resolve_is_an_os_error() -> None:
    channel, error = await connect("no-such-host.invalid", 9093)
    assert channel is None
    assert isinstance(error, OSError)


async def test_a_cancelled_attempt_notifies_nobody(listening: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    pool = ThreadIoPool(loop, 1)
    reported: list[object] = []
    connector = SocketConnector(loop, pool)
    cancel = connector.connect("127.0.0.1", listening.getsockname()[1], lambda *result: reported.append(result))
    cancel()
    channel, _ = await connect("127.0.0.1", listening.getsockname()[1])
    assert channel is not None
    channel.close()
    pool.close()
    await asyncio.sleep(0)
    assert not reported
