"""The login of one connection: which requests it may send until it has logged in, and what they are answered.

Deny by default. ApiVersions until one succeeded, then SaslHandshake, which chooses the mechanism, then tokens only: as
SaslAuthenticate after a SaslHandshake 1, as frames without any header after a SaslHandshake 0. Later, if the session
ends at some time, a SaslHandshake begins the login anew, of the same principal by the same mechanism (KIP-368).

A failure is answered late and closes the connection; what no login can contain is a ProtocolError, which closes it at
once. Source: KIP-43, KIP-152, KIP-368; states and texts are those of Apache Kafka's SaslServerAuthenticator.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, Final

from kafkapy.dataclass import dataclass
from kafkapy.errors import ProtocolError
from kafkapy.protocol.api import API_VERSIONS, APIS, response_type
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import RequestHeader, read_request_header, write_response_header
from kafkapy.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from kafkapy.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from kafkapy.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from kafkapy.protocol.messages.sasl_handshake_response import SaslHandshakeResponse
from kafkapy.protocol.primitives import Writer
from kafkapy.security.sasl import SaslError, SaslServer, ToldSaslError, in_java_order

SASL_HANDSHAKE: Final = SaslHandshakeRequest.API_KEY
SASL_AUTHENTICATE: Final = SaslAuthenticateRequest.API_KEY
MIN_REAUTHENTICATION_INTERVAL_MS: Final = 1000
FEW_ELEMENTS: Final = 1000
"""Tagged fields that a request may have: there are none."""


class LoginState(Enum):
    VERSIONS_OR_HANDSHAKE = auto()
    HANDSHAKE = auto()
    TOKENS = auto()
    OTHER_MECHANISM = auto()
    """The login was begun anew with another mechanism: whatever comes next fails."""
    COMPLETE = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginSettings:
    """What a listener asks of a login."""

    servers: Mapping[str, Callable[[], SaslServer]]
    """By enabled mechanism, what makes the machine of one login."""
    max_reauth_ms: Mapping[str, int]
    """connections.max.reauth.ms by mechanism; 0: sessions end with their credentials only."""
    max_receive_bytes: int = 524_288
    """sasl.server.max.receive.size."""

    @property
    def mechanisms(self) -> list[str]:
        return in_java_order(self.servers)


@dataclass(frozen=True, slots=True)
class Reply:
    """What a frame is answered: None for nothing. With a `failure` the answer comes late, and the connection ends.

    `failure` is for the log: it names no secret.
    """

    answer: Writer | None
    failure: str | None = None


class VersionsAsked(Exception):
    """The frame is an ApiVersions: answer it as ever, then call `versions_answered`."""


class Login:
    """The machine of one connection."""

    def __init__(self, settings: LoginSettings) -> None:
        self.settings = settings
        """May be replaced at any time: who was removed meanwhile cannot renew a session."""
        self._server: SaslServer | None = None
        self._has_headers = False
        self._reauthentication_began_ms: int | None = None
        self._bad_mechanism = ""
        self.state = LoginState.VERSIONS_OR_HANDSHAKE
        self.mechanism = ""
        self.user = ""
        """The name of the principal, once complete."""
        self.is_by_token = False
        """Whether the login was by a delegation token, once complete."""
        self.session_ends_ms: int | None = None
        """By the monotonic clock, once complete; None: never."""

    @property
    def is_complete(self) -> bool:
        return self.state is LoginState.COMPLETE

    # ---- after a login

    def is_expired(self, now_ms: int) -> bool:
        """Whether nothing but a login may come. `now_ms`: the monotonic clock."""
        return self.session_ends_ms is not None and now_ms > self.session_ends_ms

    def maybe_begin_again(self, now_ms: int) -> bool:
        """Begin to log in anew, for the SaslHandshake that has come; return whether that may be: once a second."""
        assert self.is_complete
        began_ms = self._reauthentication_began_ms
        if self.session_ends_ms is None:
            return False
        if began_ms is not None and now_ms - began_ms < MIN_REAUTHENTICATION_INTERVAL_MS:
            return False
        self._reauthentication_began_ms = now_ms
        self._has_headers = False
        self.state = LoginState.HANDSHAKE
        return True

    # ---- logging in

    def receive(self, frame: memoryview, *, now_ms: int, wall_ms: int) -> Reply:
        """Take a frame of a login; `now_ms` is monotonic. Raises ProtocolError, VersionsAsked."""
        if len(frame) > self.settings.max_receive_bytes:
            return self._fail("Failing SASL authentication due to invalid receive size")
        if self.state is LoginState.OTHER_MECHANISM:
            return self._fail(self._bad_mechanism)
        if self.state is LoginState.TOKENS:
            if not self._has_headers:
                return self._raw_token(frame, now_ms, wall_ms)
            return self._authenticate(frame, now_ms, wall_ms)
        assert self.state in (LoginState.VERSIONS_OR_HANDSHAKE, LoginState.HANDSHAKE), "a frame after the end"
        header, position = read_request_header(frame)
        if header.api_key == API_VERSIONS and self.state is LoginState.VERSIONS_OR_HANDSHAKE:
            raise VersionsAsked
        if header.api_key != SASL_HANDSHAKE:
            raise ProtocolError(f"Unexpected Kafka request of type {_name(header)} during SASL handshake.")
        _check_version(header)
        request, _ = SaslHandshakeRequest.read(frame, position, header.api_version, FEW_ELEMENTS)
        return self._handshake(header, request.mechanism)

    def versions_answered(self, *, is_success: bool) -> None:
        """ApiVersions may be asked again until it was understood."""
        assert self.state is LoginState.VERSIONS_OR_HANDSHAKE
        if is_success:
            self.state = LoginState.HANDSHAKE

    def _handshake(self, header: RequestHeader, mechanism: str) -> Reply:
        mechanisms = self.settings.mechanisms
        if mechanism not in mechanisms:
            refusal = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=mechanisms)
            return self._fail(f"Unsupported SASL mechanism {mechanism}", _encode(header, refusal))
        answer = _encode(header, SaslHandshakeResponse(mechanisms=mechanisms))
        self._has_headers = header.api_version >= 1
        if self.mechanism not in ("", mechanism):
            self._bad_mechanism = (
                f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication of mechanism "
                f"'{self.mechanism}'"
            )
            self.state = LoginState.OTHER_MECHANISM
        else:
            self._server = self.settings.servers[mechanism]()
            self.mechanism = mechanism
            self.state = LoginState.TOKENS
        return Reply(answer)

    def _raw_token(self, frame: memoryview, now_ms: int, wall_ms: int) -> Reply:
        """Take a token without a header. Raises ProtocolError."""
        try:
            challenge = self._evaluate(bytes(frame), wall_ms)
        except ToldSaslError as error:
            return self._fail(str(error))
        except SaslError as error:
            raise ProtocolError(f"{self._action} failed: {error}") from error
        self._maybe_complete(now_ms, wall_ms)
        answer = Writer()
        answer += challenge
        return Reply(answer)

    def _authenticate(self, frame: memoryview, now_ms: int, wall_ms: int) -> Reply:
        header, position = read_request_header(frame)
        if header.api_key != SASL_AUTHENTICATE:
            reason = f"Unexpected Kafka request of type {_name(header)} during SASL authentication."
            return self._fail(reason, _illegal_state(header, reason))
        _check_version(header)
        request, _ = SaslAuthenticateRequest.read(frame, position, header.api_version, FEW_ELEMENTS)
        try:
            challenge = self._evaluate(bytes(request.auth_bytes), wall_ms)
        except SaslError as error:
            told = str(error) if isinstance(error, ToldSaslError) else self._invalid_credentials
            refusal = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=told)
            return self._fail(f"{told} ({error})" if told != str(error) else told, _encode(header, refusal))
        lifetime_ms = self._maybe_complete(now_ms, wall_ms)
        response = SaslAuthenticateResponse(auth_bytes=challenge, session_lifetime_ms=lifetime_ms)
        return Reply(_encode(header, response))

    def _evaluate(self, token: bytes, wall_ms: int) -> bytes:
        """Raises SaslError."""
        server = self._server
        assert server is not None
        challenge = server.evaluate(token, wall_ms)
        if server.is_complete and self.user not in ("", server.authorization_id):
            raise ToldSaslError(
                f"Cannot change principals during re-authentication from User.{self.user}: "
                f"User.{server.authorization_id}"
            )
        return challenge

    def _maybe_complete(self, now_ms: int, wall_ms: int) -> int:
        """Be complete if the mechanism is; return how long the session lasts, 0 for ever."""
        server = self._server
        assert server is not None
        if not server.is_complete:
            return 0
        self.user = server.authorization_id
        self.is_by_token = server.is_by_token
        self._server = None
        self.state = LoginState.COMPLETE
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

    def _fail(self, reason: str, answer: Writer | None = None) -> Reply:
        self._server = None
        self.state = LoginState.FAILED
        return Reply(answer, reason)

    @property
    def _action(self) -> str:
        return "re-authentication" if self.user else "authentication"

    @property
    def _invalid_credentials(self) -> str:
        return (
            f"Authentication failed during {self._action} due to invalid credentials with SASL mechanism "
            f"{self.mechanism}"
        )


def _check_version(header: RequestHeader) -> None:
    api = APIS[header.api_key]
    if not api.min_version <= header.api_version <= api.max_version:
        raise ProtocolError(f"version {header.api_version} of {_name(header)} is not served here")


def _name(header: RequestHeader) -> str:
    """Return an API as Kafka's enum names it: SASL_HANDSHAKE."""
    name = APIS[header.api_key].name
    return "".join(f"_{each}" if each.isupper() and at else each for at, each in enumerate(name)).upper()


def _encode(header: RequestHeader, response: Any) -> Writer:
    out = Writer()
    write_response_header(out, header.api_key, header.api_version, header.correlation_id)
    response.write(out, header.api_version)
    return out


def _illegal_state(header: RequestHeader, reason: str) -> Writer | None:
    """Return the answer to a request that may not come now; None where it has no place for an error of the whole.

    Deviation: Apache Kafka then puts the error of each topic or the like into the answer.
    """
    api = APIS[header.api_key]
    response: Any = response_type(header.api_key)()
    if not hasattr(response, "error_code") or not api.min_version <= header.api_version <= api.max_version:
        return None
    without_error = _encode(header, response)
    response.error_code = int(ErrorCode.ILLEGAL_SASL_STATE)
    if hasattr(response, "error_message"):
        response.error_message = reason
    answer = _encode(header, response)
    return answer if answer != without_error else None
