"""Attacks on the event loop: one peer that keeps all others waiting (part A of `make abuse`)."""

import contextlib
import json
import socket
import threading
from pathlib import Path

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from benchmarks.attack import Attack, create_topics, repeat, second_port
from benchmarks.canary import ALL_TOPICS
from benchmarks.wire import connect, frame, receive
from harness.servers import Server, free_port
from kafkapy.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkapy.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from kafkapy.protocol.messages.sasl_handshake_request import SaslHandshakeRequest

LOGIN_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


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


def _send_tokens(server: Server, is_over: threading.Event, token_bytes: int) -> None:
    token = jwt.encode({"sub": "a" * (token_bytes * 3 // 4)}, ec.generate_private_key(ec.SECP256R1()), "ES256")
    handshake = frame(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
    refused = frame(SaslAuthenticateRequest(auth_bytes=f"n,,\x01auth=Bearer {token}\x01\x01".encode()), 2)
    while not is_over.is_set():
        with (
            contextlib.suppress(OSError, AssertionError),
            socket.create_connection(("127.0.0.1", second_port(server)), timeout=30) as connection,
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


def _create_walked(server: Server) -> None:
    """One request for these partitions takes 40 ms of the loop, in turns."""
    create_topics(server, walked=2_000)


def _walk_long(server: Server, is_over: threading.Event) -> None:
    """Ask for all topics by 25 bytes."""
    repeat(server, is_over, [ALL_TOPICS])


LOOP_ATTACKS = [
    Attack("fetch-sessions", _grow_sessions, 8),
    Attack("fetch-wide-unknown", _fetch_wide, 8),
    Attack("fetch-wide", _fetch_wide_existing, 8, prepare=_create_wide),
    Attack("bearer-tokens-380k", _send_long_tokens, 16, _bearer_properties, is_ours_alone=True),
    Attack("bearer-tokens-1k", _send_short_tokens, 16, _bearer_properties, is_ours_alone=True),
    Attack("long-walks", _walk_long, 100, prepare=_create_walked, canary="topics"),
]
