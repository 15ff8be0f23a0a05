"""seams.Connector on non-blocking sockets: names are resolved off the loop, addresses are tried in order."""

import asyncio
import errno
import logging
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

from kafkapy.reactor.socket_channel import SocketChannel
from kafkapy.seams import Channel

_Address = tuple[Any, ...]

logger = logging.getLogger(__name__)


class SocketConnector:
    """Opens plaintext TCP connections to other nodes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._names = _Names(loop)

    def connect(
        self, host: str, port: int, on_done: Callable[[Channel | None, OSError | None], None]
    ) -> Callable[[], None]:
        attempt = _Attempt(self._loop, on_done)
        self._names.resolve(host, port, attempt)
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
        self._addresses = list(addresses)
        self._try_next(OSError(errno.EHOSTUNREACH, "the name has no address"))

    def _try_next(self, reason: OSError) -> None:
        """Connect to the next address; if there is none, fail with `reason`, the error of the last one."""
        while self._addresses:
            try:
                self._begin(*self._addresses.pop(0))
            except OSError as error:  # also without a descriptor for the socket
                reason = error.with_traceback(None)  # which refers to this frame: a cycle
            else:
                return
        self._finish(None, reason)

    def _begin(self, family: int, address: _Address) -> None:
        """Begin to connect to an address. Raises OSError."""
        connecting = socket.socket(family, socket.SOCK_STREAM)
        try:
            connecting.setblocking(False)
            code = connecting.connect_ex(address)
            if code not in (0, errno.EINPROGRESS, errno.EINTR):
                raise OSError(code, os.strerror(code))
            self._loop.add_writer(connecting.fileno(), self._on_writable)
        except BaseException:
            connecting.close()
            raise
        self._socket = connecting

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


class _Names:
    """Resolves names, each on a thread of its own: with a name server that does not answer it takes half a minute.

    The IO pool's workers, which read and flush logs, are too few for that, and a stop waits for them. Attempts to
    connect to a name that is being resolved wait for that, so there is at most one thread for each name. That a name
    cannot be resolved is logged once until it can.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[tuple[str, int], list[_Attempt]] = {}
        self._unresolved: set[tuple[str, int]] = set()

    def resolve(self, host: str, port: int, attempt: _Attempt) -> None:
        """Call `attempt.on_resolved` later, with the addresses or an error."""
        name = (host, port)
        waiting = self._waiting.setdefault(name, [])
        waiting.append(attempt)
        if len(waiting) > 1:
            return
        try:
            self._loop.call_soon(self._finish_lookup, name, _addresses(host, port, socket.AI_NUMERICHOST), None)
        except (OSError, UnicodeError):  # a name, not an address
            self._start(name)

    def _start(self, name: tuple[str, int]) -> None:
        thread = threading.Thread(target=self._look_up, args=(name,), name="kafkapy-names", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._loop.call_soon(self._finish_lookup, name, None, error)

    def _look_up(self, name: tuple[str, int]) -> None:
        found: list[tuple[int, _Address]] | None
        error: Exception | None = None
        try:
            found = _addresses(*name)
        except (OSError, UnicodeError) as failure:  # UnicodeError for what cannot be a name
            found, error = None, failure
        try:
            self._loop.call_soon_threadsafe(self._finish_lookup, name, found, error)
        except RuntimeError:  # the loop is closed
            return

    def _finish_lookup(
        self, name: tuple[str, int], addresses: list[tuple[int, _Address]] | None, error: Exception | None
    ) -> None:
        if error is None:
            self._unresolved.discard(name)
        elif name not in self._unresolved:
            self._unresolved.add(name)
            logger.warning("Could not resolve the host name of %s:%d, trying again: %s", *name, error)
        for attempt in self._waiting.pop(name):
            attempt.on_resolved(addresses, error)


def _addresses(host: str, port: int, flags: int = 0) -> list[tuple[int, _Address]]:
    """Return (family, address) of each address of a name. Blocks, unless AI_NUMERICHOST is in flags. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [(family, address) for family, _, _, _, address in found]
