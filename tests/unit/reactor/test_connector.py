"""Outbound sockets: connected, refused, resolved off the loop, called off."""

import asyncio
import errno
import resource
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kafkapy.reactor.connector import SocketConnector
from kafkapy.seams import Channel


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener


async def connect(
    host: str, port: int, connector: SocketConnector | None = None
) -> tuple[Channel | None, OSError | None]:
    loop = asyncio.get_running_loop()
    connector = connector or SocketConnector(loop)
    done: asyncio.Future[tuple[Channel | None, OSError | None]] = loop.create_future()
    connector.connect(host, port, lambda channel, error: done.set_result((channel, error)))
    return await asyncio.wait_for(done, 60)


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


async def test_without_a_descriptor_each_attempt_fails_at_once(listening: socket.socket) -> None:
    """A peer that is told nothing waits for its set-up time-out, longer than a broker's session lasts."""
    loop = asyncio.get_running_loop()
    connector, codes = SocketConnector(loop), list[int | None]()
    first, _ = await connect(
        "127.0.0.1", listening.getsockname()[1], connector
    )  # the system's resolver reads its files
    with socket.socket() as spare:
        free = spare.fileno()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        for _ in range(2):
            port = listening.getsockname()[1]
            connector.connect("127.0.0.1", port, lambda _, error: codes.append(error.errno if error else None))
        await asyncio.sleep(0.01)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert codes == [errno.EMFILE, errno.EMFILE]
    second, _ = await connect("127.0.0.1", listening.getsockname()[1], connector)
    for channel in (first, second):
        assert channel is not None
        channel.close()


async def test_a_name_that_does_not_resolve_is_an_os_error_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    connector = SocketConnector(asyncio.get_running_loop())
    for _ in range(2):
        channel, error = await connect("no-such-host.invalid", 9093, connector)
        assert channel is None
        assert isinstance(error, OSError)
    (record,) = caplog.records
    assert "the host name of no-such-host.invalid:9093" in record.message


async def test_a_cancelled_attempt_notifies_nobody(listening: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    reported: list[object] = []
    connector = SocketConnector(loop)
    cancel = connector.connect("127.0.0.1", listening.getsockname()[1], lambda *result: reported.append(result))
    cancel()
    channel, _ = await connect("127.0.0.1", listening.getsockname()[1])
    assert channel is not None
    channel.close()
    await asyncio.sleep(0)
    assert not reported


async def test_names_that_hang_are_looked_up_once_each_and_hold_up_no_other(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server that does not answer: the system's call returns after half a minute."""
    loop = asyncio.get_running_loop()
    real, may_end, asked = socket.getaddrinfo, threading.Event(), []

    def getaddrinfo(host: str, port: int, **options: Any) -> Any:
        if host.startswith("hangs") and not options["flags"]:
            asked.append(host)
            may_end.wait(60)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return real(host, port, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    connector, failed = SocketConnector(loop), []
    names = [f"hangs-{number % 20}" for number in range(40)]
    for name in names:
        connector.connect(name, 9093, lambda _channel, error: failed.append(error))
    connected: asyncio.Future[Channel | None] = loop.create_future()
    connector.connect("localhost", listening.getsockname()[1], lambda channel, _error: connected.set_result(channel))
    channel = await asyncio.wait_for(connected, 30)
    assert channel is not None
    channel.close()
    may_end.set()
    while len(failed) < len(names):
        await asyncio.sleep(0.01)
    assert sorted(asked) == sorted(set(names))
    assert all(isinstance(error, socket.gaierror) for error in failed)
