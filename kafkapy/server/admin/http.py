"""A small HTTP server on its own thread, so that it answers while the node's event loop is blocked.

One request per connection. Limits: MAX_CONNECTIONS at a time (beyond, the one that has kept its request back for
longest makes room, else the new one is answered with 503); MAX_HEAD_BYTES and HEAD_TIMEOUT_S for the request line and
headers; CONNECTION_TIMEOUT_S for the whole connection, including the client reading the response.
"""

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final, TypeAlias

from kafkapy.dataclass import dataclass

MAX_CONNECTIONS: Final = 64
"""Probes and a few Prometheus servers; the oldest incomplete one makes room for another."""
MAX_HEAD_BYTES: Final = 8192
"""The limit of most HTTP servers: a scrape sends some 300 bytes."""
CONNECTION_TIMEOUT_S: Final = 30.0
"""Three times Prometheus' time-out for a scrape."""
HEAD_TIMEOUT_S: Final = 5.0
"""A client sends a request's head at once: half a head for so long is none."""
MAX_UNREAD_BYTES: Final = 32 << 20
"""Bytes of all responses that clients have not read yet. Beyond it the connection that waits longest is closed."""
GOODBYE_TIMEOUT_S: Final = 1.0
"""How long further input is read and dropped, as closing with unread input would discard the response."""
METHODS: Final = ("GET", "HEAD")
PLAIN: Final = "text/plain; charset=utf-8"

logger = logging.getLogger("kafkapy.server")


@dataclass(frozen=True, slots=True)
class Response:
    status: HTTPStatus
    content_type: str
    body: bytes


Handler: TypeAlias = Callable[[str], Awaitable[Response]]
"""Called on the server's thread with the Accept header, "" if there is none."""


class BadRequest(Exception):
    """The input is not an HTTP request that this server supports."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class HttpServer:
    """Serves `pages`, by path, from construction to close()."""

    def __init__(
        self,
        listening: socket.socket,
        pages: Mapping[str, Handler],
        *,
        max_connections: int = MAX_CONNECTIONS,
        timeout_s: float = CONNECTION_TIMEOUT_S,
        head_timeout_s: float = HEAD_TIMEOUT_S,
        max_unread_bytes: int = MAX_UNREAD_BYTES,
    ) -> None:
        """Takes ownership of `listening`."""
        self._pages = pages
        self._max_connections = max_connections
        self._timeout_s = timeout_s
        self._head_timeout_s = head_timeout_s
        self._connections: set[asyncio.Task[None]] = set()
        self._max_unread_bytes = max_unread_bytes
        self._unread: dict[asyncio.StreamWriter, int] = {}
        """The size of each response that is being sent, the oldest first."""
        self._incomplete: dict[asyncio.StreamWriter, None] = {}
        """The connections whose request has not arrived, the oldest first."""
        self._loop = asyncio.SelectorEventLoop()
        self._stopped = asyncio.Event()
        self._thread = threading.Thread(target=self._run, args=(listening,), name="kafkapy-admin", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close the listener and all connections; wait for the thread."""
        with contextlib.suppress(RuntimeError):  # closed already
            self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    def _run(self, listening: socket.socket) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve(listening))

    async def _serve(self, listening: socket.socket) -> None:
        server = await asyncio.start_server(self._connected, sock=listening, limit=MAX_HEAD_BYTES)
        async with server:
            await self._stopped.wait()
            server.close()
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._converse(reader, writer)
        except (OSError, TimeoutError, EOFError):
            pass
        except asyncio.CancelledError:  # by close; asyncio's callback of a connection logs a cancelled task as an error
            return
        finally:
            self._connections.discard(task)
            self._unread.pop(writer, None)
            self._incomplete.pop(writer, None)
            writer.transport.abort()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) > self._max_connections and not self._maybe_close_oldest():
            response = _encoded(_plain(HTTPStatus.SERVICE_UNAVAILABLE), has_body=True)
        else:
            response = await self._response_to(await self._head(reader, writer))
        self._make_room(len(response))
        self._unread[writer] = len(response)
        writer.write(response)
        del response  # the transport has the rest
        await writer.drain()
        self._unread.pop(writer, None)
        writer.write_eof()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_TIMEOUT_S):
                while await reader.read(MAX_HEAD_BYTES):
                    pass

    def _maybe_close_oldest(self) -> bool:
        """Close the connection that has kept its request back for longest, if there is one; return whether it did."""
        oldest = next(iter(self._incomplete), None)
        if oldest is None:
            return False
        del self._incomplete[oldest]
        oldest.transport.abort()
        return True

    async def _head(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes | None:
        """Return the request line and headers, None if they are too long. Raises EOFError, TimeoutError."""
        self._incomplete[writer] = None
        try:
            async with asyncio.timeout(self._head_timeout_s):
                return await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return None
        finally:
            self._incomplete.pop(writer, None)

    def _make_room(self, size: int) -> None:
        """Close connections whose clients read too slowly, the oldest first."""
        while self._unread and sum(self._unread.values()) + size > self._max_unread_bytes:
            slowest = next(iter(self._unread))
            del self._unread[slowest]
            slowest.transport.abort()

    async def _response_to(self, head: bytes | None) -> bytes:
        """Return the response to the one request; `head` is None if it was too long."""
        if head is None:
            return _encoded(_plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE), has_body=True)
        try:
            method, path, accept = _parsed(head)
        except BadRequest as bad:
            return _encoded(_plain(bad.status), has_body=True)
        page = self._pages.get(path)
        if page is None:
            return _encoded(_plain(HTTPStatus.NOT_FOUND), has_body=method != "HEAD")
        if method not in METHODS:
            return _encoded(_plain(HTTPStatus.METHOD_NOT_ALLOWED), f"Allow: {', '.join(METHODS)}", has_body=True)
        try:
            response = await page(accept)
        except Exception:
            logger.exception("The admin listener failed to answer a request for %s", path)
            response = _plain(HTTPStatus.INTERNAL_SERVER_ERROR)
        return _encoded(response, has_body=method != "HEAD")


def _parsed(head: bytes) -> tuple[str, str, str]:
    """Return method, path without query, and the Accept header. Raises BadRequest."""
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[1].startswith("/") or not words[2].startswith("HTTP/1."):
        raise BadRequest(HTTPStatus.BAD_REQUEST)
    headers = [line.partition(":") for line in lines]
    accept = next((value.strip() for name, _, value in headers if name.lower() == "accept"), "")
    return words[0], words[1].partition("?")[0], accept


def _plain(status: HTTPStatus) -> Response:
    return Response(status, PLAIN, f"{status.phrase}\n".encode())


def _encoded(response: Response, *headers: str, has_body: bool) -> bytes:
    lines = (
        f"HTTP/1.1 {response.status.value} {response.status.phrase}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
        "Cache-Control: no-store",
        "Connection: close",
        *headers,
    )
    head = "".join(f"{line}\r\n" for line in lines) + "\r\n"
    return head.encode() + (response.body if has_body else b"")
