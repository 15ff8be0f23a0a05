"""Bytes and calls are counted around a channel, whatever it is."""

import socket
from collections.abc import Callable
from typing import Any

from kafkapy.protocol.traffic import ConnectionTraffic
from kafkapy.reactor.counted_channel import CountedChannel


class Pipe:
    """One end of a pair of sockets."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self.peer, self.local = ("peer", 1), ("local", 2)

    def receive(self, max_bytes: int) -> bytes | None:
        try:
            return self._end.recv(max_bytes)
        except BlockingIOError:
            return None

    def receive_into(self, buffer: memoryview) -> int | None:
        return self._end.recv_into(buffer)

    def send(self, buffers: Any, more: bool) -> int:
        return self._end.sendmsg(buffers)

    def send_region(self, region: Any, start: int, count: int) -> int:
        return 0

    def on_readable(self, callback: Callable[[], None] | None) -> None: ...

    def await_bytes(self, count: int) -> None: ...

    def on_writable(self, callback: Callable[[], None] | None) -> None: ...

    def close(self) -> None:
        self._end.close()


def test_what_is_received_and_sent_is_counted() -> None:
    mine, other = socket.socketpair()
    traffic = ConnectionTraffic()
    channel = CountedChannel(Pipe(mine), traffic)
    assert (channel.peer, channel.local) == (("peer", 1), ("local", 2))
    with other:
        other.sendall(b"abcdef")
        assert channel.receive(4) == b"abcd"
        assert channel.receive_into(memoryview(bytearray(8))) == 2
        assert channel.receive(4) is None
        assert channel.send([b"xy", b"z"], False) == 3
        assert channel.send_region(None, 0, 1) == 0  # type: ignore[arg-type]
        other.shutdown(socket.SHUT_WR)
        assert channel.receive(4) == b""
    channel.close()
    assert (traffic.received_bytes, traffic.reads, traffic.sent_bytes, traffic.writes) == (6, 2, 3, 1)
