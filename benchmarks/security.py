"""Loads of the secured pair: TLS with one cipher suite, logins by SCRAM and by certificate, requests under many ACLs,
starts.

Both servers have a PLAINTEXT listener for what is prepared, and SSL, MTLS and SASL_PLAINTEXT listeners; all principals
but User:alice may do everything. A login is a connection of its own: connect, log in, ask once, close.
"""

import base64
import copy
import hashlib
import hmac
import math
import re
import secrets
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from benchmarks import consume, java_clients
from benchmarks.canary import Canary
from benchmarks.clusters import SECURED_PASSWORD, SECURED_USER, listener_port, secured_files
from benchmarks.rest import await_metadata
from benchmarks.topics import create_topic, delete_topic
from benchmarks.wire import call, frame, receive
from benchmarks.workload import SECURED, SECURED_RESTARTED, Cost, Figures, Workload
from harness.servers import Kafkapy, Server
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkapy.protocol.messages.metadata_request import MetadataRequest
from kafkapy.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from kafkapy.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from kafkapy.protocol.messages.sasl_handshake_request import SaslHandshakeRequest

SUITE = "TLS_AES_128_GCM_SHA256"
"""The one that clients offer: both servers take it."""
RECORD_BYTES = 1024
PRODUCED, READ_BYTES = 600_000, 1 << 30
LOGINS, AT_ONCE, THREADS = 4_000, 10, 4
"""At most THREADS * AT_ONCE connections are new at a time: fewer than socket.listen.backlog.size, 50 of both servers. A
client whose SYN finds the listen queue full sends it again after a second, and so would measure that."""
REQUESTS, ACLS = 20_000, 1_000
TOPICS, WATCHED_S = 10_000, 5.0
ASK_PAUSE_S = 0.005
"""Between two requests for all topics: without it client, broker and canary want three cores."""
ITERATIONS = 4096
STARTS = 3
"""The first one may read its modules from the disk."""


def over_tls(server: Server) -> Server:
    """Return the server as clients of its TLS listener see it."""
    seen = copy.copy(server)
    seen.port = listener_port(server, "SSL")
    seen.java_settings = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(secured_files(server)[1]),
        "ssl.cipher.suites": SUITE,
    }
    return seen


def produce_over_tls(server: Server, topic: str, scale: float) -> Figures:
    create_topic(server, topic)
    figures = java_clients.produce(
        over_tls(server), topic, records=int(PRODUCED * scale), record_bytes=RECORD_BYTES, linger_ms="5",
        batch_size="131072",
    )  # fmt: skip
    delete_topic(server, topic)
    return figures


def read_over_tls(server: Server, topic: str, records: int, size_bytes: int) -> Figures:
    return consume.read_with_java(over_tls(server), topic, records, size_bytes)


# ---- logins


def log_in_by_scram(server: Server, topic: str, scale: float) -> Figures:
    _have_user(server)
    return _logins(server, scale, _scram_logins)


def _have_user(server: Server) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, ITERATIONS)
    upsertion = UserScramCredentialUpsertion(SECURED_USER, info, SECURED_PASSWORD.encode(), b"a salt of 16 ...")
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.alter_user_scram_credentials([upsertion])[SECURED_USER].result(30)
    while True:  # Apache Kafka's broker learns of it in its own time
        try:
            _scram_logins(server, 1)
            return
        except PermissionError:
            time.sleep(0.1)


def _logins(server: Server, scale: float, log_in: Callable[[Server, int], None]) -> Figures:
    """Log in by a few threads, each of which begins many at once."""
    count = max(int(LOGINS * scale), AT_ONCE * THREADS)
    waves = count // AT_ONCE
    before = _listen_queues()
    with ThreadPoolExecutor(THREADS) as pool, Cost(server) as cost:
        for done in [pool.submit(log_in, server, AT_ONCE) for _ in range(waves)]:
            done.result()
    done_count = waves * AT_ONCE
    return {
        "logins_per_s": done_count / cost.seconds,
        "broker_cpu_ms_per_login": cost.cpu_s * 1000 / done_count,
        "peak_memory_mb": cost.peak_memory_mb,
        **{name: value - before[name] for name, value in _listen_queues().items()},
    }


def _listen_queues() -> Figures:
    """Return how often a listen queue of this machine was full, and connections dropped for that or another reason."""
    names, values = (
        line.split() for line in Path("/proc/net/netstat").read_text().splitlines() if line.startswith("TcpExt:")
    )
    found = dict(zip(names, values, strict=True))
    return {"listen_overflows": float(found["ListenOverflows"]), "listen_drops": float(found["ListenDrops"])}


@lru_cache
def _salted(salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", SECURED_PASSWORD.encode(), salt, iterations)


def _scram_logins(server: Server, count: int) -> None:
    """Log in over so many connections at once. The salted password is worked out once: the client is to cost little."""
    address = ("127.0.0.1", listener_port(server, "SASL_PLAINTEXT"))
    connections = [socket.create_connection(address, timeout=60) for _ in range(count)]
    try:
        begun = []
        for connection in connections:
            bare = f"n={SECURED_USER},r={secrets.token_hex(16)}"
            begun.append(bare)
            first = frame(SaslAuthenticateRequest(auth_bytes=f"n,,{bare}".encode()), 2)
            connection.sendall(frame(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1) + first)
        for connection, bare in zip(connections, begun, strict=True):
            receive_from = _Responses(connection)
            receive_from.take()
            final = _final(bare, _auth_bytes(receive_from.take()).decode())
            connection.sendall(frame(SaslAuthenticateRequest(auth_bytes=final), 2))
        for connection in connections:
            _auth_bytes(_Responses(connection).take())
    finally:
        for connection in connections:
            connection.close()


class _Responses:
    """Responses that may come in one piece."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def take(self) -> bytes:
        size = int.from_bytes(self._connection.recv(4, socket.MSG_WAITALL), "big")
        return self._connection.recv(size, socket.MSG_WAITALL)


def _auth_bytes(frame: bytes) -> bytes:
    response = SaslAuthenticateResponse.decode(frame[5:], 2)
    if response.error_code:
        raise PermissionError(response.error_message)
    return bytes(response.auth_bytes)


def _final(bare: str, challenge: str) -> bytes:
    """Return the client's last message. RFC 5802."""
    nonce, salt, iterations = (part[2:] for part in challenge.split(","))
    salted = _salted(base64.b64decode(salt), int(iterations))
    unproved = f"c=biws,r={nonce}"
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signed = f"{bare},{challenge},{unproved}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{unproved},p={base64.b64encode(proof).decode()}".encode()


def log_in_by_certificate(server: Server, topic: str, scale: float) -> Figures:
    keys, certificate = secured_files(server)
    context = ssl.create_default_context(cafile=certificate)
    context.load_cert_chain(keys)
    context.options |= ssl.OP_NO_TICKET
    return _logins(server, scale, partial(_certificate_logins, context))


def _certificate_logins(context: ssl.SSLContext, server: Server, count: int) -> None:
    request = frame(ApiVersionsRequest(), 0)
    address = ("127.0.0.1", listener_port(server, "MTLS"))
    for _ in range(count):
        with socket.create_connection(address, timeout=60) as plain:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with context.wrap_socket(plain, server_hostname="localhost") as connection:
                connection.sendall(request)
                assert receive(connection)


# ---- ACLs


def _as_alice(server: Server) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", listener_port(server, "SASL_PLAINTEXT")), timeout=60)
    call(connection, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    token = f"\0{SECURED_USER}\0{SECURED_PASSWORD}".encode()
    response = call(connection, SaslAuthenticateRequest(auth_bytes=token), 2)
    assert response.error_code == 0, response
    return connection


def _may(user: str, name: str, pattern: ResourcePatternType = ResourcePatternType.LITERAL) -> AclBinding:
    kind, allow = ResourceType.TOPIC, AclPermissionType.ALLOW
    return AclBinding(kind, name, pattern, f"User:{user}", "*", AclOperation.READ, allow)


def _create(server: Server, bindings: Iterable[AclBinding]) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    for result in admin.create_acls([*bindings]).values():
        result.result(60)


def _delete_acls(server: Server) -> None:
    anything: Any = None
    everything = AclBindingFilter(
        ResourceType.ANY,
        anything,
        ResourcePatternType.ANY,
        anything,
        anything,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    admin = AdminClient({"bootstrap.servers": server.bootstrap})  # the response needs it
    admin.delete_acls([everything])[everything].result(60)


def requests_under_acls(server: Server, topic: str, scale: float) -> Figures:
    """ListOffsets of a user who may read the topic: with that ACL alone, then among a thousand of other topics."""
    create_topic(server, topic)
    count = max(int(REQUESTS * scale), 200)
    try:
        _create(server, [_may(SECURED_USER, topic)])
        alone_s = _requests_s(server, topic, count)
        _create(server, (_may(f"user-{number}", f"{topic}-{number}") for number in range(ACLS)))
        with Cost(server) as cost:
            among_s = _requests_s(server, topic, count)
    finally:
        _delete_acls(server)
        delete_topic(server, topic)
    return {
        "requests_per_s": count / among_s,
        "share_of_without_per_s": alone_s / among_s,
        "broker_cpu_us_per_request": cost.cpu_s * 1e6 / count,
    }


def _requests_s(server: Server, topic: str, count: int) -> float:
    requested = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    request = ListOffsetsRequest(replica_id=-1, topics=[requested])
    with _as_alice(server) as connection:
        while call(connection, request, 7).topics[0].partitions[0].error_code:
            time.sleep(0.05)
        data = frame(request, 7)
        began = time.monotonic()
        for _ in range(count):
            connection.sendall(data)
            receive(connection)
        return time.monotonic() - began


class HiddenTopics:
    """Ten thousand topics, of which a user may describe half."""

    def __init__(self) -> None:
        self._made: set[str] = set()

    def prepare(self, server: Server, topic: str, scale: float) -> None:
        create_topic(server, topic)
        if server.name in self._made:
            return
        self._made.add(server.name)
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        count = int(TOPICS * scale) // 2
        for kind in ("shown", "hidden"):
            for begin in range(0, count, 500):
                names = [NewTopic(f"{kind}-{number}", 1, 1) for number in range(begin, min(begin + 500, count))]
                for result in admin.create_topics(names, request_timeout=120).values():
                    result.result(180)
        _create(server, [_may(SECURED_USER, "shown-", ResourcePatternType.PREFIXED)])

    def send_request(self, server: Server, topic: str, scale: float) -> Figures:
        """Metadata of all topics by the user, while another process asks for little all the time."""
        request = frame(MetadataRequest(topics=None), 12)
        times_ms: list[float] = []
        with _as_alice(server) as connection:
            canary = Canary(server, max(WATCHED_S * scale, 1))
            while not canary.is_done:
                began = time.monotonic()
                connection.sendall(request)
                receive(connection)
                times_ms.append((time.monotonic() - began) * 1000)
                time.sleep(ASK_PAUSE_S)
        stalls = canary.figures()
        del stalls["stall_cpu_ms"]
        return {"p50_ms": sorted(times_ms)[len(times_ms) // 2], **stalls}


# ---- starts


FIXTURE_TEST = "def test_it(secure_kafka_broker): pass\n"
SETUP_TIME = re.compile(r"([0-9.]+)s setup")


def start_with_pem(server: Server, topic: str, scale: float) -> Figures:
    return {"ready_s": statistics.median(_start_s(server) for _ in range(STARTS))}


def _start_s(server: Server) -> float:
    server.stop()
    server.start()
    return await_metadata(server) - server.launched_at


def make_fixture(server: Server, topic: str, scale: float) -> Figures:
    if not isinstance(server, Kafkapy):
        return {"fixture_ready_s": math.nan}
    return {"fixture_ready_s": statistics.median(_fixture_s() for _ in range(STARTS))}


def _fixture_s() -> float:
    """Return the set-up time of the fixture, as a pytest run of its own tells it."""
    with tempfile.TemporaryDirectory(prefix="kafkapy-bench-") as directory:
        Path(directory, "test_it.py").write_text(FIXTURE_TEST)
        command = [sys.executable, "-m", "pytest", "-vv", "--durations=0", "-p", "no:cacheprovider", "test_it.py"]
        output = subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True).stdout
    found = SETUP_TIME.search(output)
    assert found is not None, output
    return float(found[1])


_backlog = consume.Backlog(READ_BYTES, RECORD_BYTES)
_hidden = HiddenTopics()


def _workload(name: str, run: Callable[..., Figures], **options: Any) -> Workload:
    return Workload(name, run, family="security", **{"servers": SECURED, "quick_rounds": 1, **options})


WORKLOADS = [
    _workload("produce 1 KiB over TLS, one cipher suite", produce_over_tls),
    _workload(
        "catch up over TLS, 1 KiB, Java",
        partial(_backlog.read, reader=read_over_tls, is_cold=False),
        prepare=_backlog.prepare,
    ),
    _workload("logins by SCRAM-SHA-256", log_in_by_scram),
    _workload("logins by certificate", log_in_by_certificate),
    _workload("small requests among 1,000 ACLs", requests_under_acls),
    _workload("start with PEM listeners", start_with_pem, servers=SECURED_RESTARTED, warms_up=False),
    _workload("the fixture secure_kafka_broker", make_fixture, warms_up=False),
    _workload("metadata of 10,000 topics, half hidden", _hidden.send_request, prepare=_hidden.prepare, quick_rounds=0),
]
