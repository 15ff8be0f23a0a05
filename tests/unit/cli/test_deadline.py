"""A server that sends a byte now and then holds no command for longer than its time-out."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkapy.cli.command_config import option_taken
from kafkapy.cli.connection import Connection
from kafkapy.cli.deadline import deadline_in, receive
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest

BYTES, PAUSE_S = 100, 0.05
TIMEOUT_S = 0.5
"""A tenth of what the server takes before it closes."""


@contextmanager
def dripping(first: bytes) -> Iterator[tuple[str, int]]:
    """A server whose every connection gets `first`, and then byte after byte until it has got BYTES, or is closed."""
    stopped = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(first)
                for _ in range(BYTES):
                    if stopped.wait(PAUSE_S):
                        return
                    try:
                        connection.sendall(b"\0")
                    except OSError:
                        return

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            stopped.set()
            thread.join()


def test_a_byte_now_and_then_does_not_move_the_deadline() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"x")
        with pytest.raises(TimeoutError):
            receive(ours, 1 << 20, deadline_in(0))


def test_a_request_is_left_after_its_time() -> None:
    with (
        dripping((1 << 20).to_bytes(4, "big")) as address,
        Connection(*address, timeout_s=TIMEOUT_S) as connection,
        pytest.raises(TimeoutError),
    ):
        connection.call(ApiVersionsRequest(), 0)


TLS_RECORD = b"\x16\x03\x03\x40\x00"
SASL_RESPONSE = (1 << 20).to_bytes(4, "big")
SETTINGS = {
    "TLS": ("security.protocol=SSL\n", TLS_RECORD),
    "a login": (
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config="
        "org.apache.kafka.common.security.plain.PlainLoginModule required username=a password=b;\n",
        SASL_RESPONSE,
    ),
}


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_handshake_or_login_is_left_after_its_time(kind: str, tmp_path: Path) -> None:
    text, first = SETTINGS[kind]
    path = tmp_path / "client.properties"
    path.write_text(text)
    with (
        option_taken(["--command-config", str(path)]),
        dripping(first) as address,
        pytest.raises(TimeoutError),
    ):
        Connection(*address, timeout_s=TIMEOUT_S)
