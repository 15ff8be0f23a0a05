"""Acceptors: take connections from listeners, within max.connections and its kin, and deal them to processors in turn.

At max.connections (broker-wide or the listener's own) an acceptor stops accepting until a connection closes: peers
wait in the backlog, as with Kafka. Beyond max.connections.per.ip a connection is closed at once.
"""

import asyncio
import errno
import logging
from collections import Counter
from collections.abc import Callable, Mapping

from kafkapy.protocol.connection import ConnectionInfo
from kafkapy.reactor.limits import ACCEPT_PAUSE_MS, ACCEPTS_PER_TURN, UNLIMITED, ReactorLimits
from kafkapy.seams import Channel, Listener

logger = logging.getLogger(__name__)

_OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class ConnectionQuotas:
    """Counts the open connections of the broker: in all, by listener, by address."""

    def __init__(self, limits: ReactorLimits) -> None:
        self.update(limits)
        self._by_listener: Counter[str] = Counter()
        self._by_ip: Counter[str] = Counter()
        self.count = 0

    def update(self, limits: ReactorLimits) -> None:
        """Take other bounds; connections that are open stay."""
        self._max_connections = limits.max_connections
        self._max_per_listener: Mapping[str, int] = limits.listener_max_connections
        self._max_per_ip = limits.max_connections_per_ip
        self._overrides: Mapping[str, int] = limits.max_connections_per_ip_overrides

    def has_room(self, listener_name: str) -> bool:
        if self.count >= self._max_connections:
            return False
        return self._by_listener[listener_name] < self._max_per_listener.get(listener_name, UNLIMITED)

    def may_connect(self, ip: str) -> bool:
        return self._by_ip[ip] < self._overrides.get(ip, self._max_per_ip)

    def add(self, listener_name: str, ip: str) -> None:
        self.count += 1
        self._by_listener[listener_name] += 1
        self._by_ip[ip] += 1

    def remove(self, listener_name: str, ip: str) -> None:
        self.count -= 1
        self._by_listener[listener_name] -= 1
        self._by_ip[ip] -= 1
        if not self._by_ip[ip]:
            del self._by_ip[ip]


class Acceptor:
    """Accepts for one named listener; `deal(channel, listener_name, security_protocol)` finds it a processor."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        listener: Listener,
        listener_name: str,
        security_protocol: str,
        quotas: ConnectionQuotas,
        deal: Callable[[Channel, str, str], None],
    ) -> None:
        self.listener = listener
        self.listener_name = listener_name
        self._loop = loop
        self._security_protocol = security_protocol
        self._quotas = quotas
        self._deal = deal
        self._is_accepting = False
        self._is_closed = False
        self._pause: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Accept from now on, as long as there is room."""
        self._pause = None
        if not self._is_accepting and not self._is_closed and self._quotas.has_room(self.listener_name):
            self._is_accepting = True
            self.listener.on_acceptable(self._on_acceptable)

    def room_freed(self) -> None:
        """A connection has closed."""
        if not self._is_accepting and self._pause is None:
            self.start()

    def close(self) -> None:
        """Stop listening; what was accepted stays."""
        self._is_closed = True
        if self._pause is not None:
            self._pause.cancel()
        self.listener.close()

    def _on_acceptable(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if not self._quotas.has_room(self.listener_name):
                self._stop()
                return
            try:
                channel = self.listener.accept()
            except OSError as error:
                if self._is_exhausted(error):
                    return
                continue
            if channel is None:
                return
            self._admit(channel)

    def _admit(self, channel: Channel) -> None:
        host = channel.peer[0]
        if not self._quotas.may_connect(host):
            logger.info("Rejected a connection from %s: max.connections.per.ip is reached", host)
            channel.close()
            return
        try:
            self._quotas.add(self.listener_name, host)
            self._deal(channel, self.listener_name, self._security_protocol)
        except Exception:
            logger.exception("Could not take a connection from %s", host)
            self._quotas.remove(self.listener_name, host)
            channel.close()

    def _is_exhausted(self, error: OSError) -> bool:
        """Rest for a while where the process is out of descriptors or memory; a peer that gave up is nothing."""
        if error.errno not in _OUT_OF_RESOURCES:
            logger.debug("A connection to %s was lost before it was accepted: %s", self.listener_name, error)
            return False
        logger.error("Cannot accept on %s, trying again in %d ms: %s", self.listener_name, ACCEPT_PAUSE_MS, error)
        self._stop()
        self._pause = self._loop.call_later(ACCEPT_PAUSE_MS / 1000, self.start)
        return True

    def _stop(self) -> None:
        self._is_accepting = False
        self.listener.on_acceptable(None)


def new_connection_info(
    channel: Channel, listener_name: str, security_protocol: str, processor_index: int, connection_index: int
) -> ConnectionInfo:
    local_host, local_port = channel.local
    peer_host, peer_port = channel.peer
    return ConnectionInfo(
        connection_id=f"{local_host}:{local_port}-{peer_host}:{peer_port}-{processor_index}-{connection_index}",
        listener_name=listener_name,
        security_protocol=security_protocol,
        peer_host=peer_host,
        peer_port=peer_port,
        is_authenticated=not security_protocol.startswith("SASL_"),
    )
