"""The reactor: listeners, acceptors and processors of one broker, on one event loop."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from kafkapy.protocol.serving import ConnectionInfo, Serving
from kafkapy.protocol.traffic import ConnectionTraffic
from kafkapy.reactor.acceptor import Acceptor, new_connection_info
from kafkapy.reactor.byte_account import MAX_LOGIN_BYTES, ByteAccount, UnsentResponses
from kafkapy.reactor.connection_quotas import ConnectionQuotas
from kafkapy.reactor.limits import CLOSED_PER_PASS, ReactorLimits
from kafkapy.reactor.processor import Processor, Shared
from kafkapy.reactor.read_ahead import ReadAhead
from kafkapy.reactor.request_memory import RequestMemory
from kafkapy.reactor.socket_channel import listen
from kafkapy.reactor.stall_watch import StallWatch
from kafkapy.reactor.turn_queue import TurnQueue
from kafkapy.seams import Channel, IoPool, Listener

if TYPE_CHECKING:
    from kafkapy.reactor.link import Link
    from kafkapy.reactor.tls_admission import ServerTls, TlsAdmission, TlsEntry

logger = logging.getLogger(__name__)

_QUIET_POLL_SECONDS = 0.01


class Reactor:
    """The network server of one broker.

    Usage: create it, `bind` each listener, `start`; later `stop_accepting` and `await shut_down(grace_ms)`.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: ReactorLimits,
        *,
        serving: Serving,
        io_pool: IoPool,
        listen: Callable[..., Listener] = listen,
    ) -> None:
        """`listen` creates the listeners for `bind`; same signature as socket_channel.listen."""
        self._loop = loop
        self._limits = limits
        self._listen = listen
        self._quotas = ConnectionQuotas(limits)
        self.request_memory = RequestMemory(
            max_bytes=limits.queued_bytes,
            max_requests=limits.queued_max_requests,
            max_frame_bytes=limits.connection.max_frame_bytes,
            on_wait=lambda: self._stall_watch.begin(),
        )
        self._stall_watch = StallWatch(loop, self.request_memory, self._links)
        self.acceptors: list[Acceptor] = []
        self._turns = TurnQueue(loop, self.request_memory, self._accept_between_turns)
        self.unsent = UnsentResponses(loop)
        self.logins: ByteAccount[Link] = ByteAccount(loop, MAX_LOGIN_BYTES, "requests of peers that have not logged in")
        shared = Shared(self.request_memory, ReadAhead(io_pool), self._turns, self.unsent, self.logins)
        self.processors = [
            Processor(loop=loop, limits=limits, serving=serving, shared=shared, on_closed=self._on_closed)
            for _ in range(limits.num_network_threads)
        ]
        self._dealt_count = 0
        self.traffic: dict[tuple[str, int], ConnectionTraffic] | None = None
        """The counts of connections, by listener and index of the processor; None if nothing is counted."""
        self.created_counts: Counter[tuple[str, int]] = Counter()
        """Connections accepted so far, by listener and index of the processor."""
        self._tls: TlsAdmission | None = None
        self.disconnect_listeners: list[Callable[[str], None]] = []
        """Called with the id of each connection that has closed; added to at the start."""

    def bind(
        self, listener_name: str, security_protocol: str, host: str, port: int, tls: "ServerTls | None" = None
    ) -> tuple[str, int]:
        """Listen without accepting yet; return the bound address (port 0 picks a free port). Raises OSError.

        `tls`: the listener's TLS settings, None for plaintext.
        """
        limits = self._limits
        listener = self._listen(
            self._loop,
            host,
            port,
            backlog=limits.socket_listen_backlog_size,
            send_buffer_bytes=limits.socket_send_buffer_bytes,
            receive_buffer_bytes=limits.socket_receive_buffer_bytes,
        )
        self.add_listener(listener_name, security_protocol, listener, tls)
        return listener.address

    def add_listener(
        self, listener_name: str, security_protocol: str, listener: Listener, tls: "ServerTls | None" = None
    ) -> None:
        """Add an existing listener of any kind, for example a simulated one."""
        if tls is not None:
            self._secure(listener_name, tls)
        self.acceptors.append(
            Acceptor(
                loop=self._loop,
                listener=listener,
                listener_name=listener_name,
                security_protocol=security_protocol,
                quotas=self._quotas,
                deal=self._deal,
                on_accepted=self._turns.expect_connections,
            )
        )

    def _secure(self, listener_name: str, tls: "ServerTls") -> None:
        if self._tls is None:
            from kafkapy.reactor.tls_admission import TlsAdmission  # imported only if a listener uses TLS

            timeout_ms = self._limits.authentication_timeout_ms
            self._tls = TlsAdmission(self._loop, timeout_ms, on_refused=self._on_closed)
        self._tls.listeners[listener_name] = tls

    def start(self, listener_names: Collection[str] | None = None) -> None:
        """Start to accept on all listeners, or on those named. A listener is started once."""
        for acceptor in self.acceptors:
            if listener_names is None or acceptor.listener_name in listener_names:
                acceptor.start()

    def remove_listener(self, listener_name: str) -> None:
        """Stop listening, and close the listener's connections: those that are open now, some in each pass of the loop.

        Those in their TLS handshake, which are few, are closed at once: later they would be other objects.
        """
        removed = [each for each in self.acceptors if each.listener_name == listener_name]
        self.acceptors = [each for each in self.acceptors if each.listener_name != listener_name]
        for acceptor in removed:
            acceptor.close()
            self._quotas.remove_listener(listener_name)
        if self._tls is not None:
            for entry in [each for each in self._tls.entries if each.info.listener_name == listener_name]:
                entry.close()
            self._tls.listeners.pop(listener_name, None)
        self._close_some(deque(link for link in self._links() if link.info.listener_name == listener_name))

    def _close_some(self, links: "deque[Link]") -> None:
        for _ in range(min(len(links), CLOSED_PER_PASS)):
            links.popleft().close()
        if links:
            self._loop.call_soon(self._close_some, links)

    def update_connection_limits(self, limits: ReactorLimits) -> None:
        """Change the limits on connection counts and creation rates; other fields of `limits` are ignored."""
        self._quotas.update(limits)
        self._close_excess()
        for acceptor in self.acceptors:
            acceptor.room_freed()

    def set_ip_rate(self, ip: str | None, per_second: float | None) -> None:
        """Set or remove (None) the connections per second allowed from `ip`; ip None is the default for all others."""
        self._quotas.set_ip_rate(ip, per_second)

    def connections(self) -> Iterator[tuple[int, ConnectionInfo]]:
        """Yield the index of its processor and what is known of each open connection."""
        for index, processor in enumerate(self.processors):
            for link in list(processor.links):
                yield index, link.info

    @property
    def connection_count(self) -> int:
        return self._quotas.count

    def stop_accepting(self) -> None:
        for acceptor in self.acceptors:
            acceptor.close()
        self.acceptors.clear()

    def serve_by(self, serving: Serving) -> None:
        """Serve all connections by another router, existing ones too: for tests that inject faults."""
        for processor in self.processors:
            processor.serve_by(serving)

    def stop_serving(self) -> None:
        """Accept no connection and start no request any more. Each connection closes once its requests are answered."""
        self.stop_accepting()
        for link in list(self._links()):
            link.finish()

    async def shut_down(self, grace_ms: int) -> None:
        """Stop serving, wait up to `grace_ms` for pending requests to be answered, then close every connection."""
        self.stop_serving()
        deadline = self._loop.time() + grace_ms / 1000
        while not self.is_quiet and self._loop.time() < deadline:
            await asyncio.sleep(_QUIET_POLL_SECONDS)
        self.close()

    @property
    def is_quiet(self) -> bool:
        return all(processor.is_quiet for processor in self.processors)

    def close(self) -> None:
        """Close everything now; handlers of parked requests are cancelled."""
        self.stop_accepting()
        self._stall_watch.stop()
        if self._tls is not None:
            self._tls.close()
        for processor in self.processors:
            processor.close()

    def _accept_between_turns(self) -> bool:
        """Accept on the listeners on which connections are being opened; return whether there are any."""
        opening = [acceptor.accept_between_turns() for acceptor in self.acceptors]  # a list, so that each is called
        return any(opening)

    def _deal(self, channel: Channel, listener_name: str, security_protocol: str) -> None:
        index = self._dealt_count % len(self.processors)
        info = new_connection_info(channel, listener_name, security_protocol, index, self._dealt_count)
        self._dealt_count += 1
        if self.traffic is not None:
            channel, info.traffic = self._counted(self.traffic, channel, (listener_name, index))
        self.created_counts[listener_name, index] += 1
        if self._tls is not None and listener_name in self._tls.listeners:
            self._tls.admit(channel, info, self.processors[index].adopt)
        else:
            self.processors[index].adopt(channel, info)
        self._close_excess()

    def _counted(
        self, traffic: dict[tuple[str, int], ConnectionTraffic], channel: Channel, key: tuple[str, int]
    ) -> tuple[Channel, ConnectionTraffic]:
        from kafkapy.reactor.counted_channel import CountedChannel  # most brokers count nothing

        counts = traffic.get(key)
        if counts is None:
            counts = traffic[key] = ConnectionTraffic()
        return CountedChannel(channel, counts), counts

    def _close_excess(self) -> None:
        """While max.connections is exceeded, close the longest-idle connection; never one of the broker listener."""
        while self._quotas.is_exceeded:
            links = [link for link in self._everybody() if not self._quotas.is_protected(link.info.listener_name)]
            if not links:
                return
            longest_idle = min(links, key=lambda link: link.last_active)
            logger.info("Closing connection %s: max.connections is exceeded", longest_idle.info.connection_id)
            longest_idle.close()

    def _everybody(self) -> "list[Link | TlsEntry]":
        """Return all connections, those in their TLS handshake among them."""
        return [*self._links(), *(self._tls.entries if self._tls is not None else ())]

    def _links(self) -> "Iterator[Link]":
        for processor in self.processors:
            yield from processor.links

    def _on_closed(self, info: ConnectionInfo) -> None:
        self._quotas.remove(info.listener_name, info.peer_host)
        for acceptor in self.acceptors:
            acceptor.room_freed()
        for listener in self.disconnect_listeners:
            listener(info.connection_id)
