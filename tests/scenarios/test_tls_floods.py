"""What a peer can do to a TLS port without a certificate: it costs itself, and a canary on PLAINTEXT is served.

To a SASL port without a password: test_login_floods.py.
"""

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.listeners import node_keys
from harness.servers import API_VERSIONS_FRAME, Kafkapy, free_port
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.logins import jaas_keys
from tests.support.openssl_client import TLS1_2, OpenSslClient, is_available

pytestmark = [pytest.mark.long, pytest.mark.ours]
TIMEOUT_MS = 2000
"""For a login, or a handshake, that does not come."""
PATIENCE_MS = 60_000
"""For those that have to succeed, also on a busy machine."""
PEERS = 200
PACE_S = 0.05
PRODUCE = 0
MECHANISMS = ("PLAIN", "SCRAM-SHA-256")


class Guarded:
    """A broker with a PLAINTEXT and a TLS listener, and a canary that asks on the first all the time."""

    def __init__(self, directory: Path, timeout_ms: int) -> None:
        self.port, self.sasl_port = free_port(), free_port()
        path = Authority().issue("broker").write(directory, "broker")
        self.server = Kafkapy(directory / "data")
        ports = {"PLAINTEXT": self.server.port, "SSL": self.port, "SASL_PLAINTEXT": self.sasl_port}
        self.server.properties = {
            **node_keys(ports | {"CONTROLLER": free_port()}),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(path),
            "kafkapy.authentication.timeout.ms": str(timeout_ms),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            **jaas_keys("SASL_PLAINTEXT", mechanisms=MECHANISMS, users={"alice": "wonder"}),
        }

    def connect(self, port: int | None = None) -> socket.socket:
        return socket.create_connection(("127.0.0.1", port or self.port), timeout=60)

    @property
    def descriptor_count(self) -> int:
        assert self.server.process is not None
        return len(list(Path(f"/proc/{self.server.process.pid}/fd").iterdir()))

    @contextlib.contextmanager
    def watched(self, slowest_cpu_s: float = 2.0) -> Iterator[None]:
        """Have a canary served while something goes on; at the end the broker holds no more than before.

        What the canary waits for is counted in CPU time of the broker: that it waits for a busy machine says nothing.
        """
        memory_mb, descriptors = self.server.memory_mb(), self.descriptor_count
        is_over = threading.Event()
        waits: list[float] = []
        canary = threading.Thread(target=self._sing, args=(is_over, waits))
        canary.start()
        try:
            yield
        finally:
            is_over.set()
            canary.join()
        assert len(waits) >= 3, "the canary was served"
        assert max(waits) < slowest_cpu_s
        eventually(lambda: self.descriptor_count <= descriptors + 3)
        assert self.server.memory_mb() < memory_mb + 30

    def _sing(self, is_over: threading.Event, waits: list[float]) -> None:
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as connection:
            while not is_over.wait(0.02) or len(waits) < 3:
                started_s = self.server.cpu_s()
                connection.sendall(API_VERSIONS_FRAME)
                _receive_frame(connection)
                waits.append(self.server.cpu_s() - started_s)


def _receive_frame(connection: socket.socket) -> None:
    left = 4 + int.from_bytes(connection.recv(4, socket.MSG_PEEK | socket.MSG_WAITALL), "big")
    while left:
        left -= len(connection.recv(left))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    broker = Guarded(tmp_path_factory.mktemp("floods"), TIMEOUT_MS)
    with broker.server:
        with broker.watched():  # what is loaded once is no leak
            eventually(lambda: _may_shake(broker))
        yield broker


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    broker = Guarded(tmp_path_factory.mktemp("patient"), PATIENCE_MS)
    with broker.server:
        with broker.watched():
            _shake(broker).close()
        yield broker


def _may_shake(guarded: Guarded) -> bool:
    """Whether a handshake ends in time."""
    try:
        _shake(guarded).close()
    except OSError:
        return False
    return True


def _shake(guarded: Guarded) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(guarded.connect())


def _hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def _silent(connection: socket.socket, _hello: bytes) -> None:
    """Connect, and say nothing."""


def _half(connection: socket.socket, hello: bytes) -> None:
    connection.sendall(hello[:100])


def _whole(connection: socket.socket, hello: bytes) -> None:
    connection.sendall(hello)


@pytest.mark.parametrize("begin", [_silent, _half, _whole])
def test_handshakes_that_are_not_finished_end_in_time(
    guarded: Guarded, begin: Callable[[socket.socket, bytes], None]
) -> None:
    hello = _hello()
    with guarded.watched(), contextlib.ExitStack() as stack:
        started = time.monotonic()
        peers = [stack.enter_context(guarded.connect()) for _ in range(PEERS)]
        for peer in peers:
            begin(peer, hello)
        for peer in peers:
            with contextlib.suppress(ConnectionResetError):
                while peer.recv(10_000):
                    continue
        assert time.monotonic() - started > TIMEOUT_MS / 1000 - 0.5


def test_a_trickle_of_bytes_does_not_prolong_a_handshake(guarded: Guarded) -> None:
    hello = _hello()
    with guarded.watched(), guarded.connect() as peer:
        started = time.monotonic()
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            _trickle(peer, hello * 2)
        assert time.monotonic() - started < len(hello) * PACE_S  # half of what it would send


def _trickle(peer: socket.socket, data: bytes) -> None:
    for byte in data:
        peer.sendall(bytes([byte]))
        time.sleep(PACE_S)  # the pace is what is tested


def test_handshakes_that_are_aborted_leave_nothing(patient: Guarded) -> None:
    with patient.watched():
        for _ in range(200):
            _shake(patient).close()
            with patient.connect() as peer:
                peer.sendall(b"\x16\x03\x01\x00\x05hello")


@pytest.mark.skipif(not is_available(), reason="there is no libssl to load")
def test_a_flood_of_key_updates_ends_its_connection(patient: Guarded) -> None:
    with patient.watched(), OpenSslClient(patient.port) as peer:
        assert peer.update_keys()
        assert peer.send_request(API_VERSIONS_FRAME)
        sent = 0
        while peer.update_keys() and sent < 200_000:
            sent += 1
        assert sent < 200_000
        assert not peer.send_request(API_VERSIONS_FRAME)


@pytest.mark.skipif(not is_available(), reason="there is no libssl to load")
def test_renegotiation_is_refused(patient: Guarded) -> None:
    with patient.watched(), OpenSslClient(patient.port, TLS1_2) as peer:
        assert peer.send_request(API_VERSIONS_FRAME)
        assert not peer.renegotiate()


@pytest.mark.skipif(not is_available(), reason="there is no libssl to load")
def test_key_updates_beside_data_whose_responses_are_not_read_end_their_connection(patient: Guarded) -> None:
    """A frame without end, with a KeyUpdate at every 20 bytes of it: nothing of it is wasted, but answers pile up."""
    with patient.watched(), OpenSslClient(patient.port) as peer:
        peer.send(struct.pack(">ihh", 50_000_000, PRODUCE, 9))
        sent = 0
        while peer.update_keys() and sent < 60_000:
            peer.send(bytes(20))
            sent += 1
        assert sent < 60_000
