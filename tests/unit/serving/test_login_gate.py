"""What a login is asked for follows the configuration as it is now, also on connections that are open for long."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import write_request_header
from kafkapy.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from kafkapy.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from kafkapy.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from kafkapy.protocol.messages.sasl_handshake_response import SaslHandshakeResponse
from kafkapy.protocol.primitives import Writer
from kafkapy.protocol.serving import ConnectionInfo, Served
from kafkapy.protocol.traffic import ConnectionTraffic
from kafkapy.runtime.pool import QueuedWork
from kafkapy.security.authentication import LoginSettings
from kafkapy.security.oauthbearer import INVALID_TOKEN, Bearer, JwtError, OAuthBearerServer
from kafkapy.security.plain import PlainServer
from kafkapy.security.sasl import OAUTHBEARER
from kafkapy.serving.login_gate import MAX_LOGIN_FRAME_BYTES, GateSettings, LoginGate
from tests.simulator.loop import SimLoop
from tests.support.bearer_tokens import bearer

LISTENER = "LISTENER"
TOKEN = b"\0alice\0wonder"
SERVED = Served(1, 10, b"")


class StillClock:
    now_ms = 5_000

    def wall_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def monotonic_ns(self) -> int:
        return 5_000_000_000


def settings(users: Mapping[str, str], mechanism: str = "PLAIN") -> LoginSettings:
    return LoginSettings(servers={mechanism: partial(PlainServer, users)}, max_reauth_ms={mechanism: 60_000})


class QueuedPool:
    """seams.IoPool whose calls run when the test says so."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def submit(self, call: Callable[[], Any], on_done: Callable[[Any, BaseException | None], None]) -> None:
        self.calls.append(lambda: on_done(call(), None))

    def resize(self, worker_count: int) -> None: ...

    def close(self) -> None: ...


class Listener:
    """One connection to a listener whose settings may change."""

    def __init__(self, users: Mapping[str, str], failure_delay_ms: int = 0) -> None:
        self.settings = settings(users)
        self.clock = StillClock()
        self.pool = QueuedPool()
        self.info = ConnectionInfo("1", LISTENER, "SASL_PLAINTEXT", "10.0.0.7", 1, is_authenticated=False)
        gate = GateSettings(
            settings=lambda _: self.settings,
            route=lambda *_: self._served(),
            coalesce=lambda *_: SERVED,
            clock=self.clock,
            failure_delay_ms={LISTENER: failure_delay_ms, "OTHER": 0},
            timeout_ms=1000,
            work=QueuedWork(self.pool, at_once=1),
        )
        self._gate = LoginGate(gate, self.info)

    async def _served(self) -> Writer | None:
        raise AssertionError("only logins are sent")

    def handle(self, request) -> Coroutine[Any, Any, Writer | None]:
        out = Writer()
        write_request_header(out, api_key=request.API_KEY, api_version=1, correlation_id=7, client_id=None)
        request.write(out, 1)
        return self._gate.route(self.info, memoryview(out))

    def _send(self, request) -> bytes:
        coroutine = self.handle(request)
        try:
            coroutine.send(None)
        except StopIteration as stop:
            return bytes(stop.value)
        raise AssertionError("a login waited")

    def shake_hands(self, mechanism: str = "PLAIN") -> int:
        response = self._send(SaslHandshakeRequest(mechanism=mechanism))
        return SaslHandshakeResponse.decode(response[4:], 1).error_code

    def authenticate(self) -> int:
        response = self._send(SaslAuthenticateRequest(auth_bytes=TOKEN))
        return SaslAuthenticateResponse.decode(response[4:], 1).error_code


async def test_a_failed_login_is_answered_after_the_delay_and_nothing_is_read_until_then(loop: SimLoop) -> None:
    listener = Listener({}, failure_delay_ms=100)
    assert listener.shake_hands() == 0
    refused = loop.create_task(listener.handle(SaslAuthenticateRequest(auth_bytes=TOKEN)))
    await asyncio.sleep(0.099)
    assert not refused.done()
    assert listener.info.is_held
    response = await refused
    assert loop.now_ms() == 100
    assert response is not None
    assert SaslAuthenticateResponse.decode(bytes(response)[4:], 1).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert listener.info.close_after_response


async def test_a_refused_bearer_token_is_verified_by_a_worker_and_answered_after_the_delay(loop: SimLoop) -> None:
    def refuse(token: str, now_ms: int) -> Callable[[], Bearer]:
        raise_error = JwtError("not signed by us")

        def verify() -> Bearer:
            raise raise_error

        return verify

    listener = Listener({}, failure_delay_ms=100)
    servers = {OAUTHBEARER: lambda: OAuthBearerServer(refuse, lambda reason: None)}
    listener.settings = LoginSettings(servers=servers, max_reauth_ms={})
    assert listener.shake_hands(OAUTHBEARER) == 0
    task = loop.create_task(listener.handle(SaslAuthenticateRequest(auth_bytes=bearer("a.b.c"))))
    await asyncio.sleep(1)
    assert not task.done()
    assert listener.info.is_held
    listener.pool.calls.pop()()
    response = await task
    assert response is not None
    challenge = SaslAuthenticateResponse.decode(bytes(response)[4:], 1)
    assert (challenge.error_code, bytes(challenge.auth_bytes)) == (0, INVALID_TOKEN.encode())
    assert loop.now_ms() == 1100
    assert not listener.info.close_after_response


def test_produce_requests_pass_together_only_while_a_session_lasts() -> None:
    """They do not go through the router: not before the login, not during another one, not after its end."""
    listener = Listener({"alice": "wonder"})

    def served() -> Served | None:
        return listener._gate.coalesce(listener.info, b"", 0, 1)

    assert served() is None
    listener.shake_hands()
    assert served() is None
    listener.authenticate()
    assert served() is SERVED
    assert listener.info.principal == "User:alice"
    listener.clock.now_ms += 60_000
    assert served() is SERVED
    listener.clock.now_ms += 1
    assert served() is None
    listener.shake_hands()
    assert served() is None
    listener.authenticate()
    assert served() is SERVED


def test_failed_logins_and_renewals_are_counted_apart() -> None:
    for listener, counts in ((Listener({"alice": "wonder"}), (1, 0)), (logged_in(), (0, 1))):
        listener.info.traffic = traffic = ConnectionTraffic()
        listener.settings = settings({})
        listener.shake_hands()
        assert listener.authenticate() == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert (traffic.failed_logins, traffic.failed_reauthentications) == counts


def logged_in() -> Listener:
    listener = Listener({"alice": "wonder"})
    assert (listener.shake_hands(), listener.authenticate()) == (0, 0)
    assert listener.info.is_authenticated
    return listener


def test_a_session_is_renewed() -> None:
    listener = logged_in()
    assert (listener.shake_hands(), listener.authenticate()) == (0, 0)
    assert not listener.info.close_after_response


def test_who_was_removed_cannot_renew_a_session() -> None:
    listener = logged_in()
    listener.settings = settings({"bob": "builder"})
    assert listener.shake_hands() == 0
    assert listener.authenticate() == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert listener.info.close_after_response


def test_a_session_cannot_be_renewed_by_a_mechanism_that_was_disabled() -> None:
    listener = logged_in()
    listener.settings = settings({"alice": "wonder"}, mechanism="OTHER")
    assert listener.shake_hands() == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert listener.info.close_after_response


def test_who_was_removed_after_connecting_cannot_log_in() -> None:
    listener = Listener({"alice": "wonder"})
    listener.settings = settings({})
    assert listener.shake_hands() == 0
    assert listener.authenticate() == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_line_of_the_log_is_bounded(caplog) -> None:
    with caplog.at_level(logging.INFO):
        Listener({}).shake_hands("\n" * 32_000)
    (line,) = caplog.messages
    assert "Unsupported SASL mechanism \\n\\n" in line
    assert len(line) < 1000


def test_a_frame_before_the_login_is_bounded_whatever_the_key_says() -> None:
    assert Listener({})._gate.max_frame_bytes == MAX_LOGIN_FRAME_BYTES
    small = LoginSettings(servers={}, max_reauth_ms={}, max_receive_bytes=100)
    gate = replace(Listener({})._gate._gate, settings=lambda _: small)
    assert LoginGate(gate, Listener({}).info).max_frame_bytes == 100
