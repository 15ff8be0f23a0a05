"""A connection of our own, for what no other client can ask: one request at a time over a PLAINTEXT listener."""

import socket
from types import TracebackType
from typing import Any, Self

from kafkapy.cli.client import TIMEOUT_S
from kafkapy.errors import ProtocolError
from kafkapy.protocol.api import response_type
from kafkapy.protocol.headers import read_response_header, write_request_header
from kafkapy.protocol.primitives import Writer

CLIENT_ID = "kafkapy-cli"


class Connection:
    """A context manager. Methods raise OSError, and ProtocolError for what is no answer."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=TIMEOUT_S)
        self._correlation_id = 0

    @classmethod
    def to_any(cls, servers: str) -> Self:
        """Connect to the first of HOST:PORT,... that answers. Raises OSError."""
        failure: OSError | None = None
        for server in servers.split(","):
            host, _, port = server.strip().rpartition(":")
            try:
                return cls(host.strip("[]"), int(port))
            except ValueError:
                failure = OSError(f"{server!r} is not HOST:PORT")
            except OSError as error:
                failure = error
        assert failure is not None
        raise failure

    def call(self, request: Any, version: int) -> Any:
        """Send a request and return its response."""
        self._correlation_id += 1
        out = Writer()
        write_request_header(
            out,
            api_key=request.API_KEY,
            api_version=version,
            correlation_id=self._correlation_id,
            client_id=CLIENT_ID,
        )
        request.write(out, version)
        self._socket.sendall(len(out).to_bytes(4, "big") + out)
        frame = self._take(int.from_bytes(self._take(4), "big"))
        answered, position = read_response_header(frame, request.API_KEY, version)
        if answered != self._correlation_id:
            raise ProtocolError(f"an answer to request {answered}, not {self._correlation_id}")
        return response_type(request.API_KEY).decode(frame[position:], version)

    def _take(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            received = self._socket.recv(size - len(data))
            if not received:
                raise ConnectionError("the broker closed the connection")
            data += received
        return bytes(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
