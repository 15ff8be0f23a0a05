"""SASL/OAUTHBEARER: login with a bearer token. RFC 7628, KIP-255, KIP-768.

The client's message: n,a=alice, 0x01 auth=Bearer <token> 0x01 [key=value 0x01 ...] 0x01. The server answers a refused
token with a JSON challenge; the client replies with 0x01, and then the login fails. Deviation: Apache Kafka compares
the authorization id as sent with the token's name. Here =2C and =3D are decoded before, because RFC 5801 says so.
Deviation: Apache Kafka takes tokens of up to sasl.server.max.receive.size. Here one of more than MAX_TOKEN_BYTES is
refused, because each costs what its length does before anybody has logged in.
"""

import re
from collections.abc import Callable
from typing import Final

from kafkapy.named_tuple import NamedTuple
from kafkapy.security.sasl import OAUTHBEARER, SaslError, VisibleSaslError, WorkNeeded

MAX_TOKEN_BYTES: Final = 16 * 1024
"""Longer tokens are refused before they are parsed. Those of the usual issuers have 1 to 4 KiB."""
MAX_MESSAGE_BYTES: Final = MAX_TOKEN_BYTES + 8 * 1024
"""Bound of the client's first message: the token, the authorization id and the extensions."""

INVALID_TOKEN: Final = '{"status":"invalid_token"}'
_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PAIR = r"[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01"
_CLIENT_FIRST = rf"n,(?:a=(?P<authorization_id>{_NAME}))?,\x01(?P<pairs>(?:{_PAIR})*)\x01"
_AUTH = r"(?P<scheme>\w+)[ ]+(?P<token>[-_~+/.a-zA-Z0-9]+=*)"


class JwtError(Exception):
    """A token is not accepted. The message is for the log and contains no secret part of the token."""


class Bearer(NamedTuple):
    """The owner of a valid token, and its expiry (wall clock)."""

    name: str
    expires_at_ms: int


Validate = Callable[[str, int], Callable[[], Bearer]]
"""Takes a token and the wall clock in ms; returns what validates it, which is slow and may run on any thread.

Both raise JwtError. The first call is the event loop's: it looks at the token's length and header, and looks up keys.
"""


_TRIMMED: Final = "".join(map(chr, range(0x21)))


def trimmed(text: str) -> str:
    """Return a text as Java's String.trim does: without control characters and spaces at both ends.

    Unlike str.strip it keeps other white space, such as U+00A0, so that no two names of Apache Kafka become one.
    """
    return text.strip(_TRIMMED)


class OAuthBearerServer:
    """sasl.SaslServer for OAUTHBEARER."""

    mechanism = OAUTHBEARER

    def __init__(self, validate: Validate, on_refused: Callable[[str], None]) -> None:
        """`on_refused` is called with the reason for refusing a token, which is not sent to the client."""
        self._validate = validate
        self._on_refused = on_refused
        self._validation: _Validation | None = None
        self.is_refused = False
        self.is_complete = False
        self.authorization_id = ""
        self.expires_at_ms: int | None = None
        self.is_by_token = False

    def evaluate(self, response: bytes, now_ms: int) -> bytes:
        if self.is_refused and response == b"\x01":
            raise VisibleSaslError(INVALID_TOKEN)
        self.is_refused = False
        validation, self._validation = self._validation, None
        try:
            if validation is None:
                self._validation = self._begin(response, now_ms)
                raise WorkNeeded(self._validation.run)
            bearer = validation.outcome()
        except JwtError as error:
            self._on_refused(str(error))
            self.is_refused = True
            return INVALID_TOKEN.encode()
        return self._finish(validation.authorization_id, bearer)

    def _begin(self, response: bytes, now_ms: int) -> "_Validation":
        """Begin to validate the token in the client's first message. Raises SaslError, JwtError."""
        if len(response) > MAX_MESSAGE_BYTES:
            raise SaslError("The OAUTHBEARER client first message is too long")
        authorization_id, token = _parse(response.decode("utf-8", "replace"))
        if len(token) > MAX_TOKEN_BYTES:
            raise JwtError(f"Could not validate the access token: it is longer than {MAX_TOKEN_BYTES} bytes")
        return _Validation(authorization_id, self._validate(token, now_ms))

    def _finish(self, authorization_id: str, bearer: Bearer) -> bytes:
        if authorization_id not in ("", bearer.name):
            raise VisibleSaslError(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different "
                f"from the token's principal name ({bearer.name})"
            )
        self.authorization_id, self.expires_at_ms = bearer
        self.is_complete = True
        return b""


class _Validation:
    """The validation of one token, run by the driver on any thread, and its outcome."""

    def __init__(self, authorization_id: str, validate: Callable[[], Bearer]) -> None:
        self.authorization_id = authorization_id
        self._validate = validate
        self._outcome: Bearer | JwtError | None = None

    def run(self) -> None:
        try:
            self._outcome = self._validate()
        except JwtError as error:
            self._outcome = error

    def outcome(self) -> Bearer:
        """Return the owner of the token. Raises JwtError."""
        outcome = self._outcome
        assert outcome is not None, "evaluated again before the work was done"
        if isinstance(outcome, JwtError):
            raise outcome
        return outcome


class OAuthBearerClient:
    """sasl.SaslClient for OAUTHBEARER."""

    mechanism = OAUTHBEARER

    def __init__(self, token: str) -> None:
        self._token = token
        self._is_begun = False
        self._refusal = ""
        self.is_complete = False

    def evaluate(self, challenge: bytes) -> bytes:
        """Return the next message. A challenge means a refusal: after one more message the server sends its error."""
        if not self._is_begun:
            self._is_begun = True
            return f"n,,\x01auth=Bearer {self._token}\x01\x01".encode()
        if self._refusal:
            raise SaslError(f"the server refused the token: {self._refusal}")
        if challenge:
            self._refusal = challenge.decode("utf-8", "replace")
            return b"\x01"
        self.is_complete = True
        return b""


def _parse(text: str) -> tuple[str, str]:
    """Return the authorization id ("" for none) and the token. Raises SaslError."""
    found = re.fullmatch(_CLIENT_FIRST, text)
    if found is None:
        raise SaslError("Invalid OAUTHBEARER client first message")
    pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
    if "auth" not in pairs:
        raise SaslError("Invalid OAUTHBEARER client first message: 'auth' not specified")
    auth = re.fullmatch(_AUTH, pairs["auth"])
    if auth is None:
        raise SaslError("Invalid OAUTHBEARER client first message: invalid 'auth' format")
    if auth["scheme"].lower() != "bearer":
        raise SaslError(f"Invalid scheme in OAUTHBEARER client first message: {auth['scheme']}")
    authorization_id = found["authorization_id"] or ""
    return authorization_id.replace("=2C", ",").replace("=3D", "="), auth["token"]
