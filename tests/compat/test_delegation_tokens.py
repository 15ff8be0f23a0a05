"""kafka-delegation-tokens.sh makes, shows, renews and ends a token, and Java's clients log in with it meanwhile."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.listeners import listener_keys
from harness.servers import Server, free_port
from tests.compat.conftest import new_server
from tests.support.logins import PLAIN_MODULE, SCRAM_MODULE, jaas_keys

TOKENS, CONFIGS = "org.apache.kafka.tools.DelegationTokenCommand", "kafka.admin.ConfigCommand"
PRODUCER, CONSUMER = "org.apache.kafka.tools.ConsoleProducer", "org.apache.kafka.tools.consumer.ConsoleConsumer"
LISTENER = "SASL_PLAINTEXT"
MECHANISMS = ("PLAIN", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory) -> Iterator[str]:
    ports = {name: free_port() for name in ("PLAINTEXT", LISTENER, "CONTROLLER")}
    properties = {
        **listener_keys(ports),
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{ports['CONTROLLER']}",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "delegation.token.secret.key": "the secret of all nodes",
        **jaas_keys(LISTENER, mechanisms=MECHANISMS, users={"alice": "pw"}),
    }
    server: Server = new_server(tmp_path_factory.mktemp("tokens") / "data", properties)
    server.port = ports["PLAINTEXT"]
    with server:
        yield f"127.0.0.1:{ports[LISTENER]}"


def client_properties(path: Path, mechanism: str, module: str) -> str:
    path.write_text(
        f"security.protocol={LISTENER}\nsasl.mechanism={mechanism}\nsasl.jaas.config={module};\n"
        "default.api.timeout.ms=60000\nrequest.timeout.ms=60000\n"
    )
    return str(path)


def test_a_token_by_javas_tools(bootstrap, java_tool, tmp_path, topic) -> None:
    alice = client_properties(tmp_path / "alice", "PLAIN", f'{PLAIN_MODULE} username="alice" password="pw"')
    as_alice = ("--bootstrap-server", bootstrap, "--command-config", alice)
    output = java_tool(TOKENS, *as_alice, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    token_id, hmac = re.search(r"^(\S{22}) +(\S{88}) +User:alice +User:alice +\[User:bob\]", output, re.M).groups()

    output = java_tool(TOKENS, *as_alice, "--describe", "--owner-principal", "User:alice")
    assert "Total number of tokens : 1" in output
    assert hmac in output
    output = java_tool(TOKENS, *as_alice, "--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert "Completed renew operation." in output

    module = f'{SCRAM_MODULE} username="{token_id}" password="{hmac}" tokenauth="true"'
    token = client_properties(tmp_path / "token", "SCRAM-SHA-512", module)
    by_token = ("--bootstrap-server", bootstrap, "--command-config", token)
    java_tool(PRODUCER, *by_token, "--topic", topic, stdin="by token\n")
    read = ("--from-beginning", "--max-messages", "1", "--topic", topic)
    assert java_tool(CONSUMER, *by_token, *read) == "by token\n"
    with pytest.raises(AssertionError, match="UnsupportedByAuthenticationException"):
        java_tool(TOKENS, *by_token, "--describe")

    output = java_tool(TOKENS, *as_alice, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert "Completed expire operation." in output
    with pytest.raises(AssertionError, match=r"SaslAuthenticationException: .*invalid credentials"):
        java_tool(CONFIGS, *by_token, "--describe", "--entity-type", "topics")
