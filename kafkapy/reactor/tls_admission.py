"""The step between a TLS listener's acceptor and its processors: the TLS handshake and the peer's principal."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING

from kafkapy.dataclass import dataclass
from kafkapy.protocol.serving import ConnectionInfo
from kafkapy.seams import Channel
from kafkapy.security.log_text import one_line

if TYPE_CHECKING:
    from kafkapy.reactor.tls import TlsChannel
    from kafkapy.reactor.tls_handshake import Handshake, Handshakes

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ServerTls:
    """The TLS settings of a listener; the context may be replaced while the listener is open."""

    context: ssl.SSLContext
    principal_of: Callable[[bytes | None], str] | None
    """Takes the peer's certificate (DER), or None if it presented none; returns its principal. Raises ValueError.

    The field is None if the principal comes from a later login (SASL_SSL)."""


class TlsEntry:
    """A connection during its handshake: it counts towards the connection limits and may be closed because of them."""

    __slots__ = ("_admission", "_handshake", "info", "last_active")

    def __init__(self, admission: "TlsAdmission", info: ConnectionInfo, now: float) -> None:
        self.info = info
        self.last_active = now
        self._admission = admission
        self._handshake: Handshake | None = None

    def begin(self, handshake: "Handshake") -> None:
        self._handshake = handshake

    def close(self) -> None:
        assert self._handshake is not None
        self._handshake.cancel()
        self._admission.forget(self)


class TlsAdmission:
    """Holds accepted connections until their handshake is done, sets their principal and passes them on."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, timeout_ms: int, *, on_refused: Callable[[ConnectionInfo], None]
    ) -> None:
        """`on_refused` is called for connections that end before they are passed on."""
        self._loop = loop
        self._timeout_ms = timeout_ms
        self._on_refused = on_refused
        self.listeners: dict[str, ServerTls] = {}
        """The TLS listeners, by name."""
        self.entries: set[TlsEntry] = set()

    @cached_property
    def _handshakes(self) -> "Handshakes":
        from kafkapy.reactor.tls_handshake import Handshakes  # not needed before the first connection

        return Handshakes(self._loop, self._timeout_ms)

    def admit(self, channel: Channel, info: ConnectionInfo, adopt: Callable[[Channel, ConnectionInfo], object]) -> None:
        """Start the handshake of a connection; call `adopt` with the encrypted channel when it is done."""
        tls = self.listeners[info.listener_name]
        entry = TlsEntry(self, info, self._loop.time())
        entry.begin(self._handshakes.accept(channel, tls.context, partial(self._on_done, entry, tls, adopt)))
        self.entries.add(entry)

    def forget(self, entry: TlsEntry) -> None:
        """Remove `entry`, whose connection has ended."""
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
        channel: "TlsChannel | None",
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
            from kafkapy.reactor.tls_handshake import FOREIGN_CLIENT

            # A client of another protocol is misconfigured, as one that speaks TLS to a plain port: both are warnings.
            level = logging.WARNING if reason.startswith(FOREIGN_CLIENT) else logging.INFO
            where = (info.peer_host, info.connection_id)
            logger.log(level, "Failed authentication with %s (%s): %s", *where, one_line(reason))
            if info.traffic is not None:
                info.traffic.failed_logins += 1
            self.forget(entry)
            return
        self.entries.discard(entry)
        if entry.info.traffic is not None and tls.principal_of is not None:
            entry.info.traffic.record_login(can_reauthenticate=False)
        try:
            adopt(channel, entry.info)
        except Exception:  # for example no descriptor to import a module
            logger.exception("Failed to set up a connection from %s", entry.info.peer_host)
            channel.close()
            self._on_refused(entry.info)
