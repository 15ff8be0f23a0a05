"""A reactor on a simulated loop, network and IO pool, with a route that tests shape: no socket, thread or file."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

from kafkapy.errors import ProtocolError
from kafkapy.protocol.primitives import Writer
from kafkapy.protocol.serving import Coalesce, ConnectionInfo, Route, Serving, coalesce_nothing
from kafkapy.reactor.limits import ReactorLimits
from kafkapy.reactor.reactor import Reactor
from kafkapy.reactor.tls import TlsChannel
from kafkapy.reactor.tls_admission import ServerTls
from kafkapy.reactor.tls_handshake import Handshakes
from kafkapy.seams import FileRegion
from tests.simulator.io_pool import SimIoPool
from tests.simulator.loop import SimLoop
from tests.simulator.network import LinkRules, SimClient, SimNetwork

ADDRESS = ("10.0.0.9", 9092)
Handler = Callable[[ConnectionInfo, bytes], Coroutine[Any, Any, Writer | None]]


def response_of(body: bytes, region: FileRegion | None = None) -> Writer:
    """Return a response of `body`, and the region behind it."""
    out = Writer()
    out += body
    if region is not None:
        out.splices.append((len(body), region))
    return out


class World:
    """A reactor that listens on ADDRESS. Requests are texts: the verb up to the first space chooses the handler.

    echo answers with the request; `handlers` adds verbs; an unknown verb raises ProtocolError.
    """

    def __init__(
        self,
        loop: SimLoop,
        limits: ReactorLimits | None = None,
        *,
        rules: LinkRules | None = None,
        security_protocol: str = "PLAINTEXT",
        tls: ServerTls | None = None,
        **handlers: Handler,
    ) -> None:
        self.loop = loop
        self.network = SimNetwork(loop, rules)
        self.io_pool = SimIoPool(loop)
        self.started: list[bytes] = []
        self._handlers: dict[str, Handler] = {"echo": _echo, **handlers}
        self.reactor = Reactor(
            loop,
            limits or ReactorLimits(),
            serving=Serving(self._route, new_login=self._new_login),
            io_pool=self.io_pool,
        )
        self.listener = self.network.listen(*ADDRESS)
        self.reactor.add_listener("MAIN", security_protocol, self.listener, tls)
        self.reactor.start()

    async def _route(self, info: ConnectionInfo, frame: memoryview) -> Writer | None:
        request = bytes(frame)
        self.started.append(request[:40])
        handler = self._handlers.get(request.partition(b" ")[0].decode("latin-1"))
        if handler is None:
            raise ProtocolError("unknown verb")
        return await handler(info, request)

    def _new_login(self, _info: ConnectionInfo) -> "SimLogin":
        return SimLogin(self._route)

    def connect(self, *, from_host: str = "10.0.0.1", rules: LinkRules | None = None) -> SimClient:
        return SimClient(self.network.connect(ADDRESS, from_host=from_host, rules=rules))

    async def connect_tls(self, context: ssl.SSLContext, *, rules: LinkRules | None = None) -> SimClient:
        """Return a client whose handshake is done. Raises OSError with the reason why it failed."""
        done: asyncio.Future[TlsChannel] = self.loop.create_future()

        def on_done(channel: TlsChannel | None, reason: str) -> None:
            if channel is None:
                done.set_exception(OSError(reason))
            else:
                done.set_result(channel)

        transport = self.network.connect(ADDRESS, rules=rules)
        Handshakes(self.loop, 60_000).connect(transport, context, ADDRESS[0], on_done)
        return SimClient(await done)

    async def round_trip_ms(self, client: SimClient) -> float:
        """Return how long one echo takes."""
        start = self.loop.time()
        await client.send_frame(b"echo ping")
        assert await client.receive_frame() == b"echo ping"
        return (self.loop.time() - start) * 1000


class SimLogin:
    """A protocol.serving.Login that asks nothing: a handler sets info.is_authenticated."""

    max_frame_bytes = 1000
    timeout_ms = 10_000
    is_used_further = False
    coalesce: Coalesce = staticmethod(coalesce_nothing)

    def __init__(self, route: Route) -> None:
        self.route = route


async def _echo(info: ConnectionInfo, request: bytes) -> Writer | None:
    return response_of(request)


async def wait_handler(info: ConnectionInfo, request: bytes) -> Writer | None:
    """`wait 250 x` answers with itself after 250 ms."""
    await asyncio.sleep(int(request.split(b" ")[1]) / 1000)
    return response_of(request)
