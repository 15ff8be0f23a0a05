"""The server's side of a connection's SASL login: which requests are allowed before authentication, and the responses.

1. ApiVersions may come first, until one has succeeded.
2. SaslHandshake selects the mechanism.
3. The mechanism's messages follow: in SaslAuthenticate requests after SaslHandshake v1, as frames without a header
   after SaslHandshake v0. `SaslServer.evaluate` (sasl.py) checks each, until it is complete or raises SaslError.
4. In a session with a lifetime a later SaslHandshake starts a re-authentication, which must have the same principal
   and mechanism (KIP-368).

A failed login is answered after a delay, and the connection is closed. The client gets a generic error, except for a
VisibleSaslError. A request that is never part of a login raises ProtocolError, which closes the connection at once.
Source: KIP-43, KIP-152, KIP-368; the states and error messages are those of Apache Kafka's SaslServerAuthenticator.
Driven by `serving/login_gate.py`.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, Final

from kafkapy.dataclass import dataclass
from kafkapy.errors import ProtocolError
from kafkapy.protocol.api import (
    API_VERSIONS,
    APIS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    request_type,
    response_type,
)
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import RequestHeader, read_request_header, write_response_header
from kafkapy.protocol.primitives import Writer
from kafkapy.security.sasl import SaslError, SaslServer, VisibleSaslError, in_java_order

MIN_REAUTHENTICATION_INTERVAL_MS: Final = 1000
MAX_LOGIN_ELEMENTS: Final = 1000
"""Bound of the elements of a login request, which has no arrays and no known tagged fields."""


class LoginState(Enum):
    """The request that a connection may send next; COMPLETE: any."""

    VERSIONS_OR_HANDSHAKE = auto()
    HANDSHAKE = auto()
    AUTHENTICATE = auto()
    BAD_MECHANISM = auto()
    """A re-authentication was started with another mechanism: the next request fails."""
    COMPLETE = auto()
    FAILED = auto()


# Looked up once: of an Enum a lookup costs as much as twenty other attributes.
VERSIONS_OR_HANDSHAKE: Final = LoginState.VERSIONS_OR_HANDSHAKE
HANDSHAKE: Final = LoginState.HANDSHAKE
AUTHENTICATE: Final = LoginState.AUTHENTICATE
BAD_MECHANISM: Final = LoginState.BAD_MECHANISM
COMPLETE: Final = LoginState.COMPLETE
FAILED: Final = LoginState.FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginSettings:
    """The SASL settings of a listener."""

    servers: Mapping[str, Callable[[], SaslServer]]
    """Factories of SaslServers, by enabled mechanism."""
    max_reauth_ms: Mapping[str, int]
    """connections.max.reauth.ms by mechanism; 0: sessions end only when their credentials expire."""
    max_receive_bytes: int = 524_288
    """sasl.server.max.receive.size."""

    @property
    def mechanisms(self) -> list[str]:
        return list(in_java_order(tuple(self.servers)))


@dataclass(frozen=True, slots=True)
class LoginOutcome:
    """The response to a frame, None for no response.

    If `failure` is set, the response is delayed and the connection closed. `failure` is for the log: it has no secret.
    If `is_refused`, the response refuses a bearer token. It is delayed, too, but the client may send another token.
    """

    response: Writer | None
    failure: str | None = None
    is_refused: bool = False


class VersionsRequested(Exception):
    """The frame is an ApiVersions request: the caller answers it as usual, then calls `versions_answered`."""


class Login:
    """The state machine of one connection's login."""

    def __init__(self, settings: LoginSettings) -> None:
        self.settings = settings
        """May be replaced at any time: a user removed meanwhile cannot re-authenticate."""
        self._server: SaslServer | None = None
        self._has_headers = False
        self.reauthentication_began_ms: int | None = None
        """When the last re-authentication was started (monotonic clock)."""
        self.can_reauthenticate = False
        """Whether the client has shown that it can re-authenticate: by SaslAuthenticate 1 or later."""
        self._bad_mechanism = ""
        self.state: LoginState = VERSIONS_OR_HANDSHAKE
        self.mechanism = ""
        self.user = ""
        """The name of the principal, once complete."""
        self.is_by_token = False
        """Whether the login used a delegation token, once complete."""
        self.session_ends_ms: int | None = None
        """When the session expires (monotonic clock), once complete; None: never."""

    @property
    def is_complete(self) -> bool:
        return self.state is COMPLETE

    # ---- after a login

    def is_expired(self, now_ms: int) -> bool:
        """Whether the session has expired, so that only a re-authentication is allowed. `now_ms`: monotonic clock."""
        return self.session_ends_ms is not None and now_ms > self.session_ends_ms

    def maybe_begin_again(self, now_ms: int) -> bool:
        """Start a re-authentication, on a SaslHandshake; return whether it is allowed.

        It is not if the session does not expire, or if the last one started less than a second ago.
        """
        assert self.is_complete
        began_ms = self.reauthentication_began_ms
        if self.session_ends_ms is None:
            return False
        if began_ms is not None and now_ms - began_ms < MIN_REAUTHENTICATION_INTERVAL_MS:
            return False
        self.reauthentication_began_ms = now_ms
        self.state = HANDSHAKE
        return True

    # ---- logging in

    def receive(self, frame: memoryview, *, now_ms: int, wall_ms: int) -> LoginOutcome:
        """Process a frame of a login; `now_ms` is monotonic. Raises ProtocolError, VersionsRequested, WorkNeeded.

        After WorkNeeded the same call is repeated once its work is done.
        """
        if len(frame) > self.settings.max_receive_bytes:
            return self._fail("Failing SASL authentication due to invalid receive size")
        if self.state is BAD_MECHANISM:
            return self._fail(self._bad_mechanism)
        if self.state is AUTHENTICATE:
            if not self._has_headers:
                return self._authenticate_raw(frame, now_ms, wall_ms)
            return self._authenticate(frame, now_ms, wall_ms)
        assert self.state in (VERSIONS_OR_HANDSHAKE, HANDSHAKE), "a frame after the end"
        header, position = read_request_header(frame)
        if header.api_key == API_VERSIONS and self.state is VERSIONS_OR_HANDSHAKE:
            raise VersionsRequested
        if header.api_key != SASL_HANDSHAKE:
            raise ProtocolError(f"Unexpected Kafka request of type {_name(header)} during SASL handshake.")
        request: Any
        request, _ = request_type(SASL_HANDSHAKE).read(frame, position, header.api_version, MAX_LOGIN_ELEMENTS)
        return self._handshake(header, request.mechanism)

    def versions_answered(self, *, is_success: bool) -> None:
        """Call after answering ApiVersions; clients may repeat it until it has succeeded."""
        assert self.state is VERSIONS_OR_HANDSHAKE
        if is_success:
            self.state = HANDSHAKE

    def _handshake(self, header: RequestHeader, mechanism: str) -> LoginOutcome:
        new_response: Any = response_type(SASL_HANDSHAKE)
        mechanisms = self.settings.mechanisms
        if mechanism not in mechanisms:
            refusal = new_response(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=mechanisms)
            return self._fail(f"Unsupported SASL mechanism {mechanism}", _encode(header, refusal))
        response = _encode(header, new_response(mechanisms=mechanisms))
        self._has_headers = header.api_version >= 1
        if self.mechanism not in ("", mechanism):
            self._bad_mechanism = (
                f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication of mechanism "
                f"'{self.mechanism}'"
            )
            self.state = BAD_MECHANISM
        else:
            self._server = self.settings.servers[mechanism]()
            self.mechanism = mechanism
            self.state = AUTHENTICATE
        return LoginOutcome(response)

    def _authenticate_raw(self, frame: memoryview, now_ms: int, wall_ms: int) -> LoginOutcome:
        """Process a mechanism's message without a request header. Raises ProtocolError."""
        try:
            challenge = self._evaluate(bytes(frame), wall_ms)
        except VisibleSaslError as error:
            return self._fail(str(error))
        except SaslError as error:
            raise ProtocolError(f"{self._action} failed: {error}") from error
        self._maybe_complete(now_ms, wall_ms)
        response = Writer()
        response += challenge
        return LoginOutcome(response, is_refused=self._has_refused)

    def _authenticate(self, frame: memoryview, now_ms: int, wall_ms: int) -> LoginOutcome:
        header, position = read_request_header(frame)
        if header.api_key != SASL_AUTHENTICATE:
            reason = f"Unexpected Kafka request of type {_name(header)} during SASL authentication."
            return self._fail(reason, _illegal_state(header, reason))
        new_response: Any = response_type(SASL_AUTHENTICATE)
        request: Any
        request, _ = request_type(SASL_AUTHENTICATE).read(frame, position, header.api_version, MAX_LOGIN_ELEMENTS)
        self.can_reauthenticate = self.can_reauthenticate or header.api_version > 0
        try:
            challenge = self._evaluate(bytes(request.auth_bytes), wall_ms)
        except SaslError as error:
            message = str(error) if isinstance(error, VisibleSaslError) else self._invalid_credentials
            refusal = new_response(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=message)
            return self._fail(f"{message} ({error})" if message != str(error) else message, _encode(header, refusal))
        lifetime_ms = self._maybe_complete(now_ms, wall_ms)
        response = _encode(header, new_response(auth_bytes=challenge, session_lifetime_ms=lifetime_ms))
        return LoginOutcome(response, is_refused=self._has_refused)

    def _evaluate(self, token: bytes, wall_ms: int) -> bytes:
        """Return the challenge to a token. Raises SaslError, WorkNeeded."""
        server = self._server
        assert server is not None
        challenge = server.evaluate(token, wall_ms)
        if server.is_complete and self.user not in ("", server.authorization_id):
            raise VisibleSaslError(
                f"Cannot change principals during re-authentication from User.{self.user}: "
                f"User.{server.authorization_id}"
            )
        return challenge

    @property
    def _has_refused(self) -> bool:
        return self._server is not None and self._server.is_refused

    def _maybe_complete(self, now_ms: int, wall_ms: int) -> int:
        """Complete the login if the mechanism is complete; return the session lifetime in ms, 0 for unlimited."""
        server = self._server
        assert server is not None
        if not server.is_complete:
            return 0
        self.user = server.authorization_id
        self.is_by_token = server.is_by_token
        self._server = None
        self.state = COMPLETE
        max_reauth_ms = self.settings.max_reauth_ms.get(self.mechanism, 0)
        bounds = [max_reauth_ms] if max_reauth_ms > 0 else []
        if server.expires_at_ms is not None:
            bounds.append(server.expires_at_ms - wall_ms)
        if not bounds:
            self.session_ends_ms = None
            return 0
        lifetime_ms = max(0, min(bounds))
        self.session_ends_ms = now_ms + lifetime_ms
        return lifetime_ms

    def _fail(self, reason: str, response: Writer | None = None) -> LoginOutcome:
        self._server = None
        self.state = FAILED
        return LoginOutcome(response, reason)

    @property
    def _action(self) -> str:
        return "re-authentication" if self.user else "authentication"

    @property
    def _invalid_credentials(self) -> str:
        return (
            f"Authentication failed during {self._action} due to invalid credentials with SASL mechanism "
            f"{self.mechanism}"
        )


def _name(header: RequestHeader) -> str:
    """Return an API's name in Kafka's enum, such as SASL_HANDSHAKE."""
    name = APIS[header.api_key].name
    return "".join(f"_{each}" if each.isupper() and at else each for at, each in enumerate(name)).upper()


def _encode(header: RequestHeader, response: Any) -> Writer:
    out = Writer()
    write_response_header(out, header.api_key, header.api_version, header.correlation_id)
    response.write(out, header.api_version)
    return out


def _illegal_state(header: RequestHeader, reason: str) -> Writer | None:
    """Return the error response to a request that is not allowed now; None if it has no top-level error field.

    Deviation: Apache Kafka sets the error of each topic (or other element) in the response of such an API. Here the
    connection is closed, because no request is decoded before a login.
    """
    api = APIS[header.api_key]
    response: Any = response_type(header.api_key)()
    if not hasattr(response, "error_code") or not api.min_version <= header.api_version <= api.max_version:
        return None
    without_error = _encode(header, response)
    response.error_code = int(ErrorCode.ILLEGAL_SASL_STATE)
    if hasattr(response, "error_message"):
        response.error_message = reason
    encoded = _encode(header, response)
    return encoded if encoded != without_error else None
