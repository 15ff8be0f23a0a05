"""Channels whose bytes are counted: around each connection of a node with an admin listener, and of no other."""

from collections.abc import Callable, Sequence

from kafkapy.protocol.traffic import ConnectionTraffic, OutboundTraffic
from kafkapy.seams import Channel, Connector, FileRegion, ReadableBuffer


class CountedChannel:
    """Implements seams.Channel over another channel."""

    __slots__ = ("_channel", "_traffic", "await_bytes", "close", "local", "on_readable", "on_writable", "peer")

    def __init__(self, channel: Channel, traffic: ConnectionTraffic) -> None:
        self._channel = channel
        self._traffic = traffic
        self.peer = channel.peer
        self.local = channel.local
        self.on_readable = channel.on_readable
        self.await_bytes = channel.await_bytes
        self.on_writable = channel.on_writable
        self.close = channel.close

    def receive(self, max_bytes: int) -> bytes | None:
        self._traffic.polls += 1
        data = self._channel.receive(max_bytes)
        if data:
            self._traffic.received_bytes += len(data)
            self._traffic.reads += 1
        return data

    def receive_into(self, buffer: memoryview) -> int | None:
        self._traffic.polls += 1
        count = self._channel.receive_into(buffer)
        if count:
            self._traffic.received_bytes += count
            self._traffic.reads += 1
        return count

    def send(self, buffers: Sequence[ReadableBuffer], more: bool) -> int:
        return self._sent(self._channel.send(buffers, more))

    def send_region(self, region: FileRegion, start: int, count: int) -> int:
        return self._sent(self._channel.send_region(region, start, count))

    def _sent(self, count: int) -> int:
        self._traffic.polls += 1
        if count:
            self._traffic.sent_bytes += count
            self._traffic.writes += 1
        return count


class CountedConnector:
    """Implements seams.Connector over another one: its channels are counted."""

    def __init__(self, connector: Connector, traffic: OutboundTraffic) -> None:
        self._connector = connector
        self._traffic = traffic

    def connect(
        self, host: str, port: int, on_done: Callable[[Channel | None, OSError | None], None]
    ) -> Callable[[], None]:
        def on_connected(channel: Channel | None, error: OSError | None) -> None:
            if channel is not None:
                self._traffic.opened += 1
                channel = CountedChannel(channel, self._traffic)
            on_done(channel, error)

        return self._connector.connect(host, port, on_connected)
