"""The interface of SASL mechanisms: one state machine for each side of a login.

The client starts. A machine takes the other side's token and returns its own, until `is_complete`. It reads no clock
and uses no randomness: nonces are arguments. After raising an error, a machine must not be used again.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, Protocol

from kafkapy.errors import KafkapyError

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"


class SaslError(KafkapyError):
    """The login failed. The message is for the log; the client is sent only a generic error with the mechanism."""


class VisibleSaslError(SaslError):
    """The login failed, and the message is sent to the client (Kafka's SaslAuthenticationException)."""


class WorkNeeded(Exception):
    """`evaluate` needs the outcome of `work`, which may take a millisecond and raises nothing.

    The driver runs it, on any thread, then calls `evaluate` again with the same arguments; nothing else meanwhile.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__()
        self.work = work


class SaslServer(Protocol):
    """The server's side of one login."""

    @property
    def mechanism(self) -> str: ...

    @property
    def is_complete(self) -> bool: ...

    @property
    def authorization_id(self) -> str:
        """The name of the authenticated principal. Only once complete."""
        ...

    @property
    def expires_at_ms(self) -> int | None:
        """The time at which the credentials expire (wall clock); None: never."""
        ...

    @property
    def is_by_token(self) -> bool:
        """Whether the client used a delegation token (KIP-48). Only once complete."""
        ...

    @property
    def is_refused(self) -> bool:
        """Whether the last challenge refused the client's token, so that it is to be delayed as a failure is."""
        ...

    def evaluate(self, response: bytes, now_ms: int) -> bytes:
        """Process the client's token, return the challenge. `now_ms`: the wall clock. Raises SaslError, WorkNeeded."""
        ...


class SaslClient(Protocol):
    """The client's side of one login."""

    @property
    def mechanism(self) -> str: ...

    @property
    def is_complete(self) -> bool:
        """Whether the server has proved its identity, if the mechanism requires it, and no token is left to send."""
        ...

    def evaluate(self, challenge: bytes) -> bytes:
        """Process the server's token (empty at the start), return the token to send. Raises SaslError."""
        ...


@lru_cache(64)
def in_java_order(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return a few names in the iteration order of Java's HashSet, in which Kafka lists its enabled mechanisms."""

    def bucket(name: str) -> int:
        code = 0
        for letter in name:
            code = 31 * code + ord(letter) & 0xFFFFFFFF
        return (code ^ code >> 16) & 15

    return tuple(sorted(dict.fromkeys(names), key=bucket))
