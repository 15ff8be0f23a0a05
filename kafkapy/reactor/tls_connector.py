"""seams.Connector with encrypted channels: connecting includes the TLS handshake."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Final

from kafkapy.errors import ConfigError
from kafkapy.reactor.tls import TlsChannel
from kafkapy.reactor.tls_handshake import Handshakes, reason_of
from kafkapy.seams import Channel, Connector

logger = logging.getLogger(__name__)

LOG_AGAIN_S: Final = 60.0
"""The same failure is logged again only after so long: a node retries once a second."""

OnDone = Callable[[Channel | None, OSError | None], None]


class TlsConnector:
    """Encrypts the channels of `inner`. A handshake is bounded by the caller's own time-out and by timeout_ms."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        inner: Connector,
        context: Callable[[], ssl.SSLContext],
        timeout_ms: int,
    ) -> None:
        """`context` returns the SSL context for a new connection. It may raise ConfigError."""
        self._inner = inner
        self._context = context
        self._handshakes = Handshakes(loop, timeout_ms)
        self._loop = loop
        self._logged: dict[tuple[str, int], tuple[str, float]] = {}
        """The reason of an address's last failed handshake, and when it was logged."""

    def connect(self, host: str, port: int, on_done: OnDone) -> Callable[[], None]:
        cancel: list[Callable[[], None]] = []

        def on_connected(channel: Channel | None, error: OSError | None) -> None:
            if channel is None:
                on_done(None, error)
                return
            try:
                handshake = self._handshakes.connect(channel, self._context(), host, on_shaken)
            except (ConfigError, OSError) as failed:
                channel.close()
                on_shaken(None, str(failed))
                return
            cancel[:] = [handshake.cancel]

        def on_shaken(channel: TlsChannel | None, reason: str) -> None:
            if channel is None:
                self._report(host, port, reason)
                on_done(None, ConnectionError(reason))
                return
            # With TLS 1.3 a client learns only after its handshake that its certificate is refused.
            channel.on_failed = lambda error: self._report(host, port, reason_of(error))
            on_done(channel, None)

        cancel[:] = [self._inner.connect(host, port, on_connected)]
        return lambda: cancel[0]()

    def _report(self, host: str, port: int, reason: str) -> None:
        before, logged_at = self._logged.get((host, port), ("", 0.0))
        now = self._loop.time()
        if before != reason or now - logged_at >= LOG_AGAIN_S:
            self._logged[host, port] = (reason, now)
            logger.warning("Failed authentication with %s:%d (SSL handshake failed): %s", host, port, reason)
