"""Proxies on loopback between the processes of a cluster, to partition their network and to slow it down.

Nodes advertise to each other the addresses of proxies, and to clients their own. Which node a connection comes from is
in the client id of its first request: kafkapy's nodes send their node id, Apache Kafka's also `broker-1-fetcher-0` or
`raft-client-1`. A connection of anything else (a tool that asks a controller) is never held up. PLAINTEXT only.

Sockets are made here, not by the loop from an address: uvloop would look that up in threads, which libuv joins when the
process ends. A forked child of the process, which has no such threads, would die by SIGSEGV then.
"""

import asyncio
import contextlib
import itertools
import re
import socket
from collections.abc import Collection, Iterable
from dataclasses import field
from functools import partial
from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.embedded.links import Links
from kafkapy.embedded.loop_thread import LoopThread
from kafkapy.server.cluster.plan import HOST, NodePlan, Proxied

NODE_OF_CLIENT: Final = re.compile(rb"(?:broker-|raft-client-)?(\d{1,10})(?:-.*)?")
CLIENT_ID_POSITION: Final = 12
"""The position of the client id's length, an int16, in a frame: after size, API key, version and correlation id."""
HEAD_BYTES: Final = CLIENT_ID_POSITION + 2
CHUNK_BYTES: Final = 64 * 1024
MAX_UNDER_WAY: Final = 256
"""Parts of at most CHUNK_BYTES that are delayed at a time, in one direction of a connection."""
NOT_A_NODE: Final = -1

Pair = tuple[int, int]
"""(source, target): the direction in which bytes travel, whichever of the two opened the connection."""


@dataclass(slots=True)
class Pace:
    """The delay and the rate of bytes in one direction. None for bytes_per_s: no limit."""

    delay_s: float = 0.0
    bytes_per_s: int | None = None
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    """Clear while the direction is held."""


class Proxies:
    """All proxies of a cluster, on an event loop in a thread of their own. Calls may come from any thread."""

    def __init__(self, *, is_between_nodes: bool = True, clients: "Proxies | None" = None) -> None:
        """is_between_nodes: or else all connections are clients'. `clients`: their proxies; their owner closes them."""
        self._is_between_nodes = is_between_nodes
        self._clients = clients
        self._thread = LoopThread()
        self._links = Links({})
        self._paces: dict[Pair, Pace] = {}
        self._servers: list[asyncio.Server] = []
        self._connections: set[_Connection] = set()
        self._is_closing = False

    @property
    def proxied(self) -> Proxied:
        return Proxied.NODES if self._clients is None else Proxied.CLIENTS_TOO

    def listen(self, node: NodePlan) -> None:
        """Open the proxies of a node: what connects there is forwarded to the node's own ports. Raises OSError."""
        if node.peer_proxy_port:
            self.forward(node.node_id, node.peer_proxy_port, node.peer_port)
        if node.controller_proxy_port:
            self.forward(node.node_id, node.controller_proxy_port, node.controller_port)
        if self._clients is not None and node.client_proxy_port:
            self._clients.forward(node.node_id, node.client_proxy_port, node.port)

    def forward(self, node_id: int, proxy_port: int, node_port: int) -> None:
        """Forward what connects to proxy_port to a node's own port. Raises OSError."""

        async def listen() -> None:
            listening = socket.create_server((HOST, proxy_port))
            self._servers.append(await asyncio.start_server(partial(self._serve, node_id, node_port), sock=listening))

        self._thread.call(listen)

    def partition(self, *groups: Collection[int]) -> None:
        """Restrict nodes to their own group: other connections end, new ones are closed at once."""
        self._thread.run_soon(lambda: self._links.partition(*groups))

    def hold(self, sources: Iterable[int], targets: Iterable[int]) -> None:
        """Keep back what the sources send to the targets until `heal`: requests and responses. Nothing is closed."""

        def hold() -> None:
            for pair in _pairs(sources, targets):
                self._pace(pair).is_open.clear()

        self._thread.run_soon(hold)

    def slow(self, sources: Iterable[int], targets: Iterable[int], *, delay_s: float, bytes_per_s: int | None) -> None:
        """Delay what the sources send to the targets, and bound its rate (each connection's), until `heal`."""

        def slow() -> None:
            for pair in _pairs(sources, targets):
                pace = self._pace(pair)
                pace.delay_s, pace.bytes_per_s = delay_s, bytes_per_s

        self._thread.run_soon(slow)

    def heal(self) -> None:
        """Reconnect all nodes, and deliver the bytes that were held back."""
        self._thread.run_soon(self._heal)

    def close(self) -> None:
        """End all connections, close all ports, end the thread."""
        self._thread.call(self._close)
        self._thread.close()

    def _pace(self, pair: Pair) -> Pace:
        if pair not in self._paces:
            self._paces[pair] = Pace()
            self._paces[pair].is_open.set()
        return self._paces[pair]

    def _heal(self) -> None:
        self._links.heal()
        for pace in self._paces.values():
            pace.delay_s, pace.bytes_per_s = 0.0, None
            pace.is_open.set()

    async def _close(self) -> None:
        """Wait for all tasks of the loop: those of connections that were accepted last have not begun yet."""
        self._is_closing = True
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.cut()
        await self._wait_for_connections()
        for server in self._servers:
            await server.wait_closed()
        await self._wait_for_connections()

    @staticmethod
    async def _wait_for_connections() -> None:
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(tasks)

    async def _serve(self, target: int, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "asyncio serves each connection in a task"
        connection = _Connection(target, task)
        self._connections.add(connection)
        try:
            if self._is_closing:
                return
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                head = await _read_head(reader) if self._is_between_nodes else b""
                connection.source = _node_of(head) if head else NOT_A_NODE
                await self._forward(connection, (connection.source, target), port, head, reader, writer)
        finally:
            self._connections.discard(connection)
            self._links.closed(connection)
            await _end(writer)

    async def _forward(
        self,
        connection: "_Connection",
        pair: Pair,
        port: int,
        head: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Copy bytes both ways until either side ends."""
        if self._links.is_cut(*pair):
            return
        self._links.opened(connection)
        node_reader, node_writer = await _connect(port)
        there, back = self._pace(pair), self._pace((pair[1], pair[0]))
        copies = [
            asyncio.ensure_future(_copy(reader, node_writer, there, head)),
            asyncio.ensure_future(_copy(node_reader, writer, back)),
        ]
        try:
            await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        finally:
            node_writer.transport.abort()  # now: a second cancellation may end the waits below
            for copy in copies:
                copy.cancel()
            await asyncio.gather(*copies, return_exceptions=True)
            await _end(node_writer)


class _Connection:
    """A connection through a proxy, as Links knows it."""

    def __init__(self, target: int, task: "asyncio.Task[None]") -> None:
        self.source = NOT_A_NODE
        self.target: int | None = target
        self.task = task

    def cut(self) -> None:
        self.task.cancel()


async def _connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a port of this machine. Raises OSError."""
    connecting = socket.socket()
    connecting.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(connecting, (HOST, port))
    except BaseException:
        connecting.close()
        raise
    return await asyncio.open_connection(sock=connecting)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pace: Pace, data: bytes = b"") -> None:
    """Write `data`, and all that is read, at the direction's pace; return when either side ends.

    What is delayed is on its way together, as in a long cable: a delay limits no rate.
    """
    under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
    delivering: asyncio.Future[None] | None = None
    try:
        with contextlib.suppress(OSError):
            while data or (data := await reader.read(CHUNK_BYTES)):
                if pace.bytes_per_s is not None:
                    await asyncio.sleep(len(data) / pace.bytes_per_s)
                delay_s = pace.delay_s  # it may change while this waits
                if delay_s:
                    delivering = delivering or asyncio.ensure_future(_deliver(under_way, writer, pace))
                    under_way.put_nowait((asyncio.get_running_loop().time() + delay_s, data))
                if delivering is not None and (not delay_s or under_way.qsize() >= MAX_UNDER_WAY):
                    await _until_delivered(under_way, delivering)
                if not delay_s:
                    await pace.is_open.wait()
                    writer.write(data)
                    await writer.drain()
                data = b""
            if delivering is not None:
                await _until_delivered(under_way, delivering)
    finally:
        if delivering is not None:
            delivering.cancel()
            await asyncio.gather(delivering, return_exceptions=True)


async def _deliver(under_way: "asyncio.Queue[tuple[float, bytes]]", writer: asyncio.StreamWriter, pace: Pace) -> None:
    """Write each part when it is due, and the direction is open. Raises OSError."""
    while True:
        due_s, data = await under_way.get()
        delay_s = due_s - asyncio.get_running_loop().time()
        if delay_s > 0:
            await asyncio.sleep(delay_s)
        await pace.is_open.wait()
        writer.write(data)
        await writer.drain()
        under_way.task_done()


async def _until_delivered(under_way: "asyncio.Queue[tuple[float, bytes]]", delivering: "asyncio.Future[None]") -> None:
    """Return once all is written. Raises OSError if the other side has ended."""
    joining = asyncio.ensure_future(under_way.join())
    try:
        await asyncio.wait((joining, delivering), return_when=asyncio.FIRST_COMPLETED)
    finally:  # also if the connection is cut meanwhile: `Proxies.close` waits for each task
        joining.cancel()
    if delivering.done():
        delivering.result()


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    """Return the first bytes of a connection, up to the end of the first request's client id."""
    head = await reader.readexactly(HEAD_BYTES)
    length = int.from_bytes(head[CLIENT_ID_POSITION:], "big", signed=True)
    return head + await reader.readexactly(max(length, 0))


def _node_of(head: bytes) -> int:
    """Return the id of the node that has sent this, NOT_A_NODE if it is none."""
    matched = NODE_OF_CLIENT.fullmatch(head[HEAD_BYTES:])
    return int(matched[1]) if matched else NOT_A_NODE


async def _end(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(OSError, asyncio.CancelledError):
        await writer.wait_closed()


def _pairs(sources: Iterable[int], targets: Iterable[int]) -> list[Pair]:
    return [(source, target) for source, target in itertools.product(sources, targets) if source != target]
