"""A channel whose bytes are counted: around each connection of a broker with an admin listener, and of no other."""

from collections.abc import Sequence

from kafkapy.protocol.traffic import ConnectionTraffic
from kafkapy.seams import Channel, FileRegion, ReadableBuffer


class CountedChannel:
    """Implements seams.Channel over another channel."""

    __slots__ = ("_channel", "_traffic", "close", "local", "on_readable", "on_writable", "peer")

    def __init__(self, channel: Channel, traffic: ConnectionTraffic) -> None:
        self._channel = channel
        self._traffic = traffic
        self.peer = channel.peer
        self.local = channel.local
        self.on_readable = channel.on_readable
        self.on_writable = channel.on_writable
        self.close = channel.close

    def receive(self, max_bytes: int) -> bytes | None:
        data = self._channel.receive(max_bytes)
        if data:
            self._traffic.received_bytes += len(data)
            self._traffic.reads += 1
        return data

    def receive_into(self, buffer: memoryview) -> int | None:
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
        if count:
            self._traffic.sent_bytes += count
            self._traffic.writes += 1
        return count
