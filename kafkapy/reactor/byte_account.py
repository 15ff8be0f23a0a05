"""Bounds the memory that peers can make grow, over all connections: above a bound the oldest entries are closed.

    UnsentResponses    24 MiB    responses that were made and not sent, as their peers do not read
    logins             16 MiB    what connections have sent that have not logged in yet (Reactor.logins)
    handshakes         16 MiB    what peers have sent of TLS handshakes (tls_handshake.py)

An entry's age is the time since it last had no bytes. The entry of a well-behaved client is empty again after some
milliseconds, so the oldest entries are those of peers that do not read or do not continue. A byte now and then makes no
entry younger; READ_BYTES of unsent responses do, once they are read. No connection waits for room.

Deviation: Apache Kafka has none of these bounds. Here they exist, because a few peers without any right could fill the
memory.
"""

import logging
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from kafkapy.seams import FileRegion, ReadableBuffer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

MAX_UNSENT_BYTES: Final = 24 << 20
READ_BYTES: Final = 128 << 10
"""A peer that has read so many bytes reads: on a slow line within some seconds, byte by byte never."""
READ_SECONDS: Final = 10.0
"""A response may exceed the bound while its peer reads READ_BYTES in each period of this length."""
MAX_LOGIN_BYTES: Final = 16 << 20
MAX_HANDSHAKE_BYTES: Final = 16 << 20
"""Bytes over all connections: a well-behaved client has a few KB of them, for some milliseconds."""

logger = logging.getLogger(__name__)


class Closable(Protocol):
    def __hash__(self) -> int: ...

    def close(self) -> None:
        """Close the connection; it is then counted with 0 bytes, or removed."""


E = TypeVar("E", bound=Closable)


class ByteAccount(Generic[E]):
    """Bytes by entry, in order of age."""

    def __init__(self, loop: "asyncio.AbstractEventLoop", max_bytes: int, what: str) -> None:
        """what: the name of the bytes in the log line."""
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
            self._loop.call_soon(self._close_oldest)  # not during the work on a connection

    def _close_oldest(self) -> None:
        self._is_closing = False
        closed = 0
        while (entry := self._next_to_close()) is not None:
            entry.close()
            self.count(entry, 0)
            closed += 1
        if closed:
            logger.warning(
                "Closed %d connections: there were more than %d bytes of %s", closed, self.max_bytes, self._what
            )

    def _next_to_close(self) -> "E | None":
        """Return the oldest entry while the bound is exceeded."""
        return next(iter(self._by_entry)) if self.bytes > self.max_bytes else None


class Sending(Closable, Protocol):
    """A connection (link.py)."""

    unsent_bytes: int


class UnsentResponses(ByteAccount[Sending]):
    """The responses of each connection whose peer has not read all of them yet.

    Each connection starts no request while `max_output_bytes` wait in it, but one response may have many MiB, and
    several requests may have been started. Regions of files take no memory and are not counted. Responses that wait for
    an earlier one of their connection are: the peer decides for how long its JoinGroup is parked.

    * An entry is as old as the last READ_BYTES that its peer has read.
    * The largest entry is beyond the bound while its peer reads: else nobody could receive a response larger than the
      bound (the configs of 10,000 topics), however fast. So the bound is exceeded by one connection at most, as that of
      the requests is by one frame. Of two above the bound, it is the first.
    * Entries with less than half of the average are not closed: they would give little room, and one large response
      would close the connections of all slow readers.

    Responses are begun whatever is unsent, large ones too: requests that waited for that would take everyone's request
    memory (measured: another client's request waited for 31 s). A large response is counted once it is made; then the
    connection that has not read for longest is closed. Configs that many resources of a response share are in memory
    once (handlers/configs/shared_rows.py), and are counted as often as they are sent.

    Names are repeated whole, even those that no topic or group can have, as Apache Kafka does: a client looks for its
    own name in the response. A response has a name once, and once more in its error message, however many partitions
    the message is about (errors.repeated).
    """

    def __init__(self, loop: "asyncio.AbstractEventLoop") -> None:
        super().__init__(loop, MAX_UNSENT_BYTES, "responses that peers do not read")
        self._reads: dict[Sending, tuple[int, float]] = {}
        """For each entry: the bytes read since it was last made the youngest, and when that was."""
        self._largest: Sending | None = None
        """The entry that may exceed the bound, while its peer reads."""
        self._next_check: asyncio.TimerHandle | None = None

    def update(
        self, link: Sending, output: "Iterable[ReadableBuffer | FileRegion]", sent_bytes: int, ready_bytes: int
    ) -> None:
        """Count the unsent bytes of a connection after sending; there may be none.

        ready_bytes: of the responses that wait for earlier ones.
        """
        link.unsent_bytes = ready_bytes + sum(len(item) for item in output if not isinstance(item, FileRegion))
        self.count(link, link.unsent_bytes)
        if link.unsent_bytes:
            self._record_read(link, sent_bytes)
        else:
            self._reads.pop(link, None)

    def _record_read(self, link: Sending, sent_bytes: int) -> None:
        """Make the entry the youngest if its peer has read READ_BYTES."""
        read_bytes, since = self._reads.get(link, (0, self._loop.time()))
        read_bytes += sent_bytes
        if read_bytes >= READ_BYTES:
            read_bytes, since = 0, self._loop.time()
            self._by_entry[link] = self._by_entry.pop(link)
        self._reads[link] = read_bytes, since

    def _next_to_close(self) -> Sending | None:
        if self.bytes <= self.max_bytes:
            return None
        spared_bytes = self._spared_bytes()
        if self.bytes - spared_bytes > self.max_bytes and spared_bytes <= self.max_bytes:
            self._largest = max(self._by_entry, key=self._by_entry.__getitem__)
            spared_bytes = self._spared_bytes()
        counted_bytes = self.bytes - spared_bytes
        if counted_bytes > self.max_bytes:
            spared = self._largest if spared_bytes else None
            counted = len(self._by_entry) - (spared is not None)
            least_bytes = counted_bytes // (2 * counted)
            entries = self._by_entry.items()
            return next(link for link, size in entries if size >= least_bytes and link is not spared)
        if self._next_check is None:
            self._next_check = self._loop.call_later(READ_SECONDS, self._check_largest)
        return None

    def _spared_bytes(self) -> int:
        """Return the size of the entry that may exceed the bound, 0 if its peer does not read."""
        link = self._largest
        if link is None or link not in self._reads or self._loop.time() - self._reads[link][1] >= READ_SECONDS:
            return 0
        return self._by_entry[link]

    def _check_largest(self) -> None:
        self._next_check = None
        self._close_oldest()
