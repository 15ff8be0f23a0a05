"""--command-config: a client.properties as Java's tools take is what every command connects by."""

import pytest

from harness.certificates import make_certificate
from kafkapy import Broker
from kafkapy.__main__ import main
from kafkapy.cli.command_config import NOTHING, CommandConfig, CommandConfigError, current, option_taken
from tests.support.logins import MECHANISMS_ENABLED, PLAIN_MODULE, SCRAM_MODULE, jaas_keys

pytest.importorskip("confluent_kafka")
PASSWORD = "s3cret, ;"


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """A broker that asks for TLS and a login, and the certificate that its clients trust."""
    keys, certificate = make_certificate(tmp_path_factory.mktemp("keys"))
    properties = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS_ENABLED),
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate),
        **jaas_keys("SASL_SSL", mechanisms=MECHANISMS_ENABLED, users={"alice": PASSWORD}),
    }
    with Broker(properties=properties) as broker:
        yield broker, certificate


TOKEN = f'{SCRAM_MODULE} username="id" password="hmac" tokenauth="true"'


def client_properties(directory, certificate, *, mechanism="PLAIN", password=PASSWORD, **more):
    path = directory / "client.properties"
    module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
    keys = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} username="alice" password="{password}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate),
        **more,
    }
    path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    return path


def run(broker, path, *arguments: str) -> int:
    return main([*arguments, "-b", broker.bootstrap_servers, "--command-config", str(path)])


def test_commands_over_librdkafka_log_in(secured, tmp_path, capsys) -> None:
    broker, certificate = secured
    path = client_properties(tmp_path, certificate)
    assert run(broker, path, "topics", "create", "orders") == 0
    assert run(broker, path, "topics", "list") == 0
    assert "orders" in capsys.readouterr().out


def test_commands_with_a_connection_of_their_own_log_in(secured, tmp_path, capsys) -> None:
    broker, certificate = secured
    assert run(broker, client_properties(tmp_path, certificate), "transactions", "list") == 0
    wrong = client_properties(tmp_path, certificate, password="wrong")
    assert run(broker, wrong, "transactions", "list") == 1
    output = capsys.readouterr().err
    assert "Authentication failed: Invalid username or password" in output
    assert PASSWORD not in output


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"security.protocol": "TLS"}, "security.protocol: TLS is none"),
        ({"ssl.truststore.type": "JKS"}, "only PEM files are read here"),
        ({"sasl.jaas.config": "x"}, "Login module control flag not specified"),
        ({"sasl.jaas.config": f"{PLAIN_MODULE};"}, "it names no username or no password"),
        ({"sasl.jaas.config": f"{TOKEN};"}, "librdkafka knows no delegation tokens"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(tmp_path, keys, reason) -> None:
    path = client_properties(tmp_path, tmp_path / "certificate.pem", **keys)
    with pytest.raises(CommandConfigError, match=reason):
        CommandConfig.of_file(str(path)).librdkafka()


def test_a_file_that_is_missing_is_reported(tmp_path, capsys) -> None:
    assert main(["topics", "list", f"--command-config={tmp_path}/none"]) == 1
    assert main(["topics", "list", "--command-config"]) == 1
    output = capsys.readouterr().err
    assert f"{tmp_path}/none cannot be read: No such file or directory" in output
    assert "--command-config needs a file" in output


@pytest.mark.parametrize("command", [["topics", "list", "-b", "127.0.0.1:0"], ["console", "--listen", "192.0.2.1:1"]])
def test_the_file_applies_to_one_command_only(tmp_path, capsys, monkeypatch, command) -> None:
    """Commands that are run in one process later connected with the settings of the one before."""
    monkeypatch.delenv("KAFKAPY_CONSOLE_TOKEN", raising=False)
    path = client_properties(tmp_path, tmp_path / "certificate.pem")
    assert main([*command, "--command-config", str(path)]) == 1
    assert current() is NOTHING
    with option_taken([*command, f"--command-config={path}"]) as left:
        assert left == command
        assert current().protocol == "SASL_SSL"
        with option_taken(command):
            assert current() is NOTHING
        assert current().protocol == "SASL_SSL"
    assert current() is NOTHING


def test_librdkafka_gets_its_own_names(tmp_path) -> None:
    path = client_properties(
        tmp_path, "/ca.pem", mechanism="SCRAM-SHA-256", **{"ssl.endpoint.identification.algorithm": "", "acks": "all"}
    )
    assert CommandConfig.of_file(str(path)).librdkafka() == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
        "ssl.ca.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }


def test_a_connection_of_their_own_logs_in_with_a_token(tmp_path) -> None:
    keys = {"sasl.jaas.config": f"{TOKEN};"}
    path = client_properties(tmp_path, "/ca.pem", mechanism="SCRAM-SHA-256", **keys)
    login = CommandConfig.of_file(str(path)).login()
    assert login is not None
    assert login.evaluate(b"").endswith(b",tokenauth=true")
