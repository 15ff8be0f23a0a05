"""Stands between clients and a cluster: forwards their frames, records them, and has its brokers found through itself.

Clients learn the addresses of brokers from responses. Each address gets a listener here, which the responses name.
"""

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable
from typing import Any, Final

from kafkapy.errors import ProtocolError
from kafkapy.protocol.api import SASL_HANDSHAKE, request_type
from kafkapy.protocol.headers import RequestHeader, read_request_header
from kafkapy.recording.file import (
    BOOTSTRAP,
    REQUEST,
    RESPONSE,
    Event,
    RecordingWriter,
    header_of,
    read_response,
    write_response,
)
from kafkapy.recording.secrets import without_secrets_of_request, without_secrets_of_response

SIZE_BYTES: Final = 4
MAX_FRAME_BYTES: Final = 100 << 20
WITH_ADDRESSES: Final = frozenset((0, 1, 3, 10, 60, 78, 79))
"""Produce, Fetch, Metadata, FindCoordinator, DescribeCluster, ShareFetch and ShareAcknowledge."""
FROM_VERSION: Final = {0: 10, 1: 16}
"""From which versions on Produce and Fetch name other brokers."""

PRODUCE: Final = 0
MAX_ASKED: Final = 100_000
"""Requests of a connection without a response: more than the sockets on the way to a broker hold."""

Address = tuple[str, int]


class Recorder:
    """`upstream`: brokers to begin with; `tls`: how they are reached. start() returns where clients connect.

    `on_failure` is called when the recording cannot be written; `failure` is why. Then clients' connections end.
    `on_unreachable` gets one line when a broker cannot be reached, and again only after it was reached.
    """

    def __init__(
        self,
        writer: RecordingWriter,
        upstream: Address,
        tls: ssl.SSLContext | None = None,
        *,
        on_failure: Callable[[], None] = lambda: None,
        on_unreachable: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._writer = writer
        self._upstream = upstream
        self._tls = tls
        self._on_failure = on_failure
        self._on_unreachable = on_unreachable
        self._unreachable: set[Address] = set()
        self.failure: OSError | None = None
        self._host = ""
        self._started_s = time.monotonic()
        self._connections = 0
        self._listeners: dict[Address, tuple[asyncio.Server, Address]] = {}
        self._nodes: dict[Address, int] = {}
        self._opening = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self.requests = 0

    async def start(self, host: str, port: int) -> Address:
        """Listen for clients. Raises OSError."""
        self._host = host
        return await self._listen(self._upstream, BOOTSTRAP, port)

    async def stop(self) -> None:
        for server, _ in self._listeners.values():
            server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _listen(self, upstream: Address, node: int, port: int = 0) -> Address:
        def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.get_running_loop().create_task(self._serve(reader, writer, upstream))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        server = await asyncio.start_server(serve, self._host or None, port)
        found: Address = (self._host or "127.0.0.1", server.sockets[0].getsockname()[1])
        self._listeners[upstream] = (server, found)
        self._nodes[upstream] = node
        return found

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream: Address) -> None:
        """Forward the frames of a client's connection until one side ends."""
        self._connections += 1
        link = _Link(self, self._connections, self._nodes[upstream])
        with contextlib.suppress(OSError, asyncio.IncompleteReadError), contextlib.closing(writer):
            up_reader, up_writer = await self._connect(upstream)
            with contextlib.closing(up_writer):
                sides = [
                    asyncio.ensure_future(link.forward_requests(reader, up_writer)),
                    asyncio.ensure_future(link.forward_responses(up_reader, writer)),
                ]
                try:
                    await asyncio.wait(sides, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for side in sides:
                        side.cancel()
                    await asyncio.gather(*sides, return_exceptions=True)

    async def _connect(self, upstream: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        name = upstream[0] if self._tls is not None else None
        try:
            streams = await asyncio.open_connection(*upstream, ssl=self._tls, server_hostname=name)
        except OSError as error:
            if upstream not in self._unreachable:  # a client tries again many times a second
                self._unreachable.add(upstream)
                self._on_unreachable(f"{upstream[0]}:{upstream[1]} cannot be reached: {error.strerror or error}")
            raise
        self._unreachable.discard(upstream)
        return streams

    def record(self, connection: int, node: int, kind: str, frame: bytes, left_out: tuple[str, ...]) -> None:
        """Write a frame to the recording. Raises OSError, also after a frame that could not be written."""
        if self.failure is not None:
            raise self.failure
        at_ms = int((time.monotonic() - self._started_s) * 1000)
        try:
            self._writer.add(Event(at_ms, connection, node, kind, frame, left_out))
        except OSError as error:
            self.failure = error
            self._on_failure()
            raise
        self.requests += kind == REQUEST

    async def with_own_addresses(self, header: RequestHeader, frame: bytes) -> bytes:
        """Return a response that names this proxy where it named brokers."""
        if header.api_key not in WITH_ADDRESSES or header.api_version < FROM_VERSION.get(header.api_key, 0):
            return frame
        fields = read_response(header, frame)
        if fields is None or not await self._rename(fields):
            return frame
        with contextlib.suppress(ProtocolError):
            return write_response(header, fields)
        return frame

    async def _rename(self, value: Any) -> bool:
        """Replace the addresses within fields; return whether there were some."""
        found = False
        if isinstance(value, list):
            for each in value:
                found = await self._rename(each) or found
        elif isinstance(value, dict):
            host, port = value.get("host"), value.get("port")
            if isinstance(host, str) and isinstance(port, int) and host and port > 0:
                value["host"], value["port"] = await self._own((host, port), value)
                found = True
            for each in value.values():
                found = await self._rename(each) or found
        return found

    async def _own(self, address: Address, named: dict[str, Any]) -> Address:
        async with self._opening:
            node = next((named[name] for name in ("nodeId", "brokerId") if isinstance(named.get(name), int)), BOOTSTRAP)
            if address not in self._listeners:
                await self._listen(address, node)
            self._nodes[address] = node  # the first one was not known until now
            return self._listeners[address][1]


class _Link:
    """A client's connection: what it asked and was not answered yet."""

    def __init__(self, recorder: Recorder, connection: int, node: int) -> None:
        self._recorder = recorder
        self._connection = connection
        self._node = node
        self._asked: dict[int, RequestHeader] = {}
        self._is_raw = False
        """Whether a login without headers goes on: nothing of it is recorded."""

    async def forward_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            frame = await _read(reader)
            header = None if self._is_raw else header_of(frame)
            if header is not None:
                self._remember(header, frame)
                kept, left_out = without_secrets_of_request(header, frame)
                self._recorder.record(self._connection, self._node, REQUEST, kept, left_out)
                if header.api_key == SASL_HANDSHAKE and header.api_version == 0:
                    self._is_raw = True
            await _write(writer, frame)

    def _remember(self, header: RequestHeader, frame: bytes) -> None:
        """Keep the header of a request until its response, unless it has none: a Produce with acks=0.

        A broker stops reading long before MAX_ASKED requests wait: one that is older has no response, and was not
        understood.
        """
        if header.api_key == PRODUCE and not _is_answered(header, frame):
            return
        self._asked[header.correlation_id] = header
        if len(self._asked) > MAX_ASKED:
            del self._asked[next(iter(self._asked))]

    async def forward_responses(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            frame = await _read(reader)
            header = self._asked.pop(int.from_bytes(frame[:4], "big", signed=True), None)
            if header is not None:
                kept, left_out = without_secrets_of_response(header, frame)
                self._recorder.record(self._connection, self._node, RESPONSE, kept, left_out)
                frame = await self._recorder.with_own_addresses(header, frame)
            await _write(writer, frame)


def _is_answered(header: RequestHeader, produce: bytes) -> bool:
    try:
        position = read_request_header(produce)[1]
        request = request_type(PRODUCE).decode(produce[position:], header.api_version)
    except (ProtocolError, ValueError):
        return True
    return getattr(request, "acks", -1) != 0


async def _read(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(SIZE_BYTES), "big", signed=True)
    if not 0 <= size <= MAX_FRAME_BYTES:
        raise OSError(f"a frame of {size} bytes")
    return await reader.readexactly(size)


async def _write(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(len(frame).to_bytes(SIZE_BYTES, "big") + frame)
    await writer.drain()
