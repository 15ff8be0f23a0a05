"""The machine of a login: its states, sessions that end, and what it never takes. Bytes on the wire: scenarios."""

import struct

import pytest

from kafkapy.errors import ProtocolError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import write_request_header
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from kafkapy.protocol.messages.metadata_request import MetadataRequest
from kafkapy.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from kafkapy.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from kafkapy.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from kafkapy.protocol.primitives import Writer
from kafkapy.security.authentication import Login, LoginSettings, LoginState, VersionsRequested
from kafkapy.security.plain import PlainServer
from kafkapy.security.sasl import SaslError

USERS = {"alice": "wonder", "bob": "builder"}
TOKEN = b"\0alice\0wonder"
NOW_MS, WALL_MS = 5_000, 1_700_000_000_000


class TokenServer(PlainServer):
    """PLAIN with credentials that end."""

    expires_at_ms = WALL_MS + 700
    is_by_token = False


class BrokenServer(PlainServer):
    def evaluate(self, response: bytes, now_ms: int) -> bytes:
        raise SaslError("a secret reason")


def login(server=PlainServer, *, max_reauth_ms: int = 0) -> Login:
    servers = {"PLAIN": lambda: server(USERS), "OTHER": lambda: server(USERS)}
    return Login(LoginSettings(servers=servers, max_reauth_ms={"PLAIN": max_reauth_ms}))


def frame(request, version: int) -> memoryview:
    out = Writer()
    write_request_header(out, api_key=request.API_KEY, api_version=version, correlation_id=7, client_id="unit")
    request.write(out, version)
    return memoryview(out)


def receive(machine: Login, request, version: int, now_ms: int = NOW_MS):
    return machine.receive(frame(request, version), now_ms=now_ms, wall_ms=WALL_MS)


def log_in(machine: Login, now_ms: int = NOW_MS, token: bytes = TOKEN, mechanism: str = "PLAIN"):
    assert receive(machine, SaslHandshakeRequest(mechanism=mechanism), 1, now_ms).failure is None
    return receive(machine, SaslAuthenticateRequest(auth_bytes=token), 1, now_ms)


def lifetime_ms(outcome) -> int:
    return SaslAuthenticateResponse.decode(bytes(outcome.response)[4:], 1).session_lifetime_ms


def test_api_versions_is_retried_until_it_is_understood() -> None:
    machine = login()
    for is_success in (False, False, True):
        with pytest.raises(VersionsRequested):
            receive(machine, ApiVersionsRequest(), 0)
        machine.versions_answered(is_success=is_success)
    with pytest.raises(ProtocolError, match="Unexpected Kafka request of type API_VERSIONS during SASL handshake"):
        receive(machine, ApiVersionsRequest(), 0)


@pytest.mark.parametrize(
    ("server", "max_reauth_ms", "expected_ms"),
    [(PlainServer, 0, 0), (PlainServer, 1000, 1000), (TokenServer, 0, 700), (TokenServer, 1000, 700)],
)
def test_a_session_ends_with_the_first_of_its_bounds(server, max_reauth_ms, expected_ms) -> None:
    machine = login(server, max_reauth_ms=max_reauth_ms)
    outcome = log_in(machine)
    assert machine.state is LoginState.COMPLETE
    assert lifetime_ms(outcome) == expected_ms
    assert machine.session_ends_ms == (NOW_MS + expected_ms if expected_ms else None)
    assert not machine.is_expired(NOW_MS + expected_ms)
    assert machine.is_expired(NOW_MS + expected_ms + 1) == bool(expected_ms)


def test_a_login_begins_anew_once_a_second_where_sessions_end() -> None:
    machine = login(max_reauth_ms=60_000)
    log_in(machine)
    assert machine.maybe_begin_again(NOW_MS)
    log_in(machine)
    assert not machine.maybe_begin_again(NOW_MS + 999)
    assert machine.maybe_begin_again(NOW_MS + 1000)
    lasting = login()
    log_in(lasting)
    assert not lasting.maybe_begin_again(NOW_MS)


def test_a_login_begun_anew_is_for_the_same_user_and_mechanism() -> None:
    machine = login(max_reauth_ms=60_000)
    log_in(machine)
    machine.maybe_begin_again(NOW_MS)
    outcome = log_in(machine, token=b"\0bob\0builder")
    assert outcome.failure == "Cannot change principals during re-authentication from User.alice: User.bob"
    assert machine.state is LoginState.FAILED
    machine = login(max_reauth_ms=60_000)
    log_in(machine)
    machine.maybe_begin_again(NOW_MS)
    outcome = log_in(machine, mechanism="OTHER")
    assert (outcome.response, machine.state) == (None, LoginState.FAILED)


def test_what_a_client_is_not_to_know_is_not_returned() -> None:
    outcome = log_in(login(BrokenServer))
    assert b"secret" not in bytes(outcome.response)
    assert "a secret reason" in outcome.failure


def test_other_requests_fail_between_handshake_and_token() -> None:
    machine = login()
    receive(machine, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    outcome = receive(machine, MetadataRequest(), 9)
    assert outcome.response is None
    assert outcome.failure == "Unexpected Kafka request of type METADATA during SASL authentication."


def test_a_token_above_the_bound_fails() -> None:
    machine = Login(
        LoginSettings(servers={"PLAIN": lambda: PlainServer(USERS)}, max_reauth_ms={}, max_receive_bytes=99)
    )
    receive(machine, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    outcome = receive(machine, SaslAuthenticateRequest(auth_bytes=b"x" * 100), 1)
    assert outcome.failure == "Failing SASL authentication due to invalid receive size"


@pytest.mark.parametrize("version", [-1, 2, 99])
def test_a_handshake_of_an_unknown_version_closes(version) -> None:
    with pytest.raises(ProtocolError, match=f"SaslHandshakeRequest has no version {version}"):
        login().receive(raw_frame(17, version, b"\0\5PLAIN"), now_ms=NOW_MS, wall_ms=WALL_MS)


@pytest.mark.parametrize("version", [-1, 3, 99])
def test_a_token_of_an_unknown_version_closes(version) -> None:
    machine = login()
    receive(machine, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    token = (b"\0" if version >= 2 else b"") + b"\x0e" + TOKEN + b"\0"
    with pytest.raises(ProtocolError, match=f"SaslAuthenticateRequest has no version {version}"):
        machine.receive(raw_frame(36, version, token), now_ms=NOW_MS, wall_ms=WALL_MS)
    assert not machine.is_complete


def raw_frame(api_key: int, version: int, body: bytes) -> memoryview:
    return memoryview(struct.pack(">hhih", api_key, version, 7, -1) + body)


class ChallengingServer(PlainServer):
    """Answers the first token with a challenge."""

    def evaluate(self, response: bytes, now_ms: int) -> bytes:
        if response == b"first":
            return b"challenge"
        return super().evaluate(response, now_ms)


def test_a_challenge_without_a_header_is_sent_as_it_is() -> None:
    """To clients before Kafka 1.0. A second login may be of another kind: with headers, or without."""
    machine = login(ChallengingServer, max_reauth_ms=60_000)
    receive(machine, SaslHandshakeRequest(mechanism="PLAIN"), 0)
    outcome = machine.receive(memoryview(b"first"), now_ms=NOW_MS, wall_ms=WALL_MS)
    assert (bytes(outcome.response), machine.is_complete) == (b"challenge", False)
    machine.receive(memoryview(TOKEN), now_ms=NOW_MS, wall_ms=WALL_MS)
    assert machine.is_complete
    for version in (1, 0):
        now_ms = NOW_MS + 1000 * (2 - version)
        assert machine.maybe_begin_again(now_ms)
        receive(machine, SaslHandshakeRequest(mechanism="PLAIN"), version, now_ms)
        if version:
            receive(machine, SaslAuthenticateRequest(auth_bytes=TOKEN), 1, now_ms)
        else:
            machine.receive(memoryview(TOKEN), now_ms=now_ms, wall_ms=WALL_MS)
        assert machine.is_complete


@pytest.mark.parametrize(("version", "can_reauthenticate"), [(0, False), (1, True), (2, True)])
def test_a_client_that_can_reauthenticate_is_known_by_its_version(version, can_reauthenticate) -> None:
    machine = login()
    receive(machine, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    receive(machine, SaslAuthenticateRequest(auth_bytes=TOKEN), version)
    assert machine.can_reauthenticate == can_reauthenticate


class ByToken(PlainServer):
    is_by_token = True


def test_whether_a_token_was_used_is_known_after_each_login() -> None:
    machine = login(ByToken, max_reauth_ms=60_000)
    log_in(machine)
    assert machine.is_by_token
    machine.settings = login(max_reauth_ms=60_000).settings
    machine.maybe_begin_again(NOW_MS)
    log_in(machine)
    assert not machine.is_by_token


def test_a_session_does_not_end_any_more_if_it_was_renewed_without_a_bound() -> None:
    machine = login(max_reauth_ms=1000)
    log_in(machine)
    machine.settings = login().settings
    assert machine.maybe_begin_again(NOW_MS)
    assert lifetime_ms(log_in(machine)) == 0
    assert not machine.is_expired(NOW_MS + 1001)


def test_the_reason_for_another_mechanism_is_logged() -> None:
    machine = login(max_reauth_ms=60_000)
    log_in(machine)
    machine.maybe_begin_again(NOW_MS)
    assert log_in(machine, mechanism="OTHER").failure == (
        "SASL mechanism 'OTHER' requested by client is not supported for re-authentication of mechanism 'PLAIN'"
    )


def test_another_request_between_handshake_and_token_is_told_the_reason_if_it_can_be() -> None:
    machine = login()
    receive(machine, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    outcome = receive(machine, FindCoordinatorRequest(key="group"), 3)
    response = FindCoordinatorResponse.decode(bytes(outcome.response)[5:], 3)
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert response.error_message == "Unexpected Kafka request of type FIND_COORDINATOR during SASL authentication."
    machine = login()
    receive(machine, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    outcome = machine.receive(raw_frame(10, 99, b"\0"), now_ms=NOW_MS, wall_ms=WALL_MS)
    assert (outcome.response, machine.state) == (None, LoginState.FAILED)


class EndedServer(ChallengingServer):
    """Credentials that had ended before the login: accepted within the skew of clocks."""

    expires_at_ms = WALL_MS - 5


def test_a_session_whose_credentials_have_ended_lasts_no_longer_than_its_login() -> None:
    machine = login(EndedServer)
    assert lifetime_ms(log_in(machine, token=b"first")) == 0
    assert lifetime_ms(receive(machine, SaslAuthenticateRequest(auth_bytes=TOKEN), 1)) == 0
    assert (machine.is_expired(NOW_MS), machine.is_expired(NOW_MS + 1)) == (False, True)


def test_a_failed_renewal_is_called_one() -> None:
    machine = login(max_reauth_ms=60_000)
    log_in(machine)
    machine.settings = login(BrokenServer).settings
    machine.maybe_begin_again(NOW_MS)
    assert log_in(machine).failure.startswith("Authentication failed during re-authentication due to")
    assert log_in(login(BrokenServer)).failure.startswith("Authentication failed during authentication due to")
