"""What a peer can do to a SASL port without a password, and to a TLS port byte by byte: a canary is served meanwhile.

At the end the broker holds no more connections and memory than before. `make soak` sends 10,000 wrong passwords.
"""

import contextlib
import socket
import ssl
import time
from collections.abc import Iterator

import pytest

from harness.servers import API_VERSIONS_FRAME
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkapy.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from kafkapy.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from tests.scenarios.test_tls_floods import PATIENCE_MS, PEERS, TIMEOUT_MS, Guarded
from tests.simulator.crash_enumeration import SOAK_FACTOR
from tests.support.logins import log_in, sasl_client
from tests.support.wire import ConnectionClosed, WireClient, request_frame

pytestmark = pytest.mark.ours

WRONG_PASSWORDS = 400 if SOAK_FACTOR == 1 else 10_000
AT_ONCE = 20
SASL_AUTHENTICATION_FAILED = 58


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    broker = Guarded(tmp_path_factory.mktemp("logins"), TIMEOUT_MS)
    with broker.server:
        with broker.watched(), broker.connect(broker.sasl_port) as peer:  # what is loaded once is no leak
            assert _is_closed(peer)
        yield broker


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    broker = Guarded(tmp_path_factory.mktemp("patient"), PATIENCE_MS)
    with broker.server:
        with broker.watched():
            for mechanism in ("PLAIN", "SCRAM-SHA-256"):
                _guess(broker, mechanism, 1)
        yield broker


def _guess(guarded: Guarded, mechanism: str, count: int) -> None:
    """Log in with a wrong password over so many connections at once; each is told so and closed."""
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(WireClient(f"127.0.0.1:{guarded.sasl_port}", timeout_s=60)) for _ in range(count)
        ]
        token = sasl_client(mechanism, "alice", "wrong").evaluate(b"")
        for client in clients:
            client.send(SaslHandshakeRequest(mechanism=mechanism), 1)
            client.send(SaslAuthenticateRequest(auth_bytes=token), 2)
            if mechanism != "PLAIN":  # wrong whatever the broker says to the first
                client.send(SaslAuthenticateRequest(auth_bytes=b"c=biws,r=wrong,p=d3Jvbmc="), 2)
        codes = [_last_response(client, 2 if mechanism == "PLAIN" else 3) for client in clients]
    assert set(codes) == {SASL_AUTHENTICATION_FAILED}


def _last_response(client: WireClient, count: int) -> int:
    """Return the error that a login ends with."""
    *begun, last = [client.receive().error_code for _ in range(count)]
    assert client.is_closed()
    assert not any(begun)
    return int(last)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_wrong_passwords_by_the_thousand_leave_nothing(patient: Guarded, mechanism: str) -> None:
    with patient.watched():
        for _ in range(0, WRONG_PASSWORDS // 2, AT_ONCE):
            _guess(patient, mechanism, AT_ONCE)
    with WireClient(f"127.0.0.1:{patient.sasl_port}") as client:
        assert log_in(client, sasl_client("PLAIN", "alice", "wonder")).error_code == 0


@pytest.mark.parametrize("data", [b"", API_VERSIONS_FRAME[:7], b"\0\x08\0\0"], ids=["silent", "cut", "a size alone"])
def test_a_login_that_does_not_come_ends_in_time(guarded: Guarded, data: bytes) -> None:
    with guarded.watched(), contextlib.ExitStack() as stack:
        peers = [stack.enter_context(guarded.connect(guarded.sasl_port)) for _ in range(PEERS)]
        for peer in peers:
            peer.sendall(data)
        for peer in peers:
            assert _is_closed(peer)


def _is_closed(peer: socket.socket) -> bool:
    try:
        return not peer.recv(1)
    except ConnectionResetError:
        return True


def test_a_login_byte_by_byte_ends_in_time(guarded: Guarded) -> None:
    """Slowloris: a peer that always sends a little more has no longer than one that is silent."""
    handshake = request_frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    data = (len(handshake).to_bytes(4, "big") + handshake) * 10
    with guarded.watched(), contextlib.ExitStack() as stack:
        peers = [stack.enter_context(guarded.connect(guarded.sasl_port)) for _ in range(20)]
        began = time.monotonic()
        open_ones = set(peers)
        for byte in data:
            for peer in [*open_ones]:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    peer.sendall(bytes([byte]))
                    continue
                open_ones.discard(peer)
            if not open_ones:
                break
            time.sleep(0.05)  # the pace is what is tested
        assert not open_ones
        assert time.monotonic() - began > TIMEOUT_MS / 1000 - 0.5


def test_connections_that_are_closed_by_halves_leave_nothing(guarded: Guarded) -> None:
    """The peer says that nothing more comes, and does not close."""
    with guarded.watched(), contextlib.ExitStack() as stack:
        for number in range(PEERS):
            peer = stack.enter_context(guarded.connect(guarded.sasl_port if number % 2 else guarded.port))
            peer.sendall(API_VERSIONS_FRAME[: number % 20])
            peer.shutdown(socket.SHUT_WR)


def test_tls_records_of_one_byte_are_put_together_up_to_a_bound(patient: Guarded) -> None:
    """A request in some records of one byte is answered; thousands of them, which cost most, end the connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with patient.watched(), context.wrap_socket(patient.connect()) as peer:
        for byte in API_VERSIONS_FRAME:
            peer.sendall(bytes([byte]))
        assert int.from_bytes(peer.recv(4), "big") > 100
        with pytest.raises((ssl.SSLError, OSError)):
            _trickle(peer)


def _trickle(peer: ssl.SSLSocket) -> None:
    for _ in range(100_000):
        peer.sendall(b"\0")


def test_a_peer_that_logs_in_and_reads_nothing_is_not_waited_for(patient: Guarded) -> None:
    """Its responses pile up to a bound; then its requests are not read any more."""
    request = request_frame(MetadataRequest(topics=[MetadataRequestTopic(name="a" * 200)] * 50), 1)
    frame = len(request).to_bytes(4, "big") + request
    with patient.watched(), WireClient(f"127.0.0.1:{patient.sasl_port}") as client:
        assert log_in(client, sasl_client("PLAIN", "alice", "wonder")).error_code == 0
        client.set_timeout(1)
        with contextlib.suppress(TimeoutError, ConnectionClosed):
            for _ in range(5_000):
                client.send_bytes(frame)
