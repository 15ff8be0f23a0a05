"""A connection of our own, for requests that librdkafka lacks: one request at a time.

TLS and login settings come from --command-config, where the caller gives no others.
"""

import contextlib
import select
import socket
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from kafkapy.cli import command_config
from kafkapy.cli.deadline import TIMEOUT_S, arm, deadline_in, receive
from kafkapy.errors import ProtocolError, quoted
from kafkapy.protocol.api import response_type
from kafkapy.protocol.headers import read_response_header, write_request_header
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.primitives import Writer
from kafkapy.security.sasl import SaslClient

if TYPE_CHECKING:
    from kafkapy.cli.client_security import ConnectionSecurity

CLIENT_ID = "kafkapy-cli"
MAX_RESPONSE_BYTES: Final = 100_000_000
"""librdkafka's receive.message.max.bytes: a server that is not a broker may announce 4 GiB."""
ASKED_ELSEWHERE: Final = frozenset((3, 10, 60, 75))
"""Metadata, FindCoordinator, DescribeCluster, DescribeTopicPartitions: each broker can respond. A broker whose metadata
is stale closes the connection instead (handlers/stale_metadata.py)."""


class LoginRefusedError(ConnectionError):
    """The broker refused the login; the message is its own."""


class Connection:
    """A context manager. Methods raise OSError, and ProtocolError for invalid responses.

    timeout_s: for a TLS handshake and login together, and for each request until its whole response is there. If a
    server closes a connection of `to_any` upon a request of ASKED_ELSEWHERE, the request goes to the next server.
    """

    def __init__(
        self, host: str, port: int, *, timeout_s: float = TIMEOUT_S, security: "ConnectionSecurity | None" = None
    ) -> None:
        self._security = security
        self._others = ""
        self.server = ""
        """The address that was given to `to_any`."""
        self.has_answered = False
        """Whether the server has responded in the time that `answering` allows."""
        self._slow_s: float | None = None
        self._on_slow: Callable[[], None] = lambda: None
        config = security or command_config.current()
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        self._correlation_id = 0
        self._timeout_s = timeout_s
        self._deadline_s = deadline_in(timeout_s)
        try:
            context = config.context()
            if context is not None:
                arm(self._socket, self._deadline_s)
                self._socket = context.wrap_socket(self._socket, server_hostname=host)
            login = config.login()
            if login is not None:
                self._log_in(login)
        except BaseException:
            self._socket.close()
            raise

    @classmethod
    def to_any(
        cls, servers: str, *, security: "ConnectionSecurity | None" = None, answer_s: float | None = None
    ) -> Self:
        """Connect to the first of HOST:PORT,... that accepts. Raises OSError.

        answer_s: if there are several, the first that also responds to a request in this time. If none does, the first
        that accepts.
        """
        every = servers.split(",")
        if answer_s is not None and len(every) > 1:
            try:
                return cls._to_first(every, security, answer_s)
            except LoginRefusedError:
                raise
            except OSError:
                pass  # none answers in time: wait for one of them
        return cls._to_first(every, security, None)

    @classmethod
    def _to_first(cls, every: list[str], security: "ConnectionSecurity | None", answer_s: float | None) -> Self:
        failure: OSError | None = None
        for number, server in enumerate(every, 1):
            host, _, port = server.strip().rpartition(":")
            try:
                if answer_s is None:
                    found = cls(host.strip("[]"), int(port), security=security)
                else:
                    found = cls.answering(host.strip("[]"), int(port), security=security, answer_s=answer_s)
            except ValueError:
                failure = OSError(f"{quoted(server)} is not HOST:PORT")
            except OSError as error:
                failure = error
            else:
                found.server, found._others = server.strip(), ",".join(every[number:])
                return found
        assert failure is not None
        raise failure

    @classmethod
    def answering(cls, host: str, port: int, *, security: "ConnectionSecurity | None" = None, answer_s: float) -> Self:
        """Connect to a broker that responds to a request. Raises OSError, TimeoutError after answer_s for each step."""
        found = cls(host, port, timeout_s=answer_s, security=security)
        try:
            found.check_answers(answer_s)
        except BaseException:
            found.close()
            raise
        found._timeout_s, found.has_answered = TIMEOUT_S, True
        return found

    def check_answers(self, timeout_s: float) -> None:
        """Send the request that costs a broker the least. Raises OSError if no response comes in time."""
        slow_s, self._slow_s = self._slow_s, None  # its own time-out is as short
        try:
            self.call(ApiVersionsRequest(), 0, timeout_s)
        except ProtocolError as error:
            raise ConnectionError(f"its response is not understood: {error}") from error
        finally:
            self._slow_s = slow_s

    def watch(self, slow_s: float, on_slow: Callable[[], None]) -> None:
        """Call on_slow if a response has not begun after slow_s, once for each request: it may raise OSError."""
        self._slow_s, self._on_slow = slow_s, on_slow

    def call(self, request: Any, version: int, timeout_s: float | None = None) -> Any:
        """Send a request and return its response. timeout_s: other than the connection's."""
        return _decoded(request, self.exchange(request, version, timeout_s), version)

    def exchange(self, request: Any, version: int, timeout_s: float | None = None) -> bytes:
        """Send a request and return its response, not decoded and without a header."""
        self._deadline_s = deadline_in(self._timeout_s if timeout_s is None else timeout_s)
        try:
            return self._exchange(request, version)
        except OSError as error:
            if isinstance(error, TimeoutError) or not self._others or request.API_KEY not in ASKED_ELSEWHERE:
                raise
        self._move_to(self.to_any(self._others, security=self._security))
        return self.exchange(request, version, timeout_s)

    def _move_to(self, other: Self) -> None:
        """Take the place of a connection to another server."""
        self._socket.close()
        self._socket, self._others, self._correlation_id = other._socket, other._others, other._correlation_id
        self.server = other.server

    def _ask(self, request: Any, version: int) -> Any:
        return _decoded(request, self._exchange(request, version), version)

    def _exchange(self, request: Any, version: int) -> bytes:
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
        self._send(out)
        frame = self._receive()
        answered, position = read_response_header(frame, request.API_KEY, version)
        if answered != self._correlation_id:
            raise ProtocolError(f"a response to request {answered}, not {self._correlation_id}")
        return frame[position:]

    def send_frame(self, frame: bytes) -> None:
        """Send a request's frame, without waiting for its response."""
        self._deadline_s = deadline_in(self._timeout_s)
        self._send(frame)

    def receive_frame(self, timeout_s: float) -> bytes:
        """Return the next response's frame, with its header."""
        self._deadline_s = deadline_in(timeout_s)
        return self._receive()

    def _send(self, frame: bytes | bytearray) -> None:
        arm(self._socket, self._deadline_s)
        self._socket.sendall(len(frame).to_bytes(4, "big") + frame)

    def _receive(self) -> bytes:
        if self._slow_s is not None and not self._has_begun(self._slow_s):
            self._on_slow()
        size = int.from_bytes(receive(self._socket, 4, self._deadline_s), "big")
        if size > MAX_RESPONSE_BYTES:
            raise ProtocolError(f"a response of {size} bytes")
        return receive(self._socket, size, self._deadline_s)

    def _has_begun(self, slow_s: float) -> bool:
        """Return whether there is something to receive, or the connection has ended, at the latest after slow_s."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(slow_s * 1000))

    def close(self) -> None:
        self._socket.close()

    def abort(self) -> None:
        """End the connection, from any thread: a call that waits for its response raises at once."""
        self._others = ""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _log_in(self, login: SaslClient) -> None:
        """Log in by SASL. Raises LoginRefusedError, ConnectionError, ProtocolError."""
        from kafkapy.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
        from kafkapy.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
        from kafkapy.security.sasl import SaslError

        handshake = self._ask(SaslHandshakeRequest(mechanism=login.mechanism), 1)
        if handshake.error_code:
            known = ", ".join(handshake.mechanisms) or "none"
            raise LoginRefusedError(f"the broker does not know {login.mechanism}, but {known}")
        token = login.evaluate(b"")
        try:
            while not login.is_complete:
                response = self._ask(SaslAuthenticateRequest(auth_bytes=token), 2)
                if response.error_code:
                    raise LoginRefusedError(response.error_message or "the login failed")
                token = login.evaluate(bytes(response.auth_bytes))
        except SaslError as error:
            raise ConnectionError(f"the broker's part of the login is wrong: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _decoded(request: Any, body: bytes, version: int) -> Any:
    return response_type(request.API_KEY).decode(body, version)
