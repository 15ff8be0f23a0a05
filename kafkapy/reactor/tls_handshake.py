"""TLS handshakes, with a bound on their work per pass of the event loop and on the duration of each.

A handshake costs the loop 0.3 ms (P-256) to 1.1 ms (RSA, with a client certificate) of CPU, in two steps. Handshakes
with bytes to read queue up, and addresses take turns; at most STEPS_PER_TURN of them run a step per pass, so that
established connections get their turns. OpenSSL's state (17 KiB) is created when the first bytes arrive; before that a
peer costs only a socket. What all peers have sent is bounded together (byte_account.py).
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from kafkapy.errors import ProtocolError
from kafkapy.protocol.foreign import foreign_protocol
from kafkapy.reactor.byte_account import MAX_HANDSHAKE_BYTES, ByteAccount
from kafkapy.reactor.tls import TlsChannel, TlsSession
from kafkapy.runtime.after_reads import AfterReads
from kafkapy.seams import Channel

STEPS_PER_TURN: Final = 2
"""Handshake steps in one pass of the loop, which delay the turns of connections."""

HANDSHAKE_RECEIVE_BYTES: Final = 16 * 1024
MAX_ONE_HANDSHAKE_BYTES: Final = 64 * 1024
"""Limit of the bytes that a peer sends before its handshake is done: a ClientHello, and a chain of certificates.

Deviation: Apache Kafka accepts chains of certificates of any size that its TLS does. Here a handshake has this, because
anybody may begin one."""
STATE_BYTES: Final = 17 * 1024
"""OpenSSL's memory for a handshake that has begun, beside the room for all of the ClientHello that it makes as soon
as its first bytes are there."""
HELLO_HEADER_BYTES: Final = 9
"""The header of a record, 5 bytes (type, version, length), and that of its first message, 4 (type, length)."""

FOREIGN_CLIENT: Final = "the client speaks "
"""How the reason begins if a peer speaks another protocol to a TLS port."""

logger = logging.getLogger(__name__)

OnDone: TypeAlias = Callable[[TlsChannel | None, str], None]
"""Called once, later: with the channel, or with None and the reason; the channel below is then closed."""


class Handshakes:
    """All running handshakes of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_ms: int) -> None:
        self.loop = loop
        self.timeout_ms = timeout_ms
        self.running: dict[Handshake, None] = {}
        self.bytes: ByteAccount[Handshake] = ByteAccount(loop, MAX_HANDSHAKE_BYTES, "TLS handshakes")
        self._queues: dict[str, deque[Handshake]] = {}
        """Handshakes that wait for a step, by the peer's address; the address with the next turn is first."""

    def accept(self, transport: Channel, context: ssl.SSLContext, on_done: OnDone) -> "Handshake":
        """Start a handshake as the server."""
        handshake = Handshake(self, transport, context, None, on_done)
        handshake.watch()
        return handshake

    def connect(self, transport: Channel, context: ssl.SSLContext, host: str, on_done: OnDone) -> "Handshake":
        """Start a handshake as a client of `host`, whose name is verified if the context requires it."""
        handshake = Handshake(self, transport, context, host, on_done)
        self.enqueue(handshake)
        return handshake

    def enqueue(self, handshake: "Handshake") -> None:
        """Queue a handshake for a step."""
        if not self._queues:
            self.loop.call_soon(self._run)
        self._queues.setdefault(handshake.address, deque()).append(handshake)

    def close(self) -> None:
        """Abort all handshakes without calling on_done."""
        for handshake in list(self.running):
            handshake.cancel()

    def _run(self) -> None:
        for _ in range(STEPS_PER_TURN):
            if not self._queues:
                return
            address = next(iter(self._queues))
            queue = self._queues.pop(address)
            handshake = queue.popleft()
            if queue:
                self._queues[address] = queue  # after all others
            handshake.step()
        if self._queues:
            self.loop.call_soon(self._run)


class Handshake:
    """One handshake."""

    __slots__ = (
        "_context",
        "_host",
        "_on_done",
        "_owner",
        "_received_bytes",
        "_reserved_bytes",
        "_session",
        "_timer",
        "_transport",
        "address",
        "began_at",
    )

    def __init__(
        self, owner: Handshakes, transport: Channel, context: ssl.SSLContext, host: str | None, on_done: OnDone
    ) -> None:
        """`host`: the server's name; None if this side is the server."""
        self._owner = owner
        self._transport = transport
        self._context = context
        self._host = host
        self._on_done: OnDone | None = on_done
        self._session: TlsSession | None = None
        self._received_bytes = 0
        self._reserved_bytes = STATE_BYTES
        self.address = transport.peer[0]
        self.began_at = owner.loop.time()
        self._timer = AfterReads(owner.loop, owner.timeout_ms / 1000, self._expire)
        owner.running[self] = None

    def watch(self) -> None:
        """Run a step once bytes arrive."""
        self._transport.on_readable(self._on_readable)

    def cancel(self) -> None:
        """Abort without calling on_done."""
        self._on_done = None
        self._forget()
        self._transport.close()

    def close(self) -> None:
        """End it to make room for others."""
        self.fail(f"all handshakes together have more than {MAX_HANDSHAKE_BYTES} bytes")

    def fail(self, reason: str) -> None:
        """Abort, send OpenSSL's alert if there is one, and call on_done with `reason`."""
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
        """Read the received bytes and continue the handshake with them."""
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
                self._reserved_bytes = STATE_BYTES + _declared_bytes(data or b"")
            session = self._session = TlsSession(
                self._context, self._transport, is_server=self._host is None, server_hostname=self._host
            )
        self._go_on(session, data or b"")

    def _go_on(self, session: TlsSession, data: bytes) -> None:
        self._received_bytes += len(data)
        if self._received_bytes > MAX_ONE_HANDSHAKE_BYTES:
            raise ProtocolError(f"the handshake is longer than {MAX_ONE_HANDSHAKE_BYTES} bytes")
        if self._host is None:
            self._owner.bytes.count(self, self._received_bytes + self._reserved_bytes)
        session.incoming.write(data)
        try:
            session.tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            self.watch()
            return
        self._finish(session)

    def _flush(self) -> None:
        """Send pending output; the rest when the channel below becomes writable."""
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
        self._owner.running.pop(self, None)
        self._owner.bytes.count(self, 0)
        self._session = None  # OpenSSL's memory, although a queue or a timer may hold this handshake for a while

    def _send_alert(self, session: TlsSession) -> None:
        """Send OpenSSL's alert, if accepted at once, and read pending input, which would make close() send a reset."""
        try:
            session.flush()
            self._transport.receive(HANDSHAKE_RECEIVE_BYTES)
        except OSError:
            return


def _check_is_tls(data: bytes) -> None:
    """Raise ProtocolError if a client speaks another protocol to a TLS port.

    Deviation: Apache Kafka sends a TLS alert. Here the connection is closed without one, because such a client could
    not read it.
    """
    spoken = "Kafka's plain protocol" if data[:1] == b"\0" else foreign_protocol(int.from_bytes(data[:4], "big"))
    if spoken is not None and spoken != "TLS":
        raise ProtocolError(f"{FOREIGN_CLIENT}{spoken} to a TLS port")


def _declared_bytes(data: bytes) -> int:
    """Return the length that a ClientHello declares, MAX_ONE_HANDSHAKE_BYTES if its header is not whole.

    Raises ProtocolError if it is longer than a handshake may be, before OpenSSL makes room for it.
    """
    if len(data) < HELLO_HEADER_BYTES or int.from_bytes(data[3:5], "big") < 4:  # its length may lie in another record
        return MAX_ONE_HANDSHAKE_BYTES
    declared = int.from_bytes(data[6:HELLO_HEADER_BYTES], "big")
    if declared > MAX_ONE_HANDSHAKE_BYTES:
        raise ProtocolError(f"the handshake is longer than {MAX_ONE_HANDSHAKE_BYTES} bytes")
    return declared


def reason_of(error: ssl.SSLError) -> str:
    """Return OpenSSL's reason in words."""
    return error.reason.lower().replace("_", " ") if error.reason else str(error)
