"""Acceptors: accept connections within the connection limits and hand them to the processors.

Clients connect faster than connections can be set up, the kernel's listen queue holds few of them
(socket.listen.backlog.size, 50 unless set), and a client that finds no place in it tries again after a second. So the
queue is emptied first, and again after every few connections that are set up.

At max.connections (of the broker or of the listener) an acceptor stops accepting until a connection closes; peers wait
in the listen queue, as with Kafka. A connection that exceeds max.connection.creation.rate is delayed, and later ones
wait in the listen queue. A connection beyond max.connections.per.ip is closed at once; one beyond its address's
connection_creation_rate is closed after a delay. Deviation: Apache Kafka delays any number of them. Here one is closed
at once if MAX_DELAYED_CLOSES others wait, because each holds a descriptor.
"""

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from kafkapy.protocol.serving import ConnectionInfo
from kafkapy.reactor.connection_quotas import ConnectionQuotas
from kafkapy.reactor.limits import ACCEPT_PAUSE_MS, ACCEPTS_PER_TURN
from kafkapy.seams import Channel, Listener

logger = logging.getLogger(__name__)

MAX_DELAYED_CLOSES: Final = 1_000
SET_UPS_BETWEEN_ACCEPTS: Final = 8
"""To set up so many connections takes about half a millisecond, in which some ten clients connect."""

_OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Acceptor:
    """Accepts for one listener; `deal(channel, listener_name, security_protocol)` hands a channel to a processor.

    `on_accepted(now)` is called for each connection that is accepted.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        listener: Listener,
        listener_name: str,
        security_protocol: str,
        quotas: ConnectionQuotas,
        deal: Callable[[Channel, str, str], None],
        on_accepted: Callable[[float], None],
    ) -> None:
        self.listener = listener
        self.listener_name = listener_name
        self._loop = loop
        self._security_protocol = security_protocol
        self._quotas = quotas
        self._deal = deal
        self._on_accepted = on_accepted
        self._has_accepted = False
        """Whether a connection was accepted since the last look between turns."""
        self._accepted: deque[Channel] = deque()
        """Connections that are accepted and counted, but not set up yet."""
        self._will_set_up = False
        self._is_accepting = False
        self._is_closed = False
        self._blocked_s = 0.0
        self._blocked_since_s: float | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._throttled: Channel | None = None
        """An accepted connection that exceeded the creation rate: admitted first after the pause."""
        self._to_close: dict[Channel, asyncio.TimerHandle] = {}
        """Connections that exceeded their address's rate, with the timer that closes each."""
        quotas.add_listener(listener_name)

    @property
    def blocked_ns(self) -> int:
        """How long no connection was accepted because of the limits, or of a lack of descriptors, in nanoseconds."""
        since_s = self._blocked_since_s
        return round((self._blocked_s + (self._loop.time() - since_s if since_s is not None else 0.0)) * 1e9)

    def start(self) -> None:
        """Start to accept, as long as the connection limits allow."""
        self._pause = None
        if self._is_accepting or self._is_closed or not self._quotas.has_room(self.listener_name):
            return
        if self._throttled is not None:
            channel, self._throttled = self._throttled, None
            self._admit(channel)
            self._set_up_soon()
            if not self._quotas.has_room(self.listener_name):
                return
        self._is_accepting = True
        if self._blocked_since_s is not None:
            self._blocked_s += self._loop.time() - self._blocked_since_s
            self._blocked_since_s = None
        self.listener.on_acceptable(self._on_acceptable)

    def room_freed(self) -> None:
        """A connection has closed: resume accepting if possible."""
        if not self._is_accepting and self._pause is None:
            self.start()

    def accept_between_turns(self) -> bool:
        """Accept during a pass of the loop if connections are being opened; return whether they still are."""
        if not self._has_accepted or not self._is_accepting:
            return False
        self._has_accepted = False
        self._accept_waiting()
        self._set_up_soon()
        return self._has_accepted

    def close(self) -> None:
        """Stop listening; admitted connections stay open."""
        self._is_closed = True
        if self._pause is not None:
            self._pause.cancel()
        if self._throttled is not None:
            self._throttled.close()
        for channel in list(self._to_close):
            self._close_delayed(channel)
        for channel in self._accepted:
            self._refuse(channel)
        self._accepted.clear()
        self.listener.close()

    def _on_acceptable(self) -> None:
        self._accept_waiting()
        self._set_up_accepted()

    def _set_up_soon(self) -> None:
        """Set up the accepted connections in the next pass of the loop."""
        if self._accepted and not self._will_set_up:
            self._will_set_up = True
            self._loop.call_soon(self._set_up_accepted)

    def _set_up_accepted(self) -> None:
        """Set up to ACCEPTS_PER_TURN connections up, and accept others meanwhile."""
        self._will_set_up = False
        accepted = self._accepted
        for count in range(1, ACCEPTS_PER_TURN + 1):
            if not accepted:
                return
            self._set_up(accepted.popleft())
            if count % SET_UPS_BETWEEN_ACCEPTS == 0 and self._is_accepting:
                self._accept_waiting()
        self._set_up_soon()

    def _accept_waiting(self) -> None:
        """Accept the connections that wait in the listen queue, at most ACCEPTS_PER_TURN."""
        for _ in range(ACCEPTS_PER_TURN):
            # Asked before accept(): without room, clients wait in the listen queue, which takes no descriptor.
            if not self._quotas.has_room(self.listener_name):
                self._stop()
                return
            try:
                channel = self.listener.accept()
            except OSError as error:
                if self._is_exhausted(error):
                    return
                continue  # this peer has gone already; others may wait
            if channel is None:
                return
            now = self._loop.time()
            self._has_accepted = True
            self._on_accepted(now)
            now_ms = round(now * 1000)
            close_ms = self._quotas.record_from(channel.peer[0], now_ms)
            if close_ms > 0:
                self._close_later(channel, close_ms)
                continue
            throttle_ms = self._quotas.record_creation(self.listener_name, now_ms)
            if throttle_ms > 0:
                self._throttled = channel
                self._rest(throttle_ms)
                return
            self._admit(channel)

    def _close_later(self, channel: Channel, delay_ms: int) -> None:
        """Close a connection that exceeded its address's rate after `delay_ms`; it is never served."""
        if len(self._to_close) >= MAX_DELAYED_CLOSES:
            channel.close()
            return
        self._to_close[channel] = self._loop.call_later(delay_ms / 1000, self._close_delayed, channel)

    def _close_delayed(self, channel: Channel) -> None:
        self._to_close.pop(channel).cancel()
        channel.close()

    def _admit(self, channel: Channel) -> None:
        """Count a connection, which is then set up, or close it if its address has too many."""
        host = channel.peer[0]
        if not self._quotas.may_connect(host):
            logger.info("Rejected connection from %s: it already has as many as max.connections.per.ip allows", host)
            channel.close()
            return
        self._quotas.add(self.listener_name, host)
        self._accepted.append(channel)

    def _set_up(self, channel: Channel) -> None:
        try:
            self._deal(channel, self.listener_name, self._security_protocol)
        except Exception:
            logger.exception("Failed to set up a connection from %s", channel.peer[0])
            self._refuse(channel)

    def _refuse(self, channel: Channel) -> None:
        """Close a connection that was counted and is not set up."""
        self._quotas.remove(self.listener_name, channel.peer[0])
        channel.close()

    def _is_exhausted(self, error: OSError) -> bool:
        """Pause and return True if the process is out of descriptors or memory; ignore a peer that disconnected."""
        if error.errno not in _OUT_OF_RESOURCES:
            logger.debug("A connection to %s was lost before it was accepted: %s", self.listener_name, error)
            return False
        logger.error(
            "Error while accepting connections on %s, trying again in %d ms: %s",
            self.listener_name,
            ACCEPT_PAUSE_MS,
            error,
        )
        self._rest(ACCEPT_PAUSE_MS)
        return True

    def _rest(self, pause_ms: int) -> None:
        self._stop()
        self._pause = self._loop.call_later(pause_ms / 1000, self.start)

    def _stop(self) -> None:
        self._is_accepting = False
        self._blocked_since_s = self._loop.time()
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
