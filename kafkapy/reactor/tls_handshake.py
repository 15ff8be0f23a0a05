"""TLS handshakes: a storm of them is spread over the turns of the loop, and none lasts for ever.

A handshake costs the loop 0.3 ms (P-256) to 1.1 ms (RSA, with a client's certificate) of CPU, in two steps. Those with
bytes to read queue up; STEPS_PER_TURN of them have a step, then the connections at work have their turns. OpenSSL's
state (17 KiB) is made when the first bytes have come; before, a peer holds a socket only.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from kafkapy.errors import ProtocolError
from kafkapy.protocol.foreign import foreign_protocol
from kafkapy.reactor.tls import TlsChannel, TlsSession
from kafkapy.runtime.after_reads import AfterReads
from kafkapy.seams import Channel

STEPS_PER_TURN: Final = 2
"""Steps of handshakes in one pass of the loop: so much longer others wait for their turns."""

HANDSHAKE_RECEIVE_BYTES: Final = 16 * 1024
MOST_HANDSHAKE_BYTES: Final = 256 * 1024
"""What a peer may send before its handshake is done. OpenSSL takes certificates of 100 KiB."""

logger = logging.getLogger(__name__)

OnDone: TypeAlias = Callable[[TlsChannel | None, str], None]
"""Called once, later: with the channel, or with the reason why there is none; then the channel below is closed."""


class Handshakes:
    """All handshakes that are under way on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_ms: int) -> None:
        self.loop = loop
        self.timeout_ms = timeout_ms
        self.running: set[Handshake] = set()
        self._queue: deque[Handshake] = deque()

    def accept(self, transport: Channel, context: ssl.SSLContext, on_done: OnDone) -> "Handshake":
        """Begin a handshake as the server."""
        handshake = Handshake(self, transport, context, None, on_done)
        handshake.watch()
        return handshake

    def connect(self, transport: Channel, context: ssl.SSLContext, host: str, on_done: OnDone) -> "Handshake":
        """Begin a handshake as a client of `host`, whose name is checked if the context says so."""
        handshake = Handshake(self, transport, context, host, on_done)
        self.enqueue(handshake)
        return handshake

    def enqueue(self, handshake: "Handshake") -> None:
        """Let a handshake have a step, after those that wait for theirs."""
        if not self._queue:
            self.loop.call_soon(self._run)
        self._queue.append(handshake)

    def close(self) -> None:
        """Break all handshakes off; nobody is told."""
        for handshake in list(self.running):
            handshake.cancel()

    def _run(self) -> None:
        for _ in range(min(STEPS_PER_TURN, len(self._queue))):
            self._queue.popleft().step()
        if self._queue:
            self.loop.call_soon(self._run)


class Handshake:
    """One handshake, from the first byte to the last."""

    __slots__ = (
        "_context",
        "_host",
        "_on_done",
        "_owner",
        "_received_bytes",
        "_session",
        "_timer",
        "_transport",
        "began_at",
    )

    def __init__(
        self, owner: Handshakes, transport: Channel, context: ssl.SSLContext, host: str | None, on_done: OnDone
    ) -> None:
        """`host`: of the server; None if this side is the server."""
        self._owner = owner
        self._transport = transport
        self._context = context
        self._host = host
        self._on_done: OnDone | None = on_done
        self._session: TlsSession | None = None
        self._received_bytes = 0
        self.began_at = owner.loop.time()
        self._timer = AfterReads(owner.loop, owner.timeout_ms / 1000, self._expire)
        owner.running.add(self)

    def watch(self) -> None:
        """Have a step once bytes have come."""
        self._transport.on_readable(self._on_readable)

    def cancel(self) -> None:
        """Break off; nobody is told."""
        self._on_done = None
        self._forget()
        self._transport.close()

    def fail(self, reason: str) -> None:
        """Break off, with an alert if there is one to send."""
        on_done = self._on_done
        if on_done is None:
            return
        if self._session is not None:
            self._send_alert(self._session)
        self.cancel()
        on_done(None, reason)

    def _expire(self) -> None:
        self.fail(f"the handshake took longer than {self._owner.timeout_ms} ms")

    def _on_readable(self) -> None:
        self._transport.on_readable(None)
        self._owner.enqueue(self)

    def step(self) -> None:
        """Read what has come and go on as far as that leads."""
        if self._on_done is None:
            return
        try:
            self._step()
        except ssl.SSLCertVerificationError as error:
            self.fail(f"the peer's certificate is refused: {error.verify_message}")
        except ssl.SSLError as error:
            self.fail(reason_of(error))
        except (OSError, EOFError, ProtocolError) as error:
            self.fail(str(error))
        except Exception:
            logger.exception("A TLS handshake failed unexpectedly")
            self.fail("an unexpected error")

    def _step(self) -> None:
        data = self._transport.receive(HANDSHAKE_RECEIVE_BYTES)
        if data == b"":
            raise EOFError("the peer closed the connection amid the handshake")
        if data is None and (self._session is not None or self._host is None):
            self.watch()
            return
        session = self._session
        if session is None:
            if self._host is None:
                _check_is_tls(data or b"")
            session = self._session = TlsSession(
                self._context, self._transport, is_server=self._host is None, server_hostname=self._host
            )
        self._go_on(session, data or b"")

    def _go_on(self, session: TlsSession, data: bytes) -> None:
        self._received_bytes += len(data)
        if self._received_bytes > MOST_HANDSHAKE_BYTES:
            raise ProtocolError(f"the handshake is longer than {MOST_HANDSHAKE_BYTES} bytes")
        session.incoming.write(data)
        try:
            session.tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            self.watch()
            return
        self._finish(session)

    def _flush(self) -> None:
        """Send what is at hand; what the peer does not take now follows when it does."""
        assert self._session is not None
        try:
            is_sent = self._session.flush()
        except OSError as error:
            self.fail(str(error))
            return
        self._transport.on_writable(None if is_sent else self._flush)

    def _finish(self, session: TlsSession) -> None:
        session.flush()
        on_done = self._on_done
        assert on_done is not None
        self._on_done = None
        self._forget()
        self._transport.on_writable(None)
        on_done(TlsChannel(self._owner.loop, session), "")

    def _forget(self) -> None:
        self._timer.cancel()
        self._owner.running.discard(self)

    def _send_alert(self, session: TlsSession) -> None:
        """Send what OpenSSL says of the failure, if it is taken at once; read first what would reset the connection."""
        try:
            session.flush()
            self._transport.receive(HANDSHAKE_RECEIVE_BYTES)
        except OSError:
            return


def _check_is_tls(data: bytes) -> None:
    """Raise ProtocolError if a client that speaks another protocol has come to a TLS port."""
    spoken = "Kafka's plain protocol" if data[:1] == b"\0" else foreign_protocol(int.from_bytes(data[:4], "big"))
    if spoken is not None and spoken != "TLS":
        raise ProtocolError(f"the client speaks {spoken} to a TLS port")


def reason_of(error: ssl.SSLError) -> str:
    """Return OpenSSL's reason as words."""
    return error.reason.lower().replace("_", " ") if error.reason else str(error)
