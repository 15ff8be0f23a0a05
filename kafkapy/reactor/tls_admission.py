"""What stands between a TLS listener's acceptor and its processors: the handshake, and the peer's principal."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from functools import partial

from kafkapy.dataclass import dataclass
from kafkapy.protocol.connection import ConnectionInfo
from kafkapy.reactor.tls import TlsChannel
from kafkapy.reactor.tls_handshake import Handshake, Handshakes
from kafkapy.seams import Channel

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ServerTls:
    """What a listener's handshakes are made with; the context may be replaced while the listener is open."""

    context: ssl.SSLContext
    principal_of: Callable[[bytes | None], str] | None
    """Takes the certificate (DER) that a peer has shown, or None; returns its principal. Raises ValueError.

    None if the principal comes from a login that follows (SASL_SSL)."""


class TlsEntry:
    """A connection whose handshake is under way: it counts as a connection and may be closed as one."""

    __slots__ = ("_admission", "_handshake", "info", "last_active")

    def __init__(self, admission: "TlsAdmission", info: ConnectionInfo, now: float) -> None:
        self.info = info
        self.last_active = now
        self._admission = admission
        self._handshake: Handshake | None = None

    def begin(self, handshake: Handshake) -> None:
        self._handshake = handshake

    def close(self) -> None:
        assert self._handshake is not None
        self._handshake.cancel()
        self._admission.forget(self)


class TlsAdmission:
    """Accepted connections, each until its handshake is done: then they have a principal and are adopted."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, timeout_ms: int, *, on_refused: Callable[[ConnectionInfo], None]
    ) -> None:
        """`on_refused` is told of connections that have ended before they were adopted."""
        self._loop = loop
        self._on_refused = on_refused
        self._handshakes = Handshakes(loop, timeout_ms)
        self.listeners: dict[str, ServerTls] = {}
        """The listeners that ask for TLS, by name."""
        self.entries: set[TlsEntry] = set()

    def admit(self, channel: Channel, info: ConnectionInfo, adopt: Callable[[Channel, ConnectionInfo], object]) -> None:
        """Begin the handshake of a connection; `adopt` it when that is done."""
        tls = self.listeners[info.listener_name]
        entry = TlsEntry(self, info, self._loop.time())
        entry.begin(self._handshakes.accept(channel, tls.context, partial(self._on_done, entry, tls, adopt)))
        self.entries.add(entry)

    def forget(self, entry: TlsEntry) -> None:
        """The connection of `entry` has ended."""
        self.entries.discard(entry)
        self._on_refused(entry.info)

    def close(self) -> None:
        for entry in list(self.entries):
            entry.close()

    def _on_done(
        self,
        entry: TlsEntry,
        tls: ServerTls,
        adopt: Callable[[Channel, ConnectionInfo], object],
        channel: TlsChannel | None,
        reason: str,
    ) -> None:
        if channel is not None:
            try:
                if tls.principal_of is not None:
                    entry.info.principal = tls.principal_of(channel.peer_certificate)
            except ValueError as error:
                channel.close()
                channel, reason = None, str(error)
        if channel is None:
            info = entry.info
            logger.info("Failed authentication with %s (%s): %s", info.peer_host, info.connection_id, reason)
            self.forget(entry)
            return
        self.entries.discard(entry)
        adopt(channel, entry.info)
