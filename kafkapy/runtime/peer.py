"""A connection to another node: made on first use, and again after a failure, with Apache Kafka's back-off.

A Peer is one address and one purpose: requests that must not wait behind others (a heartbeat behind a large fetch) have
a Peer of their own. Requests are sent in the order of submission and may be pipelined.

The back-off doubles from reconnect_backoff_ms to reconnect_backoff_max_ms, with 20 % jitter, and is reset once the
peer's API versions are known. Requests wait while it runs; when a connection attempt fails, waiting requests fail.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from kafkapy.dataclass import dataclass
from kafkapy.errors import KafkapyError, ProtocolError
from kafkapy.protocol.client_connection import ClientConnection, ClientRequest
from kafkapy.protocol.client_login import LoginError, NewLogin
from kafkapy.protocol.primitives import Message
from kafkapy.protocol.traffic import OutboundTraffic
from kafkapy.runtime.after_reads import AfterReads
from kafkapy.seams import Channel, Clock, Connector, Random, ReadableBuffer

logger = logging.getLogger(__name__)

RECEIVE_BYTES = 256 * 1024
"""Maximum number of bytes read from the socket in one pass of the loop."""
LARGE_BYTES = 16 * 1024
"""The first time that a response lacks at least this many bytes, a buffer is made, and kept, to receive into."""


class NoResponseError(KafkapyError):
    """A request will not be answered. is_unsupported: the peer supports none of our versions."""

    def __init__(self, peer: str, *, is_unsupported: bool) -> None:
        super().__init__(f"{peer} {'speaks no version of ours' if is_unsupported else 'did not answer'}")
        self.is_unsupported = is_unsupported


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSettings:
    """A node's name and version on connections to other nodes, and limits; the defaults are Apache Kafka's."""

    client_id: str = ""
    software_version: str = ""
    traffic: OutboundTraffic | None = None
    """What requests, responses, logins and closed connections are counted in, if anywhere."""
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 50
    """The quorum's connections have 500."""
    connection_setup_timeout_ms: int = 10_000
    """socket.connection.setup.timeout.ms."""
    max_response_bytes: int = 115_343_360
    """A fetch may return one batch as large as a request, beside what the other partitions of its response take."""


class Peer:
    """An address and at most one connection to it. Not thread-safe: everything runs on the event loop."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        connector: Connector,
        clock: Clock,
        random: Random,
        settings: PeerSettings,
        new_login: NewLogin | None = None,
    ) -> None:
        """`new_login`: makes the login state machine of each connection; None if the peer requires no login."""
        self._new_login = new_login
        self._traffic = settings.traffic
        self.host = host
        self.port = port
        self._connector = connector
        self._clock = clock
        self._random = random
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[ClientRequest] = deque()
        """Requests submitted while there is no connection."""
        self._cancel_attempt: Callable[[], None] | None = None
        self._setup_deadline_ms = 0
        self._channel: Channel | None = None
        self._connection: ClientConnection | None = None
        self._unsent = b""
        self._buffer: memoryview | None = None
        """Receives large responses; made for the first one."""
        self._has_read_part = False
        """Whether a further part of a response was read since the timer was set."""
        self._failures = 0
        self._retry: asyncio.TimerHandle | None = None
        self._timer: AfterReads | None = None
        self._is_closed = False

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def api_versions(self) -> dict[int, tuple[int, int]] | None:
        """The lowest and highest version of each API of the peer, by API key; None while not connected."""
        return None if self._connection is None else self._connection.peer_versions

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def send(self, request: ClientRequest) -> None:
        """Submit a request; exactly one of its callbacks is called, never before this returns."""
        if self._is_closed:
            self._loop.call_soon(request.on_failure, False)
            return
        request.deadline_ms = self._clock.monotonic_ms() + request.timeout_ms
        if self._connection is None:
            self._waiting.append(request)
            self._maybe_connect()
            self._arm_timer()
        else:
            self._loop.call_soon(self._submit, self._connection, request)

    def send_request(
        self, api_key: int, build: Callable[[int], Message], *, versions: tuple[int, int], timeout_ms: int
    ) -> "asyncio.Future[Message]":
        """Send `build(version)`; return a future of the response, which may fail with NoResponseError.

        versions: our lowest and highest version. The future may be cancelled; a late response is dropped.
        """
        answered: asyncio.Future[Message] = self._loop.create_future()

        def on_response(response: Message, _version: int) -> None:
            if not answered.done():
                answered.set_result(response)

        def on_failure(is_unsupported: bool) -> None:
            if not answered.done():
                answered.set_exception(NoResponseError(str(self), is_unsupported=is_unsupported))
                answered.exception()  # avoids a warning if the caller is gone

        self.send(ClientRequest(api_key, build, on_response, on_failure, timeout_ms, *versions))
        return answered

    def close(self) -> None:
        """Close the connection; pending requests fail."""
        self._is_closed = True
        if self._retry is not None:
            self._retry.cancel()
        if self._cancel_attempt is not None:
            self._cancel_attempt()
            self._cancel_attempt = None
        self._drop_connection()
        self._arm_timer()

    # ---- connecting

    def _maybe_connect(self) -> None:
        if self._cancel_attempt is not None or self._retry is not None or self._channel is not None:
            return
        self._cancel_attempt = self._connector.connect(self.host, self.port, self._on_connected)
        self._setup_deadline_ms = self._clock.monotonic_ms() + self._settings.connection_setup_timeout_ms

    def _on_connected(self, channel: Channel | None, error: OSError | None) -> None:
        self._cancel_attempt = None
        if channel is None:
            logger.debug("Connection to %s failed: %s", self, error)
            self._begin_backoff()
            self._fail_waiting()
            self._arm_timer()
            return
        self._channel = channel
        connection = self._connection = ClientConnection(
            self._settings.client_id,
            software_version=self._settings.software_version,
            max_response_bytes=self._settings.max_response_bytes,
            new_login=self._new_login,
            traffic=self._traffic,
        )
        connection.start(self._clock.monotonic_ms(), self._settings.connection_setup_timeout_ms)
        channel.on_readable(self._on_readable)
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            connection.submit(request)
        self._write()
        self._arm_timer()

    def _begin_backoff(self) -> None:
        """Delay the next attempt to connect; then start it if requests wait."""
        limits = self._settings
        base_ms = min(limits.reconnect_backoff_ms << min(self._failures, 16), limits.reconnect_backoff_max_ms)
        self._failures += 1
        delay_ms = base_ms * (80 + self._random.randrange(0, 41)) / 100
        self._retry = self._loop.call_later(delay_ms / 1000, self._end_backoff)

    def _end_backoff(self) -> None:
        self._retry = None
        if self._waiting and not self._is_closed:
            self._maybe_connect()
            self._arm_timer()

    def _fail_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            self._loop.call_soon(request.on_failure, False)

    # ---- an established connection

    def _submit(self, connection: ClientConnection, request: ClientRequest) -> None:
        if connection is not self._connection:
            request.on_failure(False)
            return
        try:
            connection.submit(request)
        except ProtocolError as error:
            self._lose(f"{self}: {error}")
            request.on_failure(False)
            return
        self._write()
        self._arm_timer()

    def _on_readable(self) -> None:
        channel, connection = self._channel, self._connection
        assert channel is not None
        assert connection is not None
        try:
            missing_bytes = connection.missing_bytes
            data = self._receive(channel, missing_bytes)
            if data is None:
                return
            if not data:
                self._lose(f"{self} closed the connection")
                return
            connection.receive(data)
            if 0 < connection.missing_bytes == missing_bytes - len(data):
                self._has_read_part = True
                return  # a further part of the same response
        except LoginError as error:
            logger.warning("Could not log in to %s: %s", self, error)
            if self._traffic is not None:
                self._traffic.failed_logins += 1
            self._lose(f"{self}: {error}")
            return
        except (OSError, ProtocolError) as error:
            self._lose(f"{self}: {error}")
            return
        if connection.is_ready:
            self._failures = 0
        if connection is self._connection:
            self._write()
            self._arm_timer()

    def _receive(self, channel: Channel, missing_bytes: int) -> ReadableBuffer | None:
        """Return received bytes, valid until the next call; None if there are none yet, none at the stream's end.

        Memory for 256 KiB, made and freed for each part of a large response, costs more than copying from a buffer. A
        connection that had one large response receives everything into its buffer.
        """
        if self._buffer is None:
            if missing_bytes < LARGE_BYTES:
                return channel.receive(RECEIVE_BYTES)
            self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        count = channel.receive_into(self._buffer)
        return None if count is None else self._buffer[:count]

    def _write(self) -> None:
        channel, connection = self._channel, self._connection
        if channel is None or connection is None:
            return
        self._unsent += connection.pop_output()
        if not self._unsent:
            return
        try:
            count = channel.send([self._unsent], False)
        except OSError as error:
            self._lose(f"{self}: {error}")
            return
        self._unsent = self._unsent[count:]
        channel.on_writable(self._write if self._unsent else None)

    def _lose(self, reason: str) -> None:
        logger.debug("Connection lost: %s", reason)
        self._drop_connection()
        if not self._is_closed:
            self._begin_backoff()
        self._arm_timer()

    def _drop_connection(self) -> None:
        """Close the channel and fail all submitted requests; by call_soon, as a callback may submit again."""
        channel, connection = self._channel, self._connection
        self._channel = self._connection = None
        self._unsent = b""
        if channel is not None:
            channel.close()
            if self._traffic is not None:
                self._traffic.closed += 1
        if connection is not None:
            for request in connection.close():
                self._loop.call_soon(request.on_failure, False)
        self._fail_waiting()

    # ---- time

    def _arm_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._has_read_part = False
        deadlines = [request.deadline_ms for request in self._waiting]
        if self._connection is not None and (deadline_ms := self._connection.deadline_ms()) is not None:
            deadlines.append(deadline_ms)
        if self._cancel_attempt is not None:
            deadlines.append(self._setup_deadline_ms)
        if deadlines and not self._is_closed:
            delay_ms = max(min(deadlines) - self._clock.monotonic_ms(), 0)
            self._timer = AfterReads(self._loop, delay_ms / 1000, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        if self._connection is not None and self._connection.is_expired(now_ms):
            if self._has_read_part:  # after a stall, there may be more of a large response than is read in a few passes
                self._arm_timer()
                return
            self._lose(f"{self} did not answer in time")
            return
        if self._cancel_attempt is not None and now_ms >= self._setup_deadline_ms:
            self._cancel_attempt()
            self._on_connected(None, TimeoutError(f"no connection to {self} within the set-up time-out"))
            return
        expired = [request for request in self._waiting if now_ms >= request.deadline_ms]
        for request in expired:
            self._waiting.remove(request)
            self._loop.call_soon(request.on_failure, False)
        self._arm_timer()
