"""Memory bounds over all connections for what one peer could make grow: beyond a bound the oldest entries are closed.

    UnsentResponses    32 MiB    responses that were made and not sent, as their peers do not read
    logins             16 MiB    what connections have sent that have not logged in yet (Reactor.logins)
    handshakes         16 MiB    what peers have sent of TLS handshakes (tls_handshake.py)

An entry's age is the time since it has bytes. A client that behaves has none after some milliseconds, so whoever keeps
others from having room is the older one; a byte now and then makes nobody younger. Nobody waits.

Deviation: Apache Kafka has none of these bounds. Here there are, because some peers without any right could fill the
memory.
"""

import logging
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from kafkapy.seams import FileRegion, ReadableBuffer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

MAX_UNSENT_BYTES: Final = 32 << 20
MAX_LOGIN_BYTES: Final = 16 << 20
MAX_HANDSHAKE_BYTES: Final = 16 << 20

logger = logging.getLogger(__name__)


class Closable(Protocol):
    def __hash__(self) -> int: ...

    def close(self) -> None:
        """Close the connection; it is then counted with 0 bytes, or removed."""


E = TypeVar("E", bound=Closable)


class ByteAccount(Generic[E]):
    """Bytes by entry, in order of age."""

    def __init__(self, loop: "asyncio.AbstractEventLoop", max_bytes: int, what: str) -> None:
        """what: what the bytes are, for the log line."""
        self._loop = loop
        self._what = what
        self.max_bytes = max_bytes
        self.bytes = 0
        self._by_entry: dict[E, int] = {}
        self._is_closing = False

    def count(self, entry: E, byte_count: int) -> None:
        """Set the bytes of an entry; 0 removes it."""
        self.bytes += byte_count - self._by_entry.get(entry, 0)
        if not byte_count:
            self._by_entry.pop(entry, None)
            return
        self._by_entry[entry] = byte_count
        if self.bytes > self.max_bytes and not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self._close_oldest)  # not amid the work on a connection

    def _close_oldest(self) -> None:
        self._is_closing = False
        closed = 0
        while self.bytes > self.max_bytes:
            entry = next(iter(self._by_entry))
            entry.close()
            self.count(entry, 0)
            closed += 1
        if closed:
            logger.warning(
                "Closed %d connections: there were more than %d bytes of %s", closed, self.max_bytes, self._what
            )


class Sending(Closable, Protocol):
    """A connection (link.py)."""

    unsent_bytes: int


class UnsentResponses(ByteAccount[Sending]):
    """The responses of each connection whose peer has not read all of them yet.

    Each connection starts no request while `max_output_bytes` wait in it, but one response may have many MiB, and
    several requests may have been started. Regions of files take no memory and are not counted.

    Names are repeated whole, even those that no topic or group can have, as Apache Kafka does: a client looks for its
    own name in the response. A response has a name once, and once more in its error message.
    """

    def __init__(self, loop: "asyncio.AbstractEventLoop") -> None:
        super().__init__(loop, MAX_UNSENT_BYTES, "responses that peers do not read")

    def update(self, link: Sending, output: "Iterable[ReadableBuffer | FileRegion]") -> None:
        """Count what is left in a connection after sending, perhaps nothing."""
        link.unsent_bytes = sum(len(item) for item in output if not isinstance(item, FileRegion))
        self.count(link, link.unsent_bytes)
