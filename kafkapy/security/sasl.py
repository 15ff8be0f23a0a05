"""What every SASL mechanism is to the parts that carry its tokens: a machine for each side of a login.

The client speaks first. A machine takes the other side's token and returns its own, until `is_complete`. It reads no
clock and rolls no dice: nonces are arguments. A machine that raised is not used again.
"""

from collections.abc import Iterable
from typing import Final, Protocol

from kafkapy.errors import KafkapyError

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"


class SaslError(KafkapyError):
    """The login failed. The client is told the mechanism and nothing else: the message is for the log."""


class ToldSaslError(SaslError):
    """The login failed, and the client is told the message (Kafka's SaslAuthenticationException)."""


class SaslServer(Protocol):
    """The server's side of one login."""

    @property
    def mechanism(self) -> str: ...

    @property
    def is_complete(self) -> bool: ...

    @property
    def authorization_id(self) -> str:
        """Whose rights the client has: the name of the principal. Only once complete."""
        ...

    @property
    def expires_at_ms(self) -> int | None:
        """When the credentials cease to be valid, by the wall clock; None: never."""
        ...

    @property
    def is_by_token(self) -> bool:
        """Whether the client logs in with a delegation token (KIP-48). Only once complete."""
        ...

    def evaluate(self, response: bytes, now_ms: int) -> bytes:
        """Take the client's token, return the challenge to it. `now_ms`: the wall clock. Raises SaslError."""
        ...


class SaslClient(Protocol):
    """The client's side of one login."""

    @property
    def mechanism(self) -> str: ...

    @property
    def is_complete(self) -> bool:
        """Whether the server has proved what it must, and no token is to be sent any more."""
        ...

    def evaluate(self, challenge: bytes) -> bytes:
        """Take the server's token (empty at the beginning), return what to send. Raises SaslError."""
        ...


def in_java_order(names: Iterable[str]) -> list[str]:
    """Return a few names in the order of Java's HashSet: in it Kafka lists the mechanisms that it has enabled."""

    def bucket(name: str) -> int:
        code = 0
        for letter in name:
            code = 31 * code + ord(letter) & 0xFFFFFFFF
        return (code ^ code >> 16) & 15

    return sorted(dict.fromkeys(names), key=bucket)
