"""seams.Connector on non-blocking sockets: names are resolved in the IO pool, addresses are tried in order."""

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from typing import Any

from kafkapy.reactor.socket_channel import SocketChannel
from kafkapy.seams import Channel, IoPool

_Address = tuple[Any, ...]


class SocketConnector:
    """Opens plaintext TCP connections to other nodes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, io_pool: IoPool) -> None:
        self._loop = loop
        self._io_pool = io_pool

    def connect(
        self, host: str, port: int, on_done: Callable[[Channel | None, OSError | None], None]
    ) -> Callable[[], None]:
        attempt = _Attempt(self._loop, on_done)
        self._io_pool.submit(lambda: _addresses(host, port), attempt.on_resolved)
        return attempt.cancel


class _Attempt:
    """One attempt to connect: tries each address of the name until one accepts."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_done: Callable[[Channel | None, OSError | None], None]
    ) -> None:
        self._loop = loop
        self._on_done: Callable[[Channel | None, OSError | None], None] | None = on_done
        self._addresses: list[tuple[int, _Address]] = []
        self._socket: socket.socket | None = None

    def cancel(self) -> None:
        self._on_done = None
        self._forget_socket(close=True)

    def on_resolved(self, addresses: list[tuple[int, _Address]] | None, error: BaseException | None) -> None:
        if self._on_done is None:
            return
        if addresses is None:
            self._finish(None, error if isinstance(error, OSError) else OSError(errno.EHOSTUNREACH, str(error)))
            return
        self._addresses = addresses
        self._try_next(OSError(errno.EHOSTUNREACH, "the name has no address"))

    def _try_next(self, reason: OSError) -> None:
        """Connect to the next address; if there is none, fail with `reason`, the error of the last one."""
        while self._addresses:
            family, address = self._addresses.pop(0)
            connecting = socket.socket(family, socket.SOCK_STREAM)
            connecting.setblocking(False)
            code = connecting.connect_ex(address)
            if code in (0, errno.EINPROGRESS, errno.EINTR):
                self._socket = connecting
                self._loop.add_writer(connecting.fileno(), self._on_writable)
                return
            connecting.close()
            reason = OSError(code, os.strerror(code))
        self._finish(None, reason)

    def _on_writable(self) -> None:
        connected = self._socket
        assert connected is not None
        self._forget_socket(close=False)
        code = connected.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        try:
            if code:
                raise OSError(code, os.strerror(code))
            channel = SocketChannel(self._loop, connected)
        except OSError as error:
            connected.close()
            self._try_next(error)
            return
        self._finish(channel, None)

    def _finish(self, channel: Channel | None, error: OSError | None) -> None:
        on_done, self._on_done = self._on_done, None
        assert on_done is not None
        on_done(channel, error)

    def _forget_socket(self, *, close: bool) -> None:
        pending, self._socket = self._socket, None
        if pending is not None:
            self._loop.remove_writer(pending.fileno())
            if close:
                pending.close()


def _addresses(host: str, port: int) -> list[tuple[int, _Address]]:
    """Return (family, address) of each address of a name. Blocks. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]
