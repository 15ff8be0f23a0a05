"""A network in memory: seams.Channel and seams.Listener on a SimLoop, and a client that speaks frames.

Bytes arrive in order after a delay, in pieces when the network is told to cut them; each direction holds a bounded
number of bytes that were sent and not received, like the two buffers of a TCP connection. Ends can be closed, half or
whole, or reset.
"""

import asyncio
import contextvars
import errno
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kafkapy.reactor.tls import TlsChannel
from kafkapy.seams import FileRegion, ReadableBuffer
from tests.simulator.loop import SimLoop

FIRST_PORT = 40_000
"""Before that of the first client's end."""

KERNEL = contextvars.Context()
"""What the network does is no process's: it goes on when the one is gone that began it."""


@dataclass
class LinkRules:
    """How a direction of a connection behaves; delays are drawn from the loop's `rng`."""

    min_delay_ms: float = 0.1
    max_delay_ms: float = 0.1
    max_piece_bytes: int | None = None
    capacity_bytes: int = 256 * 1024


class _Pipe:
    """One direction: bytes under way, bytes arrived, the end."""

    def __init__(self, loop: SimLoop, rules: LinkRules) -> None:
        self._loop = loop
        self._rules = rules
        self._last_arrival = 0.0
        self._under_way: deque[bytes] = deque()  # of equal times a loop keeps no order
        self.arrived = bytearray()
        self.is_ended = False
        self.is_reset = False
        self.unreceived_bytes = 0
        self.on_arrival: Callable[[], None] | None = None
        self.on_room: Callable[[], None] | None = None

    @property
    def room(self) -> int:
        return max(0, self._rules.capacity_bytes - self.unreceived_bytes)

    def send(self, data: bytes) -> None:
        self.unreceived_bytes += len(data)
        piece_bytes = self._rules.max_piece_bytes or max(1, len(data))
        for start in range(0, len(data), piece_bytes):
            self._deliver_later(data[start : start + piece_bytes])

    def end(self) -> None:
        self._deliver_later(b"")

    def reset(self) -> None:
        self.is_reset = True
        for callback in (self.on_arrival, self.on_room):
            if callback is not None:
                self._loop.call_soon(callback, context=KERNEL)

    def _deliver_later(self, piece: bytes) -> None:
        delay_ms = self._loop.rng.uniform(self._rules.min_delay_ms, self._rules.max_delay_ms)
        self._last_arrival = max(self._last_arrival, self._loop.now + delay_ms / 1000)
        self._under_way.append(piece)
        self._loop.call_at(self._last_arrival, self._deliver, context=KERNEL)

    def _deliver(self) -> None:
        piece = self._under_way.popleft()
        if piece:
            self.arrived += piece
        else:
            self.is_ended = True
        if self.on_arrival is not None:
            self.on_arrival()

    def receive(self, max_bytes: int) -> bytes | None:
        if self.is_reset:
            raise ConnectionResetError(errno.ECONNRESET, "reset by peer")
        data = bytes(self.arrived[:max_bytes])
        del self.arrived[:max_bytes]
        self.unreceived_bytes -= len(data)
        if data and self.on_room is not None:
            self._loop.call_soon(self.on_room, context=KERNEL)
        return data if data or self.is_ended else None


class SimChannel:
    """seams.Channel: one end of a connection. Callbacks are level-triggered, as those of a socket are."""

    def __init__(
        self, loop: SimLoop, incoming: _Pipe, outgoing: _Pipe, *, local: tuple[str, int], peer: tuple[str, int]
    ) -> None:
        self._loop = loop
        self._in = incoming
        self._out = outgoing
        self.local = local
        self.peer = peer
        self._reader: Callable[[], None] | None = None
        self._writer: Callable[[], None] | None = None
        self._context: contextvars.Context | None = None
        """Of who reads or writes: its callbacks run there, whoever has sent."""
        self._is_polling = False
        self.is_closed = False
        self._awaited_bytes = 1
        incoming.on_arrival = self._poll
        outgoing.on_room = self._poll

    def receive(self, max_bytes: int) -> bytes | None:
        assert not self.is_closed
        return self._in.receive(max_bytes)

    def receive_into(self, buffer: memoryview) -> int | None:
        data = self.receive(len(buffer))
        if data is None:
            return None
        buffer[: len(data)] = data
        return len(data)

    def send(self, buffers: Sequence[ReadableBuffer], more: bool) -> int:
        assert not self.is_closed
        if self._out.is_reset:
            raise BrokenPipeError(errno.EPIPE, "broken pipe")
        data = b"".join(buffers)[: self._out.room]
        if data:
            self._out.send(data)
        return len(data)

    def send_region(self, region: FileRegion, start: int, count: int) -> int:
        length, position = min(count, self._out.room), region.position + start
        data = region.file.pread_nowait(length, position)
        if data is None:
            data = region.file.pread(length, position)  # as sendfile would, this waits for the disk
        if not data and self._out.room:
            raise EOFError(f"{region.file.path} was cut")
        return self.send([data], False)

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        self._reader = callback
        self._context = contextvars.copy_context()
        self._poll()

    def await_bytes(self, count: int) -> None:
        self._awaited_bytes = count
        self._poll()

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        self._writer = callback
        self._context = contextvars.copy_context()
        self._poll()

    def end(self) -> None:
        """Half-close: the peer receives what is under way, then the end."""
        self._out.end()

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._reader = self._writer = None
            self._out.end()
            self._in.is_reset = True  # who sends to a closed end gets EPIPE
            self._in.on_arrival = None
            self._out.on_room = None
            if self._in.on_room is not None:
                self._loop.call_soon(self._in.on_room, context=KERNEL)

    def reset(self) -> None:
        self._out.reset()
        self.close()

    def break_off(self) -> None:
        """Let both ends find that the connection was reset; each closes its own."""
        self._out.reset()
        self._in.reset()

    @property
    def _can_read(self) -> bool:
        has_enough = len(self._in.arrived) >= self._awaited_bytes or (self._in.arrived and not self._in.room)
        return bool(has_enough or self._in.is_ended or self._in.is_reset)

    @property
    def _can_write(self) -> bool:
        return bool(self._out.room or self._out.is_reset)

    def _poll(self) -> None:
        if not self._is_polling and not self.is_closed and self._context is not None:
            self._is_polling = True
            self._loop.call_soon(self._call_back, context=self._context)

    def _call_back(self) -> None:
        self._is_polling = False
        if self._reader is not None and self._can_read:
            try:
                self._reader()
            finally:
                if self._can_read:
                    self._poll()
        if self._writer is not None and self._can_write:
            try:
                self._writer()
            finally:
                if self._writer is not None:
                    self._poll()


class SimListener:
    """seams.Listener: `errors` are raised by the next accepts, to be EMFILE and the like."""

    def __init__(self, loop: SimLoop, address: tuple[str, int]) -> None:
        self._loop = loop
        self.address = address
        self.backlog: deque[SimChannel] = deque()
        self.errors: deque[OSError] = deque()
        self.is_closed = False
        self._callback: Callable[[], None] | None = None
        self._context: contextvars.Context | None = None

    def accept(self) -> SimChannel | None:
        if self.errors:
            raise self.errors.popleft()
        return self.backlog.popleft() if self.backlog else None

    def on_acceptable(self, callback: Callable[[], None] | None) -> None:
        self._callback = callback
        self._context = contextvars.copy_context()
        self.poll()

    def poll(self) -> None:
        if self._callback is not None and self.backlog:
            self._loop.call_soon(self._call_back, context=self._context)

    def _call_back(self) -> None:
        if self._callback is not None and self.backlog:
            self._callback()

    def close(self) -> None:
        self.is_closed = True
        self._callback = None
        while self.backlog:
            self.backlog.popleft().reset()


class SimNetwork:
    """Listeners by address, and connections to them."""

    def __init__(self, loop: SimLoop, rules: LinkRules | None = None) -> None:
        self.loop = loop
        self.rules = rules or LinkRules()
        self._listeners: dict[tuple[str, int], SimListener] = {}
        self._next_port = FIRST_PORT
        self._channels: list[SimChannel] = []
        """Clients' ends that were open when it was last looked."""

    def listen(self, host: str, port: int) -> SimListener:
        listener = SimListener(self.loop, (host, port))
        self._listeners[host, port] = listener
        return listener

    def connect(
        self, address: tuple[str, int], *, from_host: str = "10.0.0.1", rules: LinkRules | None = None
    ) -> SimChannel:
        """Return the client's end; its other end waits in the listener's backlog. Raises ConnectionRefusedError."""
        listener = self._listeners.get(address)
        if listener is None or listener.is_closed:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens on {address}")
        self._next_port += 1
        client = (from_host, self._next_port)
        to_server = self._new_pipe(from_host, address[0], rules or self.rules)
        to_client = self._new_pipe(address[0], from_host, rules or self.rules)
        listener.backlog.append(SimChannel(self.loop, to_server, to_client, local=address, peer=client))
        listener.poll()
        channel = SimChannel(self.loop, to_client, to_server, local=client, peer=address)
        self._channels = [each for each in self._channels if not each.is_closed]
        self._channels.append(channel)
        return channel

    def _new_pipe(self, source: str, target: str, rules: LinkRules) -> _Pipe:
        """Return a direction of a connection between two hosts."""
        return _Pipe(self.loop, rules)

    @property
    def connection_count(self) -> int:
        """How many connections have been made."""
        return self._next_port - FIRST_PORT

    def reset_connections(self, between: Callable[[str, str], bool]) -> None:
        """Reset both ends of each connection between two hosts for which `between` holds."""
        for channel in self._channels:
            if not channel.is_closed and between(channel.local[0], channel.peer[0]):
                channel.break_off()


class SimConnector:
    """seams.Connector from one host of a SimNetwork; `is_reachable` says which addresses answer at all."""

    def __init__(
        self,
        network: SimNetwork,
        from_host: str,
        is_reachable: Callable[[tuple[str, int]], bool] = lambda _address: True,
    ) -> None:
        self._network = network
        self._from_host = from_host
        self._is_reachable = is_reachable
        self.attempts: list[tuple[str, int]] = []

    def connect(
        self, host: str, port: int, on_done: Callable[[SimChannel | None, OSError | None], None]
    ) -> Callable[[], None]:
        self.attempts.append((host, port))
        rules = self._network.rules
        delay_ms = self._network.loop.rng.uniform(rules.min_delay_ms, rules.max_delay_ms)
        return self._network.loop.call_later(delay_ms / 1000, self._arrive, (host, port), on_done).cancel

    def _arrive(self, address: tuple[str, int], on_done: Callable[[SimChannel | None, OSError | None], None]) -> None:
        if not self._is_reachable(address):
            return  # its packets are lost: nobody answers
        try:
            channel = self._network.connect(address, from_host=self._from_host)
        except ConnectionRefusedError as error:
            on_done(None, error)
            return
        on_done(channel, None)


class SimClient:
    """A client's end of a channel that speaks whole frames."""

    def __init__(self, channel: SimChannel | TlsChannel) -> None:
        self.channel = channel
        self.received = bytearray()
        self.is_ended = False
        self._changed = asyncio.Event()
        self.read()

    def read(self) -> None:
        self.channel.on_readable(self._on_readable)

    def stop_reading(self) -> None:
        """Be a peer that does not drain."""
        self.channel.on_readable(None)

    def _on_readable(self) -> None:
        try:
            data = self.channel.receive(1 << 20)
        except ConnectionResetError:
            data = b""
        if data:
            self.received += data
        elif data == b"":
            self.is_ended = True
            self.channel.on_readable(None)
        self._changed.set()

    async def send(self, data: bytes) -> None:
        """Send all of `data`, waiting for room."""
        while data:
            count = self.channel.send([data], False)
            data = data[count:]
            if data:
                await self._writable()

    async def send_frame(self, body: bytes) -> None:
        await self.send(len(body).to_bytes(4, "big") + body)

    async def receive_frame(self) -> bytes:
        """Return the next frame's body. Raises EOFError when the server ends before it is whole."""
        size = int.from_bytes(await self._receive_exactly(4), "big")
        return await self._receive_exactly(size)

    async def wait_end(self) -> None:
        while not self.is_ended:
            await self._wait_change()

    async def _receive_exactly(self, count: int) -> bytes:
        while len(self.received) < count:
            if self.is_ended:
                raise EOFError(f"ended with {len(self.received)} of {count} bytes")
            await self._wait_change()
        data = bytes(self.received[:count])
        del self.received[:count]
        return data

    async def _wait_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _writable(self) -> None:
        writable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.channel.on_writable(lambda: writable.done() or writable.set_result(None))
        await writable
        self.channel.on_writable(None)
