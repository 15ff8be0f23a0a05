"""seams.Channel and seams.Listener on non-blocking sockets.

No transports of asyncio are used: uvloop forbids sendfile and direct use of a transport's descriptor, and add_reader on
a plain socket is as fast.
"""

import asyncio
import errno
import os
import resource
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from kafkapy.seams import FileRegion, ReadableBuffer
from kafkapy.types import host_text

_ALL_INTERFACES = ("0.0.0.0", "::")
_NO_FILE = -1
_MSG_MORE: int = getattr(socket, "MSG_MORE", 0)
"""Linux only; on other systems a packet may be sent early."""
_HAS_LOW_WATER_MARK = sys.platform == "linux"
"""Linux ends the wait for bytes when the receive buffer is full; of other systems that is not known."""


MIN_BACKLOG: Final = 512
"""3,000 clients that connect at once fill 50 places within 2 ms, while a turn of the loop may take more."""
KEPT_DESCRIPTORS: Final = 100
"""The last descriptors that the process may have are for its own files: a connection that would take one is closed, and
accepting pauses. Else writes would be refused, as segments roll and indexes are opened again. Deviation: Apache Kafka
accepts until there are none. Here it stops before, because a write that fails costs more than a connection that is
refused."""


def is_nearly_last(descriptor: int) -> bool:
    """Whether a new descriptor, the lowest that was free, is among the last KEPT_DESCRIPTORS; of few, a quarter."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most != resource.RLIM_INFINITY and descriptor >= most - kept_descriptors(most)


def kept_descriptors(most: int) -> int:
    """Return how many descriptors no connection gets, of a process that may have `most`."""
    return min(KEPT_DESCRIPTORS, most // 4)


class SocketChannel:
    """A plaintext TCP connection. Nothing else may read, write or register the socket."""

    __slots__ = ("_awaited_bytes", "_descriptor", "_loop", "_reads", "_socket", "_writes", "local", "peer")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connected: socket.socket,
        *,
        local: tuple[str, int] | None = None,
        peer: tuple[str, int] | None = None,
    ) -> None:
        """`local`, `peer`: the addresses as `_host_port` returns them; those that are None are the socket's own."""
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop = loop
        self._socket = connected
        self._descriptor = connected.fileno()
        self._awaited_bytes = 1
        self._reads = False
        self._writes = False
        self.local: tuple[str, int] = local or _host_port(connected.getsockname())
        self.peer: tuple[str, int] = peer or _host_port(connected.getpeername())

    def receive(self, max_bytes: int) -> bytes | None:
        try:
            return self._socket.recv(max_bytes)
        except (BlockingIOError, InterruptedError):
            return None

    def receive_into(self, buffer: memoryview) -> int | None:
        try:
            return self._socket.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return None

    def send(self, buffers: Sequence[ReadableBuffer], more: bool) -> int:
        flags = _MSG_MORE if more else 0
        try:
            if len(buffers) == 1:
                return self._socket.send(buffers[0], flags)
            return self._socket.sendmsg(buffers, (), flags)
        except (BlockingIOError, InterruptedError):
            return 0

    def send_region(self, region: FileRegion, start: int, count: int) -> int:
        descriptor = region.file.fileno()
        position = region.position + start
        try:
            if descriptor == _NO_FILE:
                return self._socket.send(_read_whole(region, position, count))
            sent = os.sendfile(self._descriptor, descriptor, position, count)
        except (BlockingIOError, InterruptedError):
            return 0
        if sent == 0:
            raise EOFError(f"{region.file.path} ends before position {position + count}")
        return sent

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        if callback is not None:
            self._loop.add_reader(self._descriptor, callback)
        elif self._reads:
            self._loop.remove_reader(self._descriptor)
        self._reads = callback is not None

    def await_bytes(self, count: int) -> None:
        if count != self._awaited_bytes and _HAS_LOW_WATER_MARK:
            self._awaited_bytes = count
            with suppress(OSError):  # a sandbox may lack the option; a broken connection is noticed by receiving
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        if callback is not None:
            self._loop.add_writer(self._descriptor, callback)
        elif self._writes:
            self._loop.remove_writer(self._descriptor)
        self._writes = callback is not None

    def close(self) -> None:
        self.on_readable(None)
        self.on_writable(None)
        self._socket.close()


def _host_port(address: tuple[Any, ...]) -> tuple[str, int]:
    return host_address(address[0]), address[1]


def host_address(host: str) -> str:
    """Return an address in the form of types.host_text, followed by its zone (`%eth0`) if it has one."""
    if ":" not in host:
        return host
    text, percent, zone = host.partition("%")
    return host_text(socket.inet_pton(socket.AF_INET6, text)) + percent + zone


def _read_whole(region: FileRegion, position: int, count: int) -> bytes:
    data = region.file.pread(count, position)
    if len(data) < count:
        raise EOFError(f"{region.file.path} ends before position {position + count}")
    return data


class SocketListener:
    """A listening TCP socket."""

    __slots__ = ("_local", "_loop", "_socket", "address")

    def __init__(self, loop: asyncio.AbstractEventLoop, listening: socket.socket) -> None:
        listening.setblocking(False)
        self._loop = loop
        self._socket = listening
        name = listening.getsockname()
        self.address: tuple[str, int] = name[:2]
        self._local = None if name[0] in _ALL_INTERFACES else _host_port(name)
        """The local address of each connection, None if it may be any of the machine's."""

    def accept(self) -> SocketChannel | None:
        try:
            connected, peer = self._socket.accept()
        except (BlockingIOError, InterruptedError):
            return None
        if connected.fileno() >= KEPT_DESCRIPTORS and is_nearly_last(connected.fileno()):
            connected.close()
            raise OSError(errno.EMFILE, f"the last {KEPT_DESCRIPTORS} descriptors are kept for the broker's own files")
        try:
            return SocketChannel(self._loop, connected, local=self._local, peer=_host_port(peer))
        except OSError:  # the peer has reset the connection before it was accepted
            connected.close()
            raise

    def on_acceptable(self, callback: Callable[[], None] | None) -> None:
        if callback is None:
            self._loop.remove_reader(self._socket.fileno())
        else:
            self._loop.add_reader(self._socket.fileno(), callback)

    def close(self) -> None:
        self.on_acceptable(None)
        self._socket.close()


def listen(
    loop: asyncio.AbstractEventLoop,
    host: str,
    port: int,
    *,
    backlog: int,
    send_buffer_bytes: int,
    receive_buffer_bytes: int,
) -> SocketListener:
    """Bind and listen; port 0 picks a free one, host "" means all interfaces. Raises OSError (EADDRINUSE, ...).

    Deviation: Apache Kafka's listen queue has socket.listen.backlog.size places. Here it has MIN_BACKLOG at least,
    because connections are accepted between the other work of one thread, and a client without a place waits a second.

    The buffer sizes are set on the listening socket, since the TCP window scale is negotiated before accept; accepted
    sockets inherit them.
    """
    family, address = _address_to_bind(host, port)
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if not host and family == socket.AF_INET6:  # IPv4, too
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if send_buffer_bytes > 0:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        if receive_buffer_bytes > 0:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        listening.bind(address)
        listening.listen(max(backlog, MIN_BACKLOG))
    except OSError:
        listening.close()
        raise
    return SocketListener(loop, listening)


def _address_to_bind(host: str, port: int) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    """Return the address family of the one socket that listens, and its address. Raises OSError."""
    if not host:  # all interfaces: IPv6 with IPv4-mapped addresses, if the system has both
        return socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET, ("", port)
    name = host.encode() if host.isascii() else host  # a str would load the IDNA codec, which takes 3 ms
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # Prefer IPv4, as Java does: clients that connect to "localhost" try 127.0.0.1.
    family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    return family, address


def resolve_overrides(overrides: Mapping[str, int]) -> dict[str, int]:
    """Return max.connections.per.ip.overrides by address; a name applies to all its addresses. Raises OSError."""
    by_ip: dict[str, int] = {}
    for host, count in overrides.items():
        # Of a str that cannot be a name, such as "a..b", the IDNA codec raises UnicodeError.
        for *_, address in socket.getaddrinfo(host.encode(), None, type=socket.SOCK_STREAM):
            by_ip[host_address(str(address[0]))] = count
    return by_ip
