"""A network between computers that fail: packets are lost in one direction or both, late, and computers go silent.

A connection is as TCP's: what is lost is sent again, so a lossy or cut direction delays what is sent, and what waits
behind it; who asks for a connection whose response is lost, asks again. A process that was killed ends its connections;
a computer without power does not, and its next life resets what it knows nothing of.
"""

from collections.abc import Callable

from tests.simulator.loop import SimLoop
from tests.simulator.network import KERNEL, LinkRules, SimChannel, SimListener, SimNetwork, _Pipe

RETRY_S = (0.1, 0.6)
"""After this a packet that was lost is sent again."""
CONNECT_RETRY_S = 1.0


class Packets:
    """What happens to a packet from a host to another. `cut` are pairs between which, in this order, none arrives."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.cut: set[tuple[str, str]] = set()
        self.loss = 0.0
        self.slow_ms: dict[str, float] = {}
        """What is added to the delay of each packet from a host."""

    def is_lost(self, source: str, target: str) -> bool:
        return (source, target) in self.cut or (self.loss > 0 and self.loop.rng.random() < self.loss)

    def retry_s(self) -> float:
        return self.loop.rng.uniform(*RETRY_S)


class _FaultyPipe(_Pipe):
    """One direction of a connection between two hosts."""

    def __init__(self, loop: SimLoop, rules: LinkRules, packets: Packets, source: str, target: str) -> None:
        super().__init__(loop, rules)
        self._packets = packets
        self._route = (source, target)
        self.is_unknown: Callable[[], bool] = lambda: False
        """Whether the target's computer has forgotten the connection."""
        self.is_silent: Callable[[], bool] = lambda: False
        """Whether the target's computer has no power."""
        self.on_unknown: Callable[[], None] = lambda: None

    def _deliver_later(self, piece: bytes) -> None:
        self._last_arrival = max(
            self._last_arrival, self._loop.now + self._packets.slow_ms.get(self._route[0], 0) / 1000
        )
        super()._deliver_later(piece)

    def _deliver(self) -> None:
        if self.is_reset:
            self._under_way.clear()
        elif self.is_silent() or self._packets.is_lost(*self._route):
            self._loop.call_later(self._packets.retry_s(), self._deliver, context=KERNEL)
        elif self.is_unknown():
            self.on_unknown()
        elif self._under_way:
            super()._deliver()


class FaultyNetwork(SimNetwork):
    """A SimNetwork whose hosts are computers: `boots` counts a computer's starts, None is one without power."""

    def __init__(self, loop: SimLoop, rules: LinkRules) -> None:
        super().__init__(loop, rules)
        self.packets = Packets(loop)
        self.boots: dict[str, int | None] = {}
        self._ends: list[tuple[str, SimChannel]] = []
        """Open ends of connections, by host."""

    def connect(
        self, address: tuple[str, int], *, from_host: str = "10.0.0.1", rules: LinkRules | None = None
    ) -> SimChannel:
        channel = super().connect(address, from_host=from_host, rules=rules)
        other = self._listeners[address].backlog[-1]
        self._ends = [(host, end) for host, end in self._ends if not end.is_closed]
        self._ends += [(from_host, channel), (address[0], other)]
        for end, host in ((channel, from_host), (other, address[0])):
            self._watch(end._in, host, channel, other)
        return channel

    def _watch(self, pipe: _Pipe, target: str, *ends: SimChannel) -> None:
        assert isinstance(pipe, _FaultyPipe)
        boot = self.boots.get(target)
        pipe.is_silent = lambda: target in self.boots and self.boots[target] is None
        pipe.is_unknown = lambda: self.boots.get(target) != boot
        pipe.on_unknown = ends[0].break_off

    def _new_pipe(self, source: str, target: str, rules: LinkRules) -> _Pipe:
        return _FaultyPipe(self.loop, rules, self.packets, source, target)

    def kill_process(self, host: str) -> None:
        """Let the kernel end all connections of a process that is gone; nobody listens there any more."""
        for end in self._ends_of(host):
            end.close()
        self._stop_listening(host)

    def cut_power(self, host: str) -> None:
        """Let a computer fall silent: what is sent to it is sent again until it is back, and then not known there."""
        for end in self._ends_of(host):
            end.is_closed = True
            end._in.on_arrival = end._out.on_room = None
        self._stop_listening(host)

    def _ends_of(self, host: str) -> list[SimChannel]:
        return [end for of, end in self._ends if of == host and not end.is_closed]

    def _stop_listening(self, host: str) -> None:
        for address, listener in self._listeners.items():
            if address[0] == host:
                listener.is_closed = True
                listener.on_acceptable(None)
                listener.backlog.clear()


class FaultyConnector:
    """seams.Connector of a host on a FaultyNetwork."""

    def __init__(self, network: FaultyNetwork, from_host: str) -> None:
        self._network = network
        self._from_host = from_host

    def connect(
        self, host: str, port: int, on_done: Callable[[SimChannel | None, OSError | None], None]
    ) -> Callable[[], None]:
        attempt = _Attempt(self._network, self._from_host, (host, port), on_done)
        attempt.send_request()
        return attempt.cancel


class _Attempt:
    """A connection that is being made."""

    def __init__(
        self,
        network: FaultyNetwork,
        from_host: str,
        address: tuple[str, int],
        on_done: Callable[[SimChannel | None, OSError | None], None],
    ) -> None:
        self._network = network
        self._from_host = from_host
        self._address = address
        self._on_done = on_done
        self._timer = network.loop.call_soon(lambda: None)

    def send_request(self) -> None:
        network = self._network
        packets, target = network.packets, self._address[0]
        is_silent = target in network.boots and network.boots[target] is None
        is_lost = packets.is_lost(self._from_host, target) or packets.is_lost(target, self._from_host)
        if is_silent or is_lost:
            self._timer = network.loop.call_later(CONNECT_RETRY_S, self.send_request)
            return
        rules = network.rules
        delay_ms = 2 * network.loop.rng.uniform(rules.min_delay_ms, rules.max_delay_ms)
        self._timer = network.loop.call_later(delay_ms / 1000, self._arrive)

    def cancel(self) -> None:
        self._timer.cancel()

    def _arrive(self) -> None:
        try:
            channel = self._network.connect(self._address, from_host=self._from_host)
        except ConnectionRefusedError as error:
            self._on_done(None, error)
            return
        self._on_done(channel, None)


__all__ = ["FaultyConnector", "FaultyNetwork", "Packets", "SimListener"]
