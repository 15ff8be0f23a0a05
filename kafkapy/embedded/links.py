"""Connections between nodes of one process that a test may cut, to simulate a network partition.

A connection that is cut ends at its sender as if the peer had closed it; new ones fail until the partition is healed.
"""

import asyncio
import errno
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

from kafkapy.reactor.connector import SocketConnector
from kafkapy.seams import Channel, FileRegion, ReadableBuffer

ENDED: Final = b""


class Link(Protocol):
    """A connection between two nodes that can be ended."""

    source: int
    target: int | None

    def cut(self) -> None: ...


class Links:
    """Which nodes may connect to each other. `node_at`: the node that listens on a port."""

    def __init__(self, node_at: Mapping[int, int]) -> None:
        self._node_at = node_at
        self._group_of: dict[int, int] = {}
        self._channels: set[Link] = set()

    def partition(self, *groups: Collection[int]) -> None:
        """Restrict nodes to their own group; nodes in no group reach all."""
        self._group_of = {node_id: number for number, group in enumerate(groups) for node_id in group}
        for channel in list(self._channels):
            if self.is_cut(channel.source, channel.target):
                channel.cut()

    def heal(self) -> None:
        """Let all nodes reach each other."""
        self._group_of = {}

    def is_cut(self, source: int, target: int | None) -> bool:
        groups = {self._group_of.get(node_id) for node_id in (source, target) if node_id is not None} - {None}
        return len(groups) > 1

    def node_at(self, port: int) -> int | None:
        return self._node_at.get(port)

    def opened(self, channel: Link) -> None:
        self._channels.add(channel)

    def closed(self, channel: Link) -> None:
        self._channels.discard(channel)


class LinkedConnector:
    """A seams.Connector of one node."""

    def __init__(self, loop: asyncio.AbstractEventLoop, links: Links, node_id: int) -> None:
        self._loop = loop
        self._sockets = SocketConnector(loop)
        self._links = links
        self._node_id = node_id

    def connect(
        self, host: str, port: int, on_done: Callable[[Channel | None, OSError | None], None]
    ) -> Callable[[], None]:
        target = self._links.node_at(port)

        def on_connected(channel: Channel | None, error: OSError | None) -> None:
            if channel is None or error is not None:
                on_done(None, error)
            elif self._links.is_cut(self._node_id, target):
                channel.close()
                on_done(None, OSError(errno.EHOSTUNREACH, f"node {target} is cut off"))
            else:
                on_done(LinkedChannel(channel, self._loop, self._links, self._node_id, target), None)

        return self._sockets.connect(host, port, on_connected)


class LinkedChannel:
    """A seams.Channel that may be cut."""

    def __init__(
        self, channel: Channel, loop: asyncio.AbstractEventLoop, links: Links, source: int, target: int | None
    ) -> None:
        self.source = source
        self.target = target
        self._channel = channel
        self._loop = loop
        self._links = links
        self._is_cut = False
        self._on_readable: Callable[[], None] | None = None
        links.opened(self)

    def cut(self) -> None:
        """End the connection, as its user sees it."""
        self._is_cut = True
        if self._on_readable is not None:
            self._loop.call_soon(self._notify)

    def _notify(self) -> None:
        if self._on_readable is not None:
            self._on_readable()

    @property
    def peer(self) -> tuple[str, int]:
        return self._channel.peer

    @property
    def local(self) -> tuple[str, int]:
        return self._channel.local

    def receive(self, max_bytes: int) -> bytes | None:
        return ENDED if self._is_cut else self._channel.receive(max_bytes)

    def receive_into(self, buffer: memoryview) -> int | None:
        return 0 if self._is_cut else self._channel.receive_into(buffer)

    def send(self, buffers: Sequence[ReadableBuffer], more: bool) -> int:
        self._check()
        return self._channel.send(buffers, more)

    def send_region(self, region: FileRegion, start: int, count: int) -> int:
        self._check()
        return self._channel.send_region(region, start, count)

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        self._on_readable = callback
        self._channel.on_readable(callback)

    def await_bytes(self, count: int) -> None:
        self._channel.await_bytes(count)

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        self._channel.on_writable(callback)

    def close(self) -> None:
        self._on_readable = None
        self._links.closed(self)
        self._channel.close()

    def _check(self) -> None:
        if self._is_cut:
            raise BrokenPipeError(errno.EPIPE, f"node {self.target} is cut off")
