"""SASL/PLAIN: user name and password in clear text, in one token. RFC 4616; messages as in Kafka's PlainSaslServer.

The token: authorization id NUL name NUL password, UTF-8. The authorization id must be empty or equal the name
(CVE-2017-12610).
"""

from collections.abc import Mapping
from typing import Final

from kafkapy.security.sasl import PLAIN, SaslError, VisibleSaslError

USER_PREFIX: Final = "user_"
"""Prefix of the JAAS options that define users: user_alice="her password"."""
TOKEN_PARTS: Final = 3


def users_of(options: Mapping[str, str]) -> dict[str, str]:
    """Return name -> password of the users in a login module's options."""
    return {key.removeprefix(USER_PREFIX): value for key, value in options.items() if key.startswith(USER_PREFIX)}


class PlainServer:
    """sasl.SaslServer for PLAIN."""

    mechanism = PLAIN
    expires_at_ms = None
    is_by_token = False
    is_refused = False

    def __init__(self, passwords: Mapping[str, str]) -> None:
        """`passwords`: by user name."""
        self._passwords = passwords
        self.is_complete = False
        self.authorization_id = ""

    def evaluate(self, response: bytes, now_ms: int) -> bytes:
        authorization_id, name, password = _split(response.decode("utf-8", "replace"))
        if not name:
            raise VisibleSaslError("Authentication failed: username not specified")
        if not password:
            raise VisibleSaslError("Authentication failed: password not specified")
        if not _is_password(self._passwords.get(name), password):
            raise VisibleSaslError("Authentication failed: Invalid username or password")
        if authorization_id not in ("", name):
            raise VisibleSaslError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.authorization_id = name
        self.is_complete = True
        return b""


class PlainClient:
    """sasl.SaslClient for PLAIN."""

    mechanism = PLAIN

    def __init__(self, name: str, password: str) -> None:
        self._token = f"\0{name}\0{password}".encode()
        self._is_sent = False
        self.is_complete = False

    def evaluate(self, challenge: bytes) -> bytes:
        if self._is_sent:
            if challenge:
                raise SaslError("the server answered PLAIN with a challenge")
            self.is_complete = True
            return b""
        self._is_sent = True
        return self._token


def _split(text: str) -> list[str]:
    parts = text.split("\0", TOKEN_PARTS)
    if len(parts) != TOKEN_PARTS:
        message = f"Invalid SASL/PLAIN response: expected {TOKEN_PARTS} tokens, got {len(parts)}"
        raise VisibleSaslError(message)
    return parts


def _is_password(expected: str | None, given: str) -> bool:
    """Compare in constant time; an unknown user takes as long as a wrong password."""
    import hmac  # at the first login: with OpenSSL's hashes it takes milliseconds

    is_same = hmac.compare_digest(given.encode(), (expected or "").encode())
    return is_same and expected is not None
