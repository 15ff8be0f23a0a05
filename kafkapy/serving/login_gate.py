"""The driver of SASL logins, before the router: no request passes until the connection is authenticated.

The machine (security/authentication.py) decides; this module sends its responses, waits, and closes the connection. A
failed login is answered after connection.failed.authentication.delay.ms, and the connection is closed; until then no
further request is read. A refused bearer token is answered after that delay, too, but the client may send another. The
signatures of bearer tokens are verified in the IO pool, one at a time; clients' addresses take turns. If sessions have
a lifetime, it is checked at each request: after its end only a SaslHandshake is accepted (KIP-368). No log line
contains a token.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.handlers.context import CloseConnection
from kafkapy.protocol.api import SASL_HANDSHAKE
from kafkapy.protocol.primitives import Writer
from kafkapy.protocol.serving import Coalesce, ConnectionInfo, Route, Served
from kafkapy.runtime.pool import QueuedWork
from kafkapy.seams import Clock
from kafkapy.security.authentication import Login, LoginOutcome, LoginSettings, VersionsRequested
from kafkapy.security.log_text import one_line
from kafkapy.security.sasl import WorkNeeded

logger = logging.getLogger(__name__)

_ERROR_CODE: Final = slice(4, 6)
"""The position of the error code in an ApiVersions response, whose header is always version 0."""
_NO_ERROR: Final = b"\0\0"
MAX_LOGIN_FRAME_BYTES: Final = 32 * 1024
"""Bound of a frame before a login: a token of OAUTHBEARER has 16 KiB at most, other messages some hundred bytes.

Deviation: Apache Kafka takes sasl.server.max.receive.size, 512 KiB, of each of any number of peers. Here less, because
anybody may connect.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSettings:
    """The login settings of the listeners, and the router that gets authenticated requests."""

    settings: Callable[[str], LoginSettings]
    """The current settings of a listener, by its name."""
    route: Route
    coalesce: Coalesce
    clock: Clock
    failure_delay_ms: Mapping[str, int]
    """connection.failed.authentication.delay.ms by listener name."""
    timeout_ms: int
    """kafkapy.authentication.timeout.ms."""
    work: QueuedWork
    """Runs what a mechanism needs done off the loop."""

    def new_login(self, info: ConnectionInfo) -> "LoginGate":
        """Implements protocol.serving.NewLogin."""
        return LoginGate(self, info)


class LoginGate:
    """The login of one connection. Implements protocol.serving.Login."""

    __slots__ = ("_clock", "_gate", "_login", "max_frame_bytes", "timeout_ms")

    def __init__(self, gate: GateSettings, info: ConnectionInfo) -> None:
        settings = gate.settings(info.listener_name)
        self._gate = gate
        self._clock = gate.clock
        self._login = Login(settings)
        self.max_frame_bytes = min(settings.max_receive_bytes, MAX_LOGIN_FRAME_BYTES)
        self.timeout_ms = gate.timeout_ms

    @property
    def is_used_further(self) -> bool:
        return self._login.session_ends_ms is not None

    async def route(self, info: ConnectionInfo, frame: memoryview) -> Writer | None:
        """Return the response to a frame: the login's, or after it the router's. Raises ProtocolError."""
        login = self._login
        now_ms = self._clock.monotonic_ms()
        if login.is_complete:
            api_key = int.from_bytes(frame[:2], "big", signed=True)
            if api_key != SASL_HANDSHAKE or not login.maybe_begin_again(now_ms):
                if login.is_expired(now_ms):
                    if info.traffic is not None:
                        info.traffic.expired += 1
                    raise CloseConnection("the session has expired")
                handling = self._gate.route(info, frame)
                del frame  # the router frees it
                return await handling
        login.settings = self._gate.settings(info.listener_name)
        try:
            outcome = await self._receive(info, frame, now_ms)
        except VersionsRequested:
            return await self._respond_to_versions(info, frame)
        if outcome.failure is not None:
            return await self._refuse(info, outcome)
        if outcome.is_refused:
            await self._delay(info)
        if login.is_complete:
            _count_login(info, login, now_ms)
            info.principal = f"User:{login.user}"
            info.is_by_token = login.is_by_token
            info.is_authenticated = True
            logger.debug("Connection %s has authenticated as User:%s", info.connection_id, one_line(login.user))
        return outcome.response

    async def _receive(self, info: ConnectionInfo, frame: memoryview, now_ms: int) -> LoginOutcome:
        wall_ms = self._clock.wall_ms()
        try:
            return self._login.receive(frame, now_ms=now_ms, wall_ms=wall_ms)
        except WorkNeeded as needed:
            work = needed.work
        info.is_held = True
        await self._gate.work.run(work, info.peer_host)
        info.is_held = False
        return self._login.receive(frame, now_ms=now_ms, wall_ms=wall_ms)

    def coalesce(self, info: ConnectionInfo, data: bytes, position: int, most: int) -> Served | None:
        """Pass Produce requests to the router's `coalesce` while the session is authenticated and not expired."""
        if not self._login.is_complete or self._login.is_expired(self._clock.monotonic_ms()):
            return None
        return self._gate.coalesce(info, data, position, most)

    async def _respond_to_versions(self, info: ConnectionInfo, frame: memoryview) -> Writer | None:
        response = await self._gate.route(info, frame)
        assert response is not None
        self._login.versions_answered(is_success=bytes(response[_ERROR_CODE]) == _NO_ERROR)
        return response

    async def _refuse(self, info: ConnectionInfo, outcome: LoginOutcome) -> Writer | None:
        """Answer after the delay, then close, so that the time taken does not reveal what was wrong."""
        assert outcome.failure is not None
        _count_refusal(info)
        action = "re-authentication" if info.is_authenticated else "authentication"
        logger.info("Failed %s with %s (%s)", action, info.connection_id, one_line(outcome.failure))
        await self._delay(info)
        info.close_after_response = True
        return outcome.response

    async def _delay(self, info: ConnectionInfo) -> None:
        """Wait for connection.failed.authentication.delay.ms, without reading further requests."""
        info.is_held = True
        delay_ms = self._gate.failure_delay_ms[info.listener_name]
        if delay_ms > 0:
            await asyncio.sleep(delay_ms / 1000)
        info.is_held = False


def _count_login(info: ConnectionInfo, login: Login, now_ms: int) -> None:
    traffic = info.traffic
    if traffic is None:
        return
    if login.reauthentication_began_ms is not None:
        traffic.record_reauthentication(now_ms - login.reauthentication_began_ms, now_ms)
    else:
        traffic.record_login(can_reauthenticate=login.can_reauthenticate)


def _count_refusal(info: ConnectionInfo) -> None:
    traffic = info.traffic
    if traffic is None:
        return
    if info.is_authenticated:
        traffic.failed_reauthentications += 1
    else:
        traffic.failed_logins += 1
