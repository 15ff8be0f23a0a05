"""The reactor-wide memory bound on responses that were made and not sent, as their peers do not read.

Each connection starts no request while `max_output_bytes` wait in it, but one response may have many MiB, and several
requests may have been started. So beyond MAX_UNSENT_BYTES of all connections, those are closed that have had something
to read for longest. A peer that reads has nothing to read after some milliseconds; one that reads slowly, byte by byte,
counts as one that does not.

Regions of files take no memory and are not counted. Deviation: Apache Kafka has no such bound.
"""

import logging
from typing import TYPE_CHECKING, Final

from kafkapy.seams import FileRegion, ReadableBuffer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from kafkapy.reactor.link import Link

MAX_UNSENT_BYTES: Final = 48 << 20

logger = logging.getLogger(__name__)


class UnsentResponses:
    """Counts the bytes of each connection whose peer has not read all of its responses yet."""

    def __init__(self, loop: "asyncio.AbstractEventLoop", max_bytes: int = MAX_UNSENT_BYTES) -> None:
        self._loop = loop
        self.max_bytes = max_bytes
        self.bytes = 0
        self._links: dict[Link, None] = {}
        """In the order in which their peers stopped to read everything."""
        self._is_closing = False

    def update(self, link: "Link", output: "Iterable[ReadableBuffer | FileRegion]") -> None:
        """Count what is left in a connection after sending, perhaps nothing."""
        unsent_bytes = sum(len(item) for item in output if not isinstance(item, FileRegion))
        self.bytes += unsent_bytes - link.unsent_bytes
        link.unsent_bytes = unsent_bytes
        if not unsent_bytes:
            self._links.pop(link, None)
            return
        self._links.setdefault(link)
        if self.bytes > self.max_bytes and not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self._close_oldest)  # not amid the work on a connection

    def _close_oldest(self) -> None:
        self._is_closing = False
        while self.bytes > self.max_bytes:
            link = next(iter(self._links))
            logger.warning(
                "Closing connection %s: %d bytes of its responses are not read, and %d of all connections'",
                link.info.connection_id,
                link.unsent_bytes,
                self.bytes,
            )
            link.close()
