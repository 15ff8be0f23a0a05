"""A command whose TLS or login settings are missing or wrong is told so at once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkapy import Broker
from kafkapy.__main__ import main
from kafkapy.cli.reachable import UnreachableError, check_reachable
from kafkapy.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from kafkapy.protocol.primitives import Writer
from kafkapy.server.tls.dev_certificates import DevAuthority
from tests.support.one_response import answering

pytest.importorskip("confluent_kafka")
USERS = {"alice": "wonder"}


@pytest.mark.parametrize(
    ("tls", "users", "reason"),
    [
        (True, None, "does not answer in plaintext: does it ask for TLS?"),
        (True, USERS, "does not answer in plaintext: does it ask for TLS?"),
        (False, USERS, "asks for a login:"),
    ],
)
def test_a_command_without_settings_names_what_the_listener_requires(
    tls: bool, users: dict[str, str] | None, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Broker(tls=tls, users=users) as broker:
        server = broker.bootstrap_servers
        assert main(["topics", "list", "-b", server]) == 1
    assert f"kafkapy: the listener at {server} {reason} --command-config FILE" in capsys.readouterr().err


@pytest.mark.parametrize("response", [b"", b"\x15\x03\x03\0\2\2\x46", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_port_that_is_none_of_kafka_in_plaintext(response: bytes) -> None:
    with answering(response) as server, pytest.raises(UnreachableError, match="does not answer in plaintext"):
        check_reachable({"bootstrap.servers": server})


def test_the_next_bootstrap_server_is_tried_if_one_does_not_serve() -> None:
    """A proxy whose broker is down accepts, and closes; a certificate may be one node's only."""
    with Broker() as broker, answering(b"") as server:
        check_reachable({"bootstrap.servers": f"{server},{broker.bootstrap_servers}"})


def test_a_name_that_no_host_can_have_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topics", "list", "-b", f"{'x' * 64}.example:9092"]) == 1
    assert "kafkapy: no broker answers at xxx" in capsys.readouterr().err


def test_a_controllers_listener_is_distinguished_from_one_with_a_login() -> None:
    versions = Writer()
    ApiVersionsResponse(api_keys=[ApiVersion(api_key=1, max_version=1)]).write(versions, 0)
    frame = (1).to_bytes(4, "big") + versions
    with (
        answering(len(frame).to_bytes(4, "big") + frame) as server,
        pytest.raises(UnreachableError, match="a controller's"),
    ):
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
def test_what_is_wrong_with_a_command_config_is_reported_at_once(
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
    output = capsys.readouterr().err
    assert output == "" if reason is None else reason in output


@pytest.mark.parametrize("setting", ["sasl.password=wonder", "ssl.ca.location={}"])
def test_a_setting_of_the_command_line_is_used_instead_of_the_files(
    secured: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str], setting: str
) -> None:
    assert secured.ca_pem is not None
    right, other, config = tmp_path / "ca.pem", tmp_path / "other.pem", tmp_path / "client.properties"
    right.write_text(secured.ca_pem)
    other.write_text(DevAuthority("another").certificate_pem)
    has_password = setting.startswith("ssl")
    config.write_text(CLIENT.format("wonder" if has_password else "x", other if has_password else right))
    options = ["--command-config", str(config), "-X", setting.format(right)]
    assert main(["topics", "list", "-b", secured.bootstrap_servers, *options]) == 0
    assert capsys.readouterr().err == ""


def test_a_certificate_of_other_names_is_not_said_to_lack_its_ca(
    secured: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert secured.ca_pem is not None
    (tmp_path / "ca.pem").write_text(secured.ca_pem)
    config = tmp_path / "client.properties"
    config.write_text(CLIENT.format("wonder", tmp_path / "ca.pem"))
    server = f"127.1:{secured.bootstrap_servers.rpartition(':')[2]}"
    status = main(["topics", "list", "-b", server, "--command-config", str(config)])
    output = capsys.readouterr().err
    assert (status, "Hostname mismatch" in output, "ssl.truststore" in output) == (1, True, False)
