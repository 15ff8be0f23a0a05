"""SASL logins, right and wrong, byte by byte: what is answered, what closes the connection, which APIs pass when.

One broker with three listeners: PLAINTEXT, SASL_PLAINTEXT, and EXPIRING, whose sessions end.
"""

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import KafkaError, Producer

from kafkapy import Broker
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.list_groups_request import ListGroupsRequest
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkapy.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from kafkapy.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from tests.support.bearer_tokens import SigningKey, write_jwks
from tests.support.client_requests import batch_of, produce
from tests.support.logins import MODULES, exchange, log_in, log_in_raw, sasl_broker, sasl_client, shake_hands
from tests.support.wire import ConnectionClosed, WireClient

IN_JAVA_ORDER = ["PLAIN", "SCRAM-SHA-512", "SCRAM-SHA-256"]
USERS = {"alice": "wonder", "bob": "builder"}
UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE, SASL_AUTHENTICATION_FAILED = 33, 34, 58
UNKNOWN_TOPIC_OR_PARTITION = 3
SESSION_MS = 1200
TOKEN_OF_2 = b"\0" + b"\x0e\0alice\0wonder" + b"\0"
"""What follows the fixed fields of SaslAuthenticate 2: the header's tags, the token, the body's tags."""
Connect = Callable[[], WireClient]


@pytest.fixture(scope="module")
def broker(tmp_path_factory) -> Iterator[dict[str, int]]:
    properties = {
        "listener.name.expiring.plain.connections.max.reauth.ms": str(SESSION_MS),
        "kafkapy.authentication.timeout.ms": "600000",  # a refused login must close without it
    }
    directory = tmp_path_factory.mktemp("kafka")
    with sasl_broker(directory, ("SASL_PLAINTEXT", "EXPIRING"), USERS, properties) as ports:
        yield ports


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def connect(broker, stack) -> Connect:
    return lambda: stack.enter_context(WireClient(f"127.0.0.1:{broker['SASL_PLAINTEXT']}"))


@pytest.fixture
def client(connect) -> WireClient:
    return connect()


@pytest.fixture
def expiring(broker, stack) -> WireClient:
    return stack.enter_context(WireClient(f"127.0.0.1:{broker['EXPIRING']}"))


def is_served(client: WireClient) -> bool:
    return client.call(MetadataRequest(topics=[]), 12).brokers != []


def assert_closed(client: WireClient) -> None:
    with pytest.raises(ConnectionClosed):
        client.receive_frame()


# -- right ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_user_logs_in_with_the_right_password(client, version) -> None:
    response = log_in(client, sasl_client("PLAIN", "alice", "wonder"), version=version)
    assert response.error_code == 0
    assert response.error_message == ""
    assert response.session_lifetime_ms == 0
    assert is_served(client)


def test_versions_are_returned_before_the_login(client) -> None:
    versions = client.call(ApiVersionsRequest(client_software_name="wire", client_software_version="1"), 4)
    listed = {each.api_key: (each.min_version, each.max_version) for each in versions.api_keys}
    assert (listed[17], listed[36]) == ((0, 1), (0, 2))
    log_in(client, sasl_client("PLAIN", "bob", "builder"))
    assert is_served(client)


def test_api_versions_may_be_sent_until_it_is_understood(client) -> None:
    client.send_frame(struct.pack(">hhihB", 18, 99, 7, -1, 0))
    assert client.receive_frame()[4:6] == struct.pack(">h", 35)
    refused = client.call(ApiVersionsRequest(client_software_name="", client_software_version="1"), 3)
    assert refused.error_code == 42
    assert client.call(ApiVersionsRequest(), 0).error_code == 0
    log_in(client, sasl_client("PLAIN", "bob", "builder"))
    assert is_served(client)


def test_clients_before_kafka_1_send_tokens_without_a_header(client) -> None:
    log_in_raw(client, sasl_client("PLAIN", "alice", "wonder"))
    assert is_served(client)


# -- wrong ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("token", "reported"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0wonder", "Authentication failed: Invalid username or password"),
        (b"\0\0wonder", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0\0\0\0\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (
            b"bob\0alice\0wonder",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
def test_a_wrong_password_is_answered_and_closes(client, token, reported) -> None:
    shake_hands(client, "PLAIN")
    response = client.call(SaslAuthenticateRequest(auth_bytes=token), 2)
    assert (response.error_code, response.error_message) == (SASL_AUTHENTICATION_FAILED, reported)
    assert_closed(client)


@pytest.mark.parametrize("token", [b"", b"n,,n=alice", b"n,,n=alice,r=", b"y,,n=alice,r=abc", b"\xff" * 100])
def test_scram_reveals_no_more_than_that_it_failed(client, token) -> None:
    shake_hands(client, "SCRAM-SHA-256")
    response = client.call(SaslAuthenticateRequest(auth_bytes=token), 2)
    assert response.error_code == SASL_AUTHENTICATION_FAILED
    assert response.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    )
    assert_closed(client)


@pytest.mark.ours
def test_an_unknown_scram_user_fails_at_the_step_of_a_wrong_password(client) -> None:
    response = log_in(client, scram := sasl_client("SCRAM-SHA-512", "nobody", "x"))
    assert not scram.is_complete
    assert response.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512"
    )
    assert_closed(client)


def test_a_failed_login_without_headers_closes(client) -> None:
    shake_hands(client, "PLAIN", 0)
    client.send_frame(b"\0alice\0wrong")
    assert_closed(client)


@pytest.mark.parametrize("mechanism", ["GSSAPI", "plain", "", "OAUTHBEARER", "SCRAM-SHA-1", "PLAIN "])
@pytest.mark.parametrize("version", [0, 1])
def test_a_mechanism_that_is_not_enabled_is_refused_with_those_that_are(client, mechanism, version) -> None:
    response = client.call(SaslHandshakeRequest(mechanism=mechanism), version)
    assert (response.error_code, response.mechanisms) == (UNSUPPORTED_SASL_MECHANISM, IN_JAVA_ORDER)
    assert_closed(client)


def test_nothing_but_tokens_may_follow_a_handshake(connect) -> None:
    for request, version in ((ListGroupsRequest(), 4), (SaslHandshakeRequest(mechanism="PLAIN"), 1)):
        client = connect()
        shake_hands(client, "PLAIN")
        assert client.call(request, version).error_code == ILLEGAL_SASL_STATE
        assert_closed(client)


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (MetadataRequest(topics=None), 12),
        (ListGroupsRequest(), 4),
        (SaslAuthenticateRequest(auth_bytes=b"\0alice\0wonder"), 2),
    ],
    ids=str,
)
def test_nothing_passes_before_the_login(connect, request_, version) -> None:
    client = connect()
    client.send(request_, version)
    assert_closed(client)
    client = connect()
    client.call(ApiVersionsRequest(), 0)
    client.send(request_, version)
    assert_closed(client)


def test_what_was_sent_behind_a_login_that_fails_is_not_looked_at(client) -> None:
    shake_hands(client, "PLAIN")
    client.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)
    client.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wonder"), 2)
    client.send(MetadataRequest(topics=None), 12)
    assert client.receive().error_code == SASL_AUTHENTICATION_FAILED
    assert_closed(client)


@pytest.mark.parametrize(
    "frames",
    [
        [struct.pack(">hhih", 17, 9, 1, -1)],
        [struct.pack(">hhihh", 17, 2, 1, -1, 5) + b"PLAIN"],
        [struct.pack(">hhih", 18, 0, 1, -1), struct.pack(">hhih", 18, 0, 1, -1)],
        [struct.pack(">hhih", 999, 0, 1, -1)],
        [b""],
        [b"\0"],
        [b"GET / HTTP/1.1\r\n\r\n"],
        [struct.pack(">hhihh", 17, 1, 1, -1, 30) + b"PLAIN"],
        [struct.pack(">hhihh", 17, 1, 1, -1, 5) + b"PLAIN", struct.pack(">hhih", 36, 9, 1, -1)],
        [struct.pack(">hhihh", 17, 1, 1, -1, 5) + b"PLAIN", struct.pack(">hhih", 36, 3, 1, -1) + TOKEN_OF_2],
        [struct.pack(">hhihh", 17, 1, 1, -1, 5) + b"PLAIN", struct.pack(">hhihi", 36, 0, 1, -1, 1 << 30)],
        [struct.pack(">hhihh", 17, 1, 1, -1, 5) + b"PLAIN", b""],
        [b"x" * 524_289],
    ],
    ids=[
        "handshake-9",
        "handshake-2-that-reads-as-1",
        "versions-twice",
        "no-api",
        "empty",
        "cut",
        "http",
        "mechanism-cut",
        "authenticate-9",
        "authenticate-3-that-reads-as-2",
        "token-cut",
        "empty-token",
        "too-large",
    ],
)
def test_frames_that_no_login_can_contain_close_the_connection(client, frames) -> None:
    *before, last = frames
    for frame in before:
        client.send_frame(frame)
        client.receive_frame()
    client.send_frame(last)
    assert_closed(client)


@pytest.mark.parametrize("size", [-1, 524_289, 0x7FFFFFFF])
def test_a_frame_that_claims_too_much_closes_at_once(client, size) -> None:
    client.set_timeout(5)  # half of what a login that does not come has
    client.send_bytes(struct.pack(">i", size))
    assert_closed(client)


def test_the_bound_of_frames_before_a_login_is_a_key_and_counts_no_longer_than_until_then(tmp_path) -> None:
    users = {"alice": "wonder"}
    with sasl_broker(tmp_path, ("SASL_PLAINTEXT",), users, {"sasl.server.max.receive.size": "1000"}) as ports:
        address = f"127.0.0.1:{ports['SASL_PLAINTEXT']}"
        with WireClient(address) as client:
            client.set_timeout(5)
            client.send_bytes(struct.pack(">i", 1001))
            assert_closed(client)
        with WireClient(address) as client:
            log_in(client, sasl_client("PLAIN", "alice", "wonder"))
            assert client.call(MetadataRequest(topics=[MetadataRequestTopic(name="x" * 1001)]), 12).topics


def test_a_listener_without_login_has_no_bound_below_that_of_all_requests(broker) -> None:
    """A client may begin with any request, of some MB, as with Apache Kafka: not with ApiVersions."""
    records = batch_of(value=bytes(900_000))
    with WireClient(f"127.0.0.1:{broker['PLAINTEXT']}") as client:
        assert produce(client, "nowhere", records).error_code == UNKNOWN_TOPIC_OR_PARTITION


# -- after a login --------------------------------------------------------------------------------------------------


def test_a_second_login_is_refused_where_sessions_do_not_end(client) -> None:
    log_in(client, sasl_client("PLAIN", "alice", "wonder"))
    for _ in range(2):
        assert client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == ILLEGAL_SASL_STATE
        response = client.call(SaslAuthenticateRequest(auth_bytes=b"\0bob\0builder"), 2)
        assert response.error_code == ILLEGAL_SASL_STATE
        assert response.error_message == "SaslAuthenticate request received after successful authentication"
    assert is_served(client)


def test_a_login_is_refused_where_none_is_required(broker, stack) -> None:
    client = stack.enter_context(WireClient(f"127.0.0.1:{broker['PLAINTEXT']}"))
    assert client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == ILLEGAL_SASL_STATE
    assert is_served(client)


# -- sessions that end ----------------------------------------------------------------------------------------------


def test_a_session_is_renewed_by_the_same_user_and_mechanism(expiring) -> None:
    response = log_in(expiring, sasl_client("PLAIN", "alice", "wonder"))
    assert response.session_lifetime_ms == SESSION_MS
    assert is_served(expiring)
    response = log_in(expiring, sasl_client("PLAIN", "alice", "wonder"))
    assert (response.error_code, response.session_lifetime_ms) == (0, SESSION_MS)
    assert is_served(expiring)


def test_a_session_may_not_become_another_users(expiring) -> None:
    log_in(expiring, sasl_client("PLAIN", "alice", "wonder"))
    shake_hands(expiring, "PLAIN")
    response = exchange(expiring, sasl_client("PLAIN", "bob", "builder"))
    assert response.error_code == SASL_AUTHENTICATION_FAILED
    assert response.error_message == ("Cannot change principals during re-authentication from User.alice: User.bob")
    assert_closed(expiring)


def test_a_session_may_not_be_renewed_by_another_mechanism(expiring) -> None:
    log_in(expiring, sasl_client("PLAIN", "alice", "wonder"))
    shake_hands(expiring, "SCRAM-SHA-256")
    expiring.send(SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=abc"), 2)
    assert_closed(expiring)


def test_a_session_is_renewed_once_a_second_at_most(broker, stack) -> None:
    began_s = 0.0
    while time.monotonic() - began_s > 1:  # a busy machine may take longer
        expiring = stack.enter_context(WireClient(f"127.0.0.1:{broker['EXPIRING']}"))
        began_s = time.monotonic()
        codes = [log_in(expiring, sasl_client("PLAIN", "alice", "wonder")).error_code for _ in range(2)]
        third = expiring.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code
    assert codes == [0, 0]
    assert third == ILLEGAL_SASL_STATE
    assert is_served(expiring)


def test_a_session_that_has_ended_takes_nothing_but_a_login(broker, stack) -> None:
    clients = [stack.enter_context(WireClient(f"127.0.0.1:{broker['EXPIRING']}")) for _ in range(2)]
    for client in clients:
        log_in(client, sasl_client("PLAIN", "alice", "wonder"))
    first, second = clients
    assert not first.has_response(SESSION_MS / 1000 + 0.3)
    first.send(MetadataRequest(topics=[]), 12)
    assert_closed(first)
    assert log_in(second, sasl_client("PLAIN", "alice", "wonder")).error_code == 0
    assert is_served(second)


def test_librdkafka_renews_its_session(broker, topic) -> None:
    """It goes on producing for three sessions, and is never told that it may not.

    If it is late to renew one, on a busy machine, it is disconnected and connects again.
    """
    errors: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{broker['EXPIRING']}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "wonder",
            "error_cb": errors.append,
        }
    )
    ends_at = time.monotonic() + 3 * SESSION_MS / 1000
    while time.monotonic() < ends_at:
        producer.produce(topic, b"value")
        assert producer.flush(60) == 0
    assert [each for each in errors if each.code() == KafkaError._AUTHENTICATION] == []


# -- many at a time -------------------------------------------------------------------------------------------------


@pytest.mark.ours
def test_wrong_passwords_by_the_hundred_keep_nobody_waiting(connect) -> None:
    served = connect()
    log_in(served, sasl_client("PLAIN", "alice", "wonder"))
    strangers = [connect() for _ in range(300)]
    for number, stranger in enumerate(strangers):
        stranger.send(SaslHandshakeRequest(mechanism="PLAIN" if number % 2 else "SCRAM-SHA-512"), 1)
        token = b"\0alice\0wrong" if number % 2 else b"n,,n=nobody,r=abc"
        stranger.send(SaslAuthenticateRequest(auth_bytes=token), 2)
    slowest_s = 0.0
    for _ in range(20):
        began_s = time.process_time()  # the broker's is this process
        assert is_served(served)
        slowest_s = max(slowest_s, time.process_time() - began_s)
    assert slowest_s < 1
    for number, stranger in enumerate(strangers):
        assert stranger.receive().error_code == 0
        assert stranger.receive().error_code == (SASL_AUTHENTICATION_FAILED if number % 2 else 0)
        if number % 2:
            assert_closed(stranger)


# -- bearer tokens --------------------------------------------------------------------------------------------------


@pytest.mark.ours
def test_librdkafka_logs_in_with_a_token_and_is_refused_with_another(tmp_path) -> None:
    key, listener = SigningKey("one"), "SASL_PLAINTEXT"
    url = write_jwks(tmp_path / "keys.json", key)
    properties = {
        "listeners": f"{listener}://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
            f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.allow.unverified.issuer": "true",
        "kafkapy.sasl.oauthbearer.allowed.urls": url,
    }
    now_ms = int(time.time() * 1000)
    errors: list[KafkaError] = []
    with Broker(properties=properties) as broker:
        for signer in (key, SigningKey("one")):
            token = signer.token(now_ms=now_ms)
            client = Producer(
                {
                    "bootstrap.servers": broker.bootstrap_servers,
                    "security.protocol": listener,
                    "sasl.mechanism": "OAUTHBEARER",
                    "oauth_cb": lambda _, token=token: (token, now_ms / 1000 + 60),
                    "error_cb": errors.append,
                    "log_level": 0,
                }
            )
            if signer is key:
                client.produce("topic", b"value")
                assert client.flush(60) == 0
            else:
                while not errors:
                    client.poll(1)
    assert errors[0].code() == KafkaError._AUTHENTICATION
