"""A command whose TLS or login settings are missing or wrong is told so at once."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkapy import Broker
from kafkapy.__main__ import main
from kafkapy.cli.reachable import UnreachableError, check_reachable
from kafkapy.server.dev_security import DevAuthority

pytest.importorskip("confluent_kafka")
USERS = {"alice": "wonder"}


@contextmanager
def peer(answer: bytes) -> Iterator[str]:
    """A server that reads a little, sends `answer` and closes."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1024)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(
    ("tls", "users", "reason"),
    [
        (True, None, "does not answer in plaintext: does it ask for TLS?"),
        (True, USERS, "does not answer in plaintext: does it ask for TLS?"),
        (False, USERS, "asks for a login:"),
    ],
)
def test_a_command_without_settings_is_told_what_the_listener_asks_for(
    tls: bool, users: dict[str, str] | None, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Broker(tls=tls, users=users) as broker:
        server = broker.bootstrap_servers
        assert main(["topics", "list", "-b", server]) == 1
    assert f"kafkapy: the listener at {server} {reason} --command-config FILE" in capsys.readouterr().err


@pytest.mark.parametrize("answer", [b"", b"\x15\x03\x03\0\2\2\x46", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_port_that_is_none_of_kafka_in_plaintext(answer: bytes) -> None:
    with peer(answer) as server, pytest.raises(UnreachableError, match="does not answer in plaintext"):
        check_reachable({"bootstrap.servers": server})


def test_a_listener_in_plaintext_is_reachable() -> None:
    with Broker() as broker:
        check_reachable({"bootstrap.servers": broker.bootstrap_servers})


def test_settings_of_the_client_are_believed() -> None:
    """Whether they are right is for the client to find out."""
    with Broker(tls=True) as broker:
        check_reachable({"bootstrap.servers": broker.bootstrap_servers, "security.protocol": "ssl"})


CLIENT = """
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="{}";
ssl.truststore.type=PEM
ssl.truststore.location={}
"""


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    with Broker(tls=True, users=USERS) as broker:
        yield broker


@pytest.mark.parametrize(
    ("password", "is_trusted", "reason"),
    [
        ("wonder", True, None),
        ("x", True, "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM"),
        ("wonder", False, "is refused, unable to get local issuer certificate: its CA belongs into ssl.truststore"),
    ],
)
def test_what_is_wrong_with_a_command_config_is_told_at_once(
    secured: Broker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    password: str,
    is_trusted: bool,
    reason: str | None,
) -> None:
    trusted = secured.ca_pem if is_trusted else DevAuthority("another").certificate_pem
    assert trusted is not None
    (tmp_path / "ca.pem").write_text(trusted)
    config = tmp_path / "client.properties"
    config.write_text(CLIENT.format(password, tmp_path / "ca.pem"))
    status = main(["topics", "list", "-b", secured.bootstrap_servers, "--command-config", str(config)])
    assert status == (0 if reason is None else 1)
    said = capsys.readouterr().err
    assert said == "" if reason is None else reason in said
