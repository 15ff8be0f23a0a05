"""The client's side of a SASL login with SaslHandshake v1 and SaslAuthenticate requests. KIP-152."""

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from kafkapy.errors import KafkapyError, ProtocolError
from kafkapy.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from kafkapy.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from kafkapy.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from kafkapy.protocol.messages.sasl_handshake_response import SaslHandshakeResponse
from kafkapy.protocol.primitives import Message

HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 2


class LoginError(ProtocolError):
    """The peer refused the login, or did not prove its identity. The message contains no secret."""


class Mechanism(Protocol):
    """The client's side of a mechanism (security.sasl.SaslClient)."""

    @property
    def mechanism(self) -> str: ...

    @property
    def is_complete(self) -> bool: ...

    def evaluate(self, challenge: bytes) -> bytes:
        """Return the token that answers a challenge (b"" at the start). Raises KafkapyError."""
        ...


NewLogin: TypeAlias = Callable[[], Mechanism]
"""Returns the mechanism of a new login. Raises KafkapyError if the configuration has no credentials."""


class ClientLogin:
    """One login on a connection."""

    def __init__(self, new_login: NewLogin) -> None:
        """Create the mechanism. Raises LoginError."""
        try:
            self._mechanism = new_login()
        except KafkapyError as error:
            raise LoginError(f"no login is possible: {error}") from error
        self.session_lifetime_ms = 0
        """The session lifetime once complete; 0 means unlimited."""

    def handshake(self) -> Message:
        return SaslHandshakeRequest(mechanism=self._mechanism.mechanism)

    def next_request(self, response: Message) -> Message | None:
        """Return the request to send after a response, None once the login is complete. Raises LoginError."""
        if isinstance(response, SaslHandshakeResponse):
            if response.error_code:
                enabled = ", ".join(response.mechanisms) or "none"
                raise LoginError(f"{self._mechanism.mechanism} is not enabled there, but {enabled}")
            return self._authenticate(b"")
        assert isinstance(response, SaslAuthenticateResponse)
        if response.error_code:
            raise LoginError(response.error_message or f"refused with error {response.error_code}")
        self.session_lifetime_ms = response.session_lifetime_ms
        return self._authenticate(bytes(response.auth_bytes))

    def _authenticate(self, challenge: bytes) -> Message | None:
        try:
            token = self._mechanism.evaluate(challenge)
        except KafkapyError as error:
            raise LoginError(str(error)) from error
        return None if self._mechanism.is_complete else SaslAuthenticateRequest(auth_bytes=token)
