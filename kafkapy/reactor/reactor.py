"""The reactor: listeners, acceptors and processors of one broker, on one event loop."""

import asyncio

from kafkapy.protocol.connection import ConnectionInfo, Route
from kafkapy.reactor.acceptor import Acceptor, ConnectionQuotas, new_connection_info
from kafkapy.reactor.backlog import Backlog
from kafkapy.reactor.limits import ReactorLimits
from kafkapy.reactor.processor import Processor
from kafkapy.reactor.socket_channel import listen
from kafkapy.seams import Channel, IoPool, Listener

_QUIET_POLL_SECONDS = 0.01


class Reactor:
    """Build it, `bind` each listener, `start`; later `stop_accepting` and `await shut_down(grace_ms)`."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, limits: ReactorLimits, *, route: Route, io_pool: IoPool
    ) -> None:
        self._loop = loop
        self._limits = limits
        self._quotas = ConnectionQuotas(limits)
        self.backlog = Backlog(max_bytes=limits.queued_bytes, max_requests=limits.queued_max_requests)
        self.acceptors: list[Acceptor] = []
        self.processors = [
            Processor(
                loop=loop,
                limits=limits,
                route=route,
                io_pool=io_pool,
                backlog=self.backlog,
                on_closed=self._on_closed,
            )
            for _ in range(limits.num_network_threads)
        ]
        self._dealt_count = 0

    def bind(self, listener_name: str, security_protocol: str, host: str, port: int) -> tuple[str, int]:
        """Listen, without accepting yet; return the address (port 0 picks a free one). Raises OSError."""
        limits = self._limits
        listener = listen(
            self._loop,
            host,
            port,
            backlog=limits.socket_listen_backlog_size,
            send_buffer_bytes=limits.socket_send_buffer_bytes,
            receive_buffer_bytes=limits.socket_receive_buffer_bytes,
        )
        self.add_listener(listener_name, security_protocol, listener)
        return listener.address

    def add_listener(self, listener_name: str, security_protocol: str, listener: Listener) -> None:
        """Take a listener of any kind (a simulated one, too)."""
        self.acceptors.append(
            Acceptor(
                loop=self._loop,
                listener=listener,
                listener_name=listener_name,
                security_protocol=security_protocol,
                quotas=self._quotas,
                deal=self._deal,
            )
        )

    def start(self) -> None:
        """Begin to accept on all listeners."""
        for acceptor in self.acceptors:
            acceptor.start()

    @property
    def connection_count(self) -> int:
        return self._quotas.count

    def stop_accepting(self) -> None:
        for acceptor in self.acceptors:
            acceptor.close()
        self.acceptors.clear()

    async def shut_down(self, grace_ms: int) -> None:
        """Stop accepting, give requests that wait the time to be answered, then close every connection."""
        self.stop_accepting()
        deadline = self._loop.time() + grace_ms / 1000
        while not self.is_quiet and self._loop.time() < deadline:
            await asyncio.sleep(_QUIET_POLL_SECONDS)
        self.close()

    @property
    def is_quiet(self) -> bool:
        return all(processor.is_quiet for processor in self.processors)

    def close(self) -> None:
        """Close everything now; handlers that wait are cancelled."""
        self.stop_accepting()
        for processor in self.processors:
            processor.close()

    def _deal(self, channel: Channel, listener_name: str, security_protocol: str) -> None:
        index = self._dealt_count % len(self.processors)
        info = new_connection_info(channel, listener_name, security_protocol, index, self._dealt_count)
        self._dealt_count += 1
        self.processors[index].adopt(channel, info)

    def _on_closed(self, info: ConnectionInfo) -> None:
        self._quotas.remove(info.listener_name, info.peer_host)
        for acceptor in self.acceptors:
            acceptor.room_freed()
