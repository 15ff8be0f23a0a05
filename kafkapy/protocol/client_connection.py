"""The state machine of an outbound connection: requests become bytes; received bytes become responses, in order.

The first request is ApiVersions. All others wait for its response, because each request uses the highest version that
both sides support (KIP-35). A peer that does not support our version of ApiVersions answers UNSUPPORTED_VERSION in the
format of version 0; the request is then repeated with the highest version in that response (KIP-511). If a login is
required, it follows (client_login.py), and requests wait for it, too.

The driver writes what `pop_output` returns, passes received bytes to `receive`, and calls `is_expired` at
`deadline_ms`. If a request is not answered in time, the driver closes the connection, as Apache Kafka's NetworkClient
does: responses are ordered, so all later ones would have to wait for the missing one. Driven by `runtime/peer.py`.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.errors import ProtocolError
from kafkapy.protocol.api import API_VERSIONS, APIS, SASL_AUTHENTICATE, SASL_HANDSHAKE, response_type
from kafkapy.protocol.client_login import AUTHENTICATE_VERSION, HANDSHAKE_VERSION, ClientLogin, NewLogin
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import read_response_header, write_request_header
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.api_versions_response import ApiVersionsResponse
from kafkapy.protocol.primitives import EncodeError, Message, Writer
from kafkapy.protocol.traffic import OutboundTraffic
from kafkapy.seams import ReadableBuffer
from kafkapy.types import INT32_MAX

UNSUPPORTED_VERSION: Final = ErrorCode.UNSUPPORTED_VERSION.value
OWN_APIS: Final = (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE)
"""The APIs that the machine itself calls."""
RENEWED_AT: Final = 85
"""Percent of the session lifetime after which it is renewed: the lower bound of Java clients."""
API_VERSIONS_VERSION: Final = 4
"""The version of the first ApiVersions request: the newest that Apache Kafka 4.3.1 has, too."""


@dataclass(slots=True, eq=False)
class ClientRequest:
    """A request to a peer. `build(version)` creates the message, for a version in min_version..max_version."""

    api_key: int
    build: Callable[[int], Message]
    on_response: Callable[[Message, int], None]
    """Called once with the response and its version, unless on_failure is called."""
    on_failure: Callable[[bool], None]
    """Called once if there will be no response: with True if there is no common version, or it cannot encode the
    message; with False if the peer is unreachable, does not answer in time or closes the connection."""
    timeout_ms: int
    min_version: int
    max_version: int
    deadline_ms: int = 0
    """Set when the request is submitted."""
    version: int = -1
    """Set when the request is written."""


class ClientConnection:
    """The state machine of one connection; each connection needs a new one."""

    __slots__ = (
        "_client_id",
        "_frame",
        "_frame_bytes",
        "_in_flight",
        "_input",
        "_login",
        "_login_began_ms",
        "_max_response_bytes",
        "_new_login",
        "_output",
        "_queue",
        "_sent",
        "_session_due_ms",
        "_software_version",
        "_traffic",
        "_versions",
    )

    def __init__(
        self,
        client_id: str,
        *,
        software_version: str,
        max_response_bytes: int,
        new_login: NewLogin | None = None,
        traffic: OutboundTraffic | None = None,
    ) -> None:
        """max_response_bytes: a response that claims a larger size raises ProtocolError.

        new_login: creates the SASL mechanism of each login; None if the peer requires no login.

        traffic: what requests, responses and logins are counted in, if anywhere.
        """
        self._new_login = new_login
        self._traffic = traffic
        self._login: ClientLogin | None = None
        self._login_began_ms = 0
        self._session_due_ms: int | None = None
        self._client_id = client_id
        self._software_version = software_version
        self._max_response_bytes = max_response_bytes
        self._versions: dict[int, tuple[int, int]] | None = None
        self._queue: deque[ClientRequest] = deque()
        self._in_flight: deque[ClientRequest] = deque()
        self._output = bytearray()
        self._input = bytearray()
        self._frame: bytearray | None = None
        """The part of a response that has arrived, if it is known to be incomplete; grows with what is received."""
        self._frame_bytes = 0
        self._sent = 0

    @property
    def is_ready(self) -> bool:
        """Whether the peer's versions are known and no login is in progress."""
        return self._versions is not None and self._login is None

    @property
    def peer_versions(self) -> dict[int, tuple[int, int]] | None:
        """The lowest and highest version of each API of the peer, by API key; None until they are known."""
        return self._versions

    @property
    def waiting_count(self) -> int:
        """The number of unanswered requests, including the machine's own."""
        return len(self._in_flight) + len(self._queue)

    def start(self, now_ms: int, timeout_ms: int) -> None:
        """Request the peer's versions, then log in. Call once, before all else."""
        self._login_began_ms = now_ms
        self._request_versions(API_VERSIONS_VERSION, now_ms + timeout_ms)

    def submit(self, request: ClientRequest) -> None:
        """Send a request, or queue it until versions are known and the login is done. Its deadline_ms must be set.

        A session that is due for renewal is renewed before the request is sent (KIP-368). Raises ProtocolError.
        """
        if self._session_due_ms is not None and self._login is None:
            submitted_ms = request.deadline_ms - request.timeout_ms
            if submitted_ms >= self._session_due_ms:
                self._begin_login(submitted_ms, request.deadline_ms)
        if self._versions is None or self._login is not None:
            self._queue.append(request)
        else:
            self._send(request, self._versions)

    def pop_output(self) -> bytes:
        """Return and remove the bytes to write."""
        data = bytes(self._output)
        self._output.clear()
        return data

    @property
    def missing_bytes(self) -> int:
        """The missing bytes of an incomplete response; 0 if none has begun to arrive."""
        return 0 if self._frame is None else self._frame_bytes - len(self._frame)

    def receive(self, data: ReadableBuffer) -> None:
        """Take received bytes, copying them; call on_response for each complete response.

        A response may keep views of its frame, which is not used for anything else. After a ProtocolError the driver
        closes.
        """
        frame = self._frame
        if frame is None:
            self._input += data
            self._read_frames()
            return
        missing = self._frame_bytes - len(frame)
        view = memoryview(data)
        frame += view[:missing]
        if len(view) < missing:
            return
        self._frame = None
        rest = bytes(view[missing:])
        self._read_response(frame)
        if rest:
            self.receive(rest)

    def _read_frames(self) -> None:
        """Take the responses in the input; an incomplete last one becomes the frame that further bytes go to."""
        position = 0
        while len(self._input) - position >= 4:
            size = int.from_bytes(self._input[position : position + 4], "big", signed=True)
            if not 0 <= size <= self._max_response_bytes:
                raise ProtocolError(f"response of {size} bytes, where {self._max_response_bytes} are allowed")
            position += 4
            frame = self._input[position : position + size]
            position += size
            if len(frame) < size:
                self._frame, self._frame_bytes = frame, size
                break
            self._read_response(frame)
        del self._input[:position]

    def deadline_ms(self) -> int | None:
        """Return the earliest deadline of an unanswered request, None if there is none."""
        return min((request.deadline_ms for request in (*self._in_flight, *self._queue)), default=None)

    def is_expired(self, now_ms: int) -> bool:
        """Whether a request was not answered in time."""
        deadline_ms = self.deadline_ms()
        return deadline_ms is not None and now_ms >= deadline_ms

    def close(self) -> list[ClientRequest]:
        """Return the unanswered requests, oldest first; the driver calls their on_failure."""
        unanswered = [request for request in (*self._in_flight, *self._queue) if request.api_key not in OWN_APIS]
        self._in_flight.clear()
        self._queue.clear()
        return unanswered

    def _send(self, request: ClientRequest, versions: dict[int, tuple[int, int]]) -> None:
        lowest, highest = versions.get(request.api_key, (0, -1))
        version = min(highest, request.max_version)
        if version < max(lowest, request.min_version):
            request.on_failure(True)
            return
        try:
            self._write(request, version)
        except EncodeError:  # fail only this request: others are queued
            request.on_failure(True)

    def _write(self, request: ClientRequest, version: int) -> None:
        """Append the request to the output. On an EncodeError nothing has changed."""
        body = request.build(version).encode(version)
        request.version = version
        out = Writer()
        write_request_header(
            out,
            api_key=request.api_key,
            api_version=version,
            correlation_id=self._sent,
            client_id=self._client_id,
        )
        self._sent = (self._sent + 1) & INT32_MAX
        self._output += (len(out) + len(body)).to_bytes(4, "big")
        self._output += out
        self._output += body
        self._in_flight.append(request)
        if self._traffic is not None:
            self._traffic.count_sent(len(out) + len(body), 1)

    def _read_response(self, frame: bytearray) -> None:
        if not self._in_flight:
            raise ProtocolError("a response without a request")
        request = self._in_flight[0]
        expected = (self._sent - len(self._in_flight)) & INT32_MAX
        correlation_id, position = read_response_header(memoryview(frame), request.api_key, request.version)
        if correlation_id != expected:
            raise ProtocolError(f"a response to request {correlation_id}, where that to {expected} comes next")
        body = memoryview(frame)[position:]
        version = request.version
        if request.api_key == API_VERSIONS and body[:2] == UNSUPPORTED_VERSION.to_bytes(2, "big"):
            version = 0
        response = response_type(request.api_key).decode(body, version)
        self._in_flight.popleft()
        if self._traffic is not None:
            self._traffic.received_frames += 1
        request.on_response(response, version)

    # ---- the peer's versions

    def _request_versions(self, version: int, deadline_ms: int) -> None:
        def build(_version: int) -> Message:
            return ApiVersionsRequest(client_software_name="kafkapy", client_software_version=self._software_version)

        def on_response(response: Message, answered_version: int) -> None:
            self._learn_versions(response, version, answered_version, deadline_ms)

        request = ClientRequest(API_VERSIONS, build, on_response, _ignore_failure, 0, 0, version, deadline_ms)
        self._write(request, version)

    def _learn_versions(self, response: Message, requested: int, answered: int, deadline_ms: int) -> None:
        assert isinstance(response, ApiVersionsResponse)
        versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        if response.error_code == UNSUPPORTED_VERSION and answered < requested:
            self._request_versions(min(versions.get(API_VERSIONS, (0, 0))[1], requested - 1), deadline_ms)
            return
        if response.error_code:
            raise ProtocolError(f"ApiVersions was answered with error {response.error_code}")
        self._versions = versions
        if self._new_login is not None:
            self._begin_login(self._login_began_ms, deadline_ms)
        else:
            self._send_queue(versions)

    def _send_queue(self, versions: dict[int, tuple[int, int]]) -> None:
        queue, self._queue = self._queue, deque()
        for request in queue:
            self._send(request, versions)

    # ---- the login

    def _begin_login(self, now_ms: int, deadline_ms: int) -> None:
        """Start a login. Raises LoginError."""
        assert self._new_login is not None
        self._login = login = ClientLogin(self._new_login)
        self._login_began_ms = now_ms
        self._send_login(SASL_HANDSHAKE, HANDSHAKE_VERSION, login.handshake(), deadline_ms)

    def _send_login(self, api_key: int, version: int, message: Message, deadline_ms: int) -> None:
        def on_response(response: Message, _version: int) -> None:
            self._go_on_with_login(response, deadline_ms)

        request = ClientRequest(
            api_key, lambda _: message, on_response, _ignore_failure, 0, version, version, deadline_ms
        )
        self._write(request, version)

    def _go_on_with_login(self, response: Message, deadline_ms: int) -> None:
        """Send the next login request, or complete the login. Raises LoginError."""
        login, versions = self._login, self._versions
        assert login is not None
        assert versions is not None
        message = login.next_request(response)
        if message is not None:
            version = min(AUTHENTICATE_VERSION, versions.get(SASL_AUTHENTICATE, (0, 0))[1])
            self._send_login(SASL_AUTHENTICATE, version, message, deadline_ms)
            return
        self._login = None
        self._count_login()
        lifetime_ms = login.session_lifetime_ms
        self._session_due_ms = self._login_began_ms + lifetime_ms * RENEWED_AT // 100 if lifetime_ms else None
        self._send_queue(versions)

    def _count_login(self) -> None:
        if self._traffic is None:
            return
        if self._session_due_ms is None:
            self._traffic.record_login(can_reauthenticate=True)
        else:
            self._traffic.reauthentications += 1


def _ignore_failure(_is_unsupported: bool) -> None:
    """The on_failure of the machine's own requests: the requests that wait for them fail by themselves."""


def newest_version(api_key: int) -> int:
    """Return the newest stable version of an API in Apache Kafka 4.4.0."""
    return APIS[api_key].max_stable_version
