"""A client that is only a socket and the codec: it sends what it is told, well-formed or not, and shows what comes.

    with WireClient(broker.bootstrap_servers) as client:
        response = client.call(MetadataRequest(topics=None), 13)

Requests may be pipelined: `send` each, then `receive` the responses in the order in which they come.
"""

import socket
import ssl
import struct
from collections import deque
from types import TracebackType
from typing import Any, Self

from kafkapy.protocol.api import message_type
from kafkapy.protocol.headers import read_response_header, write_request_header
from kafkapy.protocol.primitives import Writer

TIMEOUT_S = 60.0
CLIENT_ID = "wire"


class ConnectionClosed(Exception):
    """The broker closed the connection."""


class WireClient:
    """One connection; a context manager that closes it. Fails after TIMEOUT_S without a byte."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        timeout_s: float = TIMEOUT_S,
        source_host: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`source_host`: the address that the broker is to see, 127.0.0.2 for example."""
        host, _, port = bootstrap_servers.rpartition(":")
        source = None if source_host is None else (source_host, 0)
        self._socket = socket.create_connection((host, int(port)), timeout=timeout_s, source_address=source)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        self._received = bytearray()
        self._sent: deque[tuple[Any, int, int]] = deque()
        self._next_correlation_id = 1

    def call(self, request: Any, version: int, **header: Any) -> Any:
        """Send a request and return its response."""
        self.send(request, version, **header)
        return self.receive()

    def send(self, request: Any, version: int, **header: Any) -> int:
        """Send a request, whose response `receive` will take; return its correlation id."""
        correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        self._sent.append((request, version, correlation_id))
        self.send_frame(request_frame(request, version, correlation_id=correlation_id, **header))
        return correlation_id

    def send_unanswered(self, request: Any, version: int) -> None:
        """Send a request that gets no response: Produce with acks=0."""
        self.send_frame(request_frame(request, version, correlation_id=0))

    def send_frame(self, body: bytes) -> None:
        self.send_bytes(struct.pack(">i", len(body)) + body)

    def send_bytes(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ConnectionClosed from error

    def receive(self) -> Any:
        """Return the response to the oldest request without one: the next frame, and all of it.

        Raises ConnectionClosed.
        """
        request, version, correlation_id = self._sent.popleft()
        frame = self.receive_frame()
        answered, position = read_response_header(frame, request.API_KEY, version)
        assert answered == correlation_id, "responses come in the order of their requests"
        return message_type(request.NAME.replace("Request", "Response")).decode(frame[position:], version)

    def receive_frame(self) -> bytes:
        """Return the next frame as it is, its size left out. Raises ConnectionClosed, TimeoutError."""
        size = int.from_bytes(self._take(4), "big", signed=True)
        return self._take(size)

    def is_closed(self) -> bool:
        """Wait for the broker to close; return False if it answers, or does nothing until the time-out."""
        try:
            return not self._socket.recv(1)
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def has_response(self, within_s: float) -> bool:
        """Whether a byte is there, or comes in time."""
        before = self._socket.gettimeout()
        self._socket.settimeout(within_s)
        try:
            self._received += self._receive_some()
            return True
        except TimeoutError:
            return False
        finally:
            self._socket.settimeout(before)

    def set_timeout(self, timeout_s: float) -> None:
        """Wait only so long for a byte, or for room to send one."""
        self._socket.settimeout(timeout_s)

    @property
    def local_address(self) -> tuple[str, int]:
        """Host and port that the broker sees."""
        host, port = self._socket.getsockname()[:2]
        return host, port

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take(self, size: int) -> bytes:
        while len(self._received) < size:
            self._received += self._receive_some()
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken

    def _receive_some(self) -> bytes:
        try:
            data = self._socket.recv(1 << 20)
        except ConnectionResetError as error:
            raise ConnectionClosed from error
        if not data:
            raise ConnectionClosed
        return data


def request_frame(request: Any, version: int, *, correlation_id: int = 1, client_id: str | None = CLIENT_ID) -> bytes:
    """Return header and body of a request, without the size."""
    out = Writer()
    write_request_header(
        out, api_key=request.API_KEY, api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    body = bytes(out)
    return body + bytes(request.encode(version))
