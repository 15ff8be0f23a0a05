"""A connection of ours that logs in: what is sent first, what waits, when a session is renewed, what a refusal does."""

import pytest

from kafkapy.errors import ConfigError, ProtocolError
from kafkapy.protocol.client_connection import ClientConnection
from kafkapy.protocol.client_login import LoginError
from kafkapy.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from kafkapy.protocol.messages.describe_cluster_response import DescribeClusterResponse
from kafkapy.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from kafkapy.protocol.messages.sasl_handshake_response import SaslHandshakeResponse
from kafkapy.security.plain import PlainClient
from tests.unit.protocol.test_client_connection import DESCRIBE_CLUSTER, PendingRequest, requests, response

API_VERSIONS, HANDSHAKE, AUTHENTICATE = 18, 17, 36
ROWS = [
    ApiVersion(api_key=API_VERSIONS, min_version=0, max_version=4),
    ApiVersion(api_key=AUTHENTICATE, min_version=0, max_version=2),
    ApiVersion(api_key=DESCRIBE_CLUSTER, min_version=0, max_version=1),
]


def started(new_login=lambda: PlainClient("node", "secret")) -> ClientConnection:
    connection = ClientConnection("node 1", software_version="0", max_response_bytes=1 << 20, new_login=new_login)
    connection.start(0, 1000)
    connection.pop_output()
    return connection


def respond_to_versions(connection: ClientConnection) -> None:
    connection.receive(response(ApiVersionsResponse(api_keys=ROWS), 4, 0, API_VERSIONS))


def respond_to_login(connection: ClientConnection, correlation_id: int, *, lifetime_ms: int = 0) -> None:
    """Answer the handshake of that correlation id, then the token."""
    connection.receive(response(SaslHandshakeResponse(mechanisms=["PLAIN"]), 1, correlation_id, HANDSHAKE))
    assert requests(connection)[-1] == (AUTHENTICATE, 2, correlation_id + 1)
    authenticated = SaslAuthenticateResponse(session_lifetime_ms=lifetime_ms)
    connection.receive(response(authenticated, 2, correlation_id + 1, AUTHENTICATE))


def test_requests_wait_for_the_login() -> None:
    connection, requested = started(), PendingRequest()
    connection.submit(requested.request)
    respond_to_versions(connection)
    assert requests(connection) == [(HANDSHAKE, 1, 1)]
    assert not connection.is_ready
    respond_to_login(connection, 1)
    assert connection.is_ready
    assert requests(connection) == [(DESCRIBE_CLUSTER, 1, 3)]


def test_a_session_is_renewed_before_it_ends() -> None:
    connection, early, late, after = (
        started(),
        PendingRequest(deadline_ms=9_499),
        PendingRequest(deadline_ms=9_500),
        PendingRequest(),
    )
    respond_to_versions(connection)
    connection.pop_output()
    respond_to_login(connection, 1, lifetime_ms=10_000)
    connection.submit(early.request)
    assert requests(connection) == [(DESCRIBE_CLUSTER, 1, 3)]
    connection.submit(late.request)
    connection.submit(after.request)
    assert requests(connection) == [(HANDSHAKE, 1, 4)]
    connection.receive(response(DescribeClusterResponse(cluster_id="a"), 1, 3))
    assert len(early.responses) == 1
    respond_to_login(connection, 4, lifetime_ms=10_000)
    assert requests(connection) == [(DESCRIBE_CLUSTER, 1, 6), (DESCRIBE_CLUSTER, 1, 7)]


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([SaslHandshakeResponse(33, mechanisms=["SCRAM-SHA-256"])], "PLAIN is not enabled there, but SCRAM-SHA-256"),
        ([SaslHandshakeResponse(), SaslAuthenticateResponse(58, error_message="Invalid username")], "Invalid username"),
        ([SaslHandshakeResponse(), SaslAuthenticateResponse(auth_bytes=b"x")], "answered PLAIN with a challenge"),
    ],
)
def test_a_refused_login_ends_the_connection(messages, reason) -> None:
    connection, requested = started(), PendingRequest()
    connection.submit(requested.request)
    respond_to_versions(connection)
    *before, last = [
        response(message, version, correlation_id, api_key)
        for message, version, correlation_id, api_key in zip(
            messages, (1, 2), (1, 2), (HANDSHAKE, AUTHENTICATE), strict=False
        )
    ]
    for frame in before:
        connection.receive(frame)
    with pytest.raises(LoginError, match=reason):
        connection.receive(last)
    assert connection.close() == [requested.request]


def test_without_a_password_there_is_no_login() -> None:
    def no_login():
        raise ConfigError("sasl.jaas.config", "[hidden]", "it has no username")

    connection = started(no_login)
    with pytest.raises(ProtocolError, match=r"no login is possible: .*it has no username"):
        respond_to_versions(connection)
