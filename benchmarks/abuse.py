"""What one peer can do to all others: each attack on a fresh broker, beside Apache Kafka where it applies.

    python -m benchmarks.abuse [--only NAME,...] [--seconds N] [--apache] [--tree DIRECTORY]

Printed for each: the longest wait of another client (benchmarks/canary.py: a request every millisecond), its 99th
percentile, and by how much the process's resident memory grew at its peak. Two figures hold for every attack: no wait
above 250 ms, no growth above 64 MiB beyond what the broker's keys allow. --tree: the sources of another version of
kafkapy, to compare with.
"""

import argparse
import contextlib
import json
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from benchmarks.canary import Canary
from benchmarks.wire import call, connect, frame, receive
from harness.servers import ApacheKafka, Kafkapy, Server, free_port
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkapy.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkapy.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from kafkapy.protocol.messages.sasl_handshake_request import SaslHandshakeRequest

MOST_WAIT_MS, MOST_GROWTH_MB = 250, 64
LOGIN_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@dataclass(frozen=True)
class Attack:
    """An attack: `peer` is run by `peers` threads until the time is over, each over and over."""

    name: str
    peer: Callable[[Server, threading.Event], None]
    peers: int
    properties: Callable[[Path], dict[str, str]] = field(default=lambda directory: {})
    prepare: Callable[[Server], None] = field(default=lambda server: None)
    is_ours_alone: bool = False


@dataclass(frozen=True)
class Outcome:
    wait_ms: float
    p99_ms: float
    growth_mb: float


# ---- what many attacks need


def repeat(server: Server, is_over: threading.Event, frames: Sequence[bytes]) -> None:
    """Send frames one after another and read their answers, until the time is over; connect again when closed."""
    while not is_over.is_set():
        with contextlib.suppress(OSError, AssertionError), connect(server) as connection:
            while not is_over.is_set():
                for each in frames:
                    connection.sendall(each)
                    receive(connection)


def create_topics(server: Server, **partitions: int) -> None:
    topics = [
        CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name, count in partitions.items()
    ]
    with connect(server) as connection:
        answer = call(connection, CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7)
    assert not any(topic.error_code for topic in answer.topics), answer


# ---- A: one peer and the loop


def _bearer_properties(directory: Path) -> dict[str, str]:
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(4)]
    entries = [ECAlgorithm.to_jwk(key.public_key(), as_dict=True) | {"alg": "ES256"} for key in keys]
    jwks = directory / "jwks.json"
    jwks.write_text(json.dumps({"keys": entries}))
    plain, sasl = free_port(), free_port()
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},LOGINS://127.0.0.1:{sasl}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,LOGINS:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": jwks.as_uri(),
        "kafkapy.sasl.oauthbearer.allowed.urls": jwks.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "us",
        "listener.name.logins.oauthbearer.sasl.jaas.config": f"{LOGIN_MODULE} required;",
    }


def _second_port(server: Server) -> int:
    assert isinstance(server, Kafkapy | ApacheKafka)
    return int(server.properties["listeners"].rpartition(":")[2])


def _send_tokens(server: Server, is_over: threading.Event, token_bytes: int) -> None:
    token = jwt.encode({"sub": "a" * (token_bytes * 3 // 4)}, ec.generate_private_key(ec.SECP256R1()), "ES256")
    handshake = frame(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
    refused = frame(SaslAuthenticateRequest(auth_bytes=f"n,,\x01auth=Bearer {token}\x01\x01".encode()), 2)
    while not is_over.is_set():
        with (
            contextlib.suppress(OSError, AssertionError),
            socket.create_connection(("127.0.0.1", _second_port(server)), timeout=30) as connection,
        ):
            connection.sendall(handshake)
            receive(connection)
            while not is_over.is_set():
                connection.sendall(refused)
                receive(connection)


def _send_long_tokens(server: Server, is_over: threading.Event) -> None:
    _send_tokens(server, is_over, 380_000)


def _send_short_tokens(server: Server, is_over: threading.Event) -> None:
    _send_tokens(server, is_over, 1_000)


def _fetched(first: int, count: int, *, topic: str = "", session: tuple[int, int] = (0, -1), wait_ms: int = 0) -> bytes:
    """Return a Fetch of partitions of a topic, or of as many topics that do not exist."""
    numbers = range(first, first + count)

    def partition(number: int) -> FetchPartition:
        return FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1000)

    if topic:
        topics = [FetchTopic(topic=topic, partitions=[partition(number) for number in numbers])]
    else:
        topics = [FetchTopic(topic=f"made-up-{number}", partitions=[partition(0)]) for number in numbers]
    session_id, epoch = session
    request = FetchRequest(
        session_id=session_id, session_epoch=epoch, topics=topics, max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20
    )
    return frame(request, 12)


def _grow_sessions(server: Server, is_over: threading.Event) -> None:
    """Sessions of one connection, each grown by incremental fetches of names that do not exist."""
    opening, growing = _fetched(0, 10_000, session=(0, 0)), bytearray(_fetched(10_000, 10_000, session=(1, 1)))
    at = bytes(growing).index(b"\0\0\0\1\0\0\0\1", 30)
    while not is_over.is_set():
        with contextlib.suppress(OSError, AssertionError), connect(server) as connection:
            while not is_over.is_set():
                connection.sendall(opening)
                growing[at : at + 4] = receive(connection)[11:15]  # header, throttle time and error come first
                connection.sendall(growing)
                receive(connection)


def _fetch_wide(server: Server, is_over: threading.Event) -> None:
    repeat(server, is_over, [_fetched(0, 14_900)])


def _fetch_wide_existing(server: Server, is_over: threading.Event) -> None:
    repeat(server, is_over, [_fetched(0, 5_000, topic="wide", wait_ms=100)])


def _create_wide(server: Server) -> None:
    create_topics(server, wide=5_000)


ATTACKS = [
    Attack("fetch-sessions", _grow_sessions, 8),
    Attack("fetch-wide-unknown", _fetch_wide, 8),
    Attack("fetch-wide", _fetch_wide_existing, 8, prepare=_create_wide),
    Attack("bearer-tokens-380k", _send_long_tokens, 16, _bearer_properties, is_ours_alone=True),
    Attack("bearer-tokens-1k", _send_short_tokens, 16, _bearer_properties, is_ours_alone=True),
]


# ---- running them


def run(attack: Attack, server: Server, seconds: float) -> Outcome:
    attack.prepare(server)
    time.sleep(1)
    server.forget_peak()
    before_mb = server.memory_mb()
    is_over = threading.Event()
    peers = [threading.Thread(target=attack.peer, args=(server, is_over)) for _ in range(attack.peers)]
    canary = Canary(server, seconds)
    for peer in peers:
        peer.start()
    figures = canary.figures()
    grown_mb = server.memory_mb("VmHWM") - before_mb
    is_over.set()
    for peer in peers:
        peer.join(60)
    return Outcome(figures["stall_max_ms"], figures["stall_p99_ms"], grown_mb)


@contextlib.contextmanager
def _broker(attack: Attack, *, is_apache: bool, tree: Path | None) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="abuse-") as name:
        directory = Path(name)
        properties = attack.properties(directory)
        kind: Any = ApacheKafka if is_apache else Kafkapy
        server = kind(directory / "data", properties)
        server.working_directory = tree
        if "listeners" in properties and not is_apache:
            server.port = int(properties["listeners"].split(",")[0].rpartition(":")[2])
        with server:
            yield server


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--apache", action="store_true", help="run each on Apache Kafka, too, where it applies")
    parser.add_argument("--tree", type=Path, help="the directory of another version's sources")
    given = parser.parse_args()
    chosen = [each for each in ATTACKS if not given.only or each.name in given.only.split(",")]
    is_bad = False
    for attack in chosen:
        for is_apache in (False, True) if given.apache and not attack.is_ours_alone else (False,):
            with _broker(attack, is_apache=is_apache, tree=given.tree) as server:
                outcome = run(attack, server, given.seconds)
            figures = (
                f"wait {outcome.wait_ms:7.0f} ms  p99 {outcome.p99_ms:6.0f} ms  growth {outcome.growth_mb:6.0f} MiB"
            )
            print(f"{attack.name:24} {'apache' if is_apache else 'kafkapy':8} {figures}", flush=True)
            is_bad |= not is_apache and (outcome.wait_ms > MOST_WAIT_MS or outcome.growth_mb > MOST_GROWTH_MB)
    return 1 if is_bad else 0


if __name__ == "__main__":
    sys.exit(main())
