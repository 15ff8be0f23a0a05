"""`kafkapy security token`: a token is made, seen, renewed, logged in with, and ended."""

import json

import pytest

from kafkapy import Broker
from kafkapy.__main__ import main
from tests.support.logins import PLAIN_MODULE, jaas_keys

MECHANISMS = ("PLAIN", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def broker():
    properties = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "delegation.token.secret.key": "secret",
        **jaas_keys("SASL_PLAINTEXT", mechanisms=MECHANISMS, users={"alice": "pw"}),
    }
    with Broker(properties=properties) as running:
        yield running


@pytest.fixture
def run(broker, tmp_path, capsys):
    def run_command(*arguments: str, login: str | None = None) -> tuple[int, str]:
        mechanism = "PLAIN" if login is None else "SCRAM-SHA-512"
        login = login or f'sasl.jaas.config={PLAIN_MODULE} username="alice" password="pw";'
        path = tmp_path / "client.properties"
        path.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n{login}\n")
        status = main([*arguments, "-b", broker.bootstrap_servers, "--command-config", str(path)])
        output = capsys.readouterr()
        return status, output.out + output.err

    return run_command


def test_a_token_from_its_making_to_its_end(run) -> None:
    status, output = run("security", "token", "create", "--renewer", "bob")
    assert status == 0
    assert "of alice, valid until 20" in output
    login = output.splitlines()[-1]
    (row,) = json.loads(run("security", "token", "list", "--json")[1])
    assert (row["owner"], row["requester"], row["renewers"]) == ("alice", "alice", ["bob"])
    assert f'username="{row["id"]}" password="{row["hmac"]}" tokenauth="true"' in login
    assert row["hmac"] not in (table := run("security", "token", "list", "--owner", "alice")[1])
    assert row["id"] in table
    assert run("security", "token", "renew", row["hmac"], "--period", "600000")[1].startswith("Valid until 20")
    assert run("transactions", "list", login=login)[0] == 0
    status, output = run("security", "token", "list", login=login)
    assert (status, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in output) == (1, True)
    assert run("security", "token", "expire", row["hmac"])[1].startswith("Ends at 20")
    assert run("security", "token", "list", "--json")[1].strip() == "[]"
    status, output = run("transactions", "list", login=login)
    assert (status, "invalid credentials" in output) == (1, True)


def test_what_is_refused_is_reported_in_one_line(run) -> None:
    status, output = run("security", "token", "renew", "eA==")
    assert (status, output.count("\n"), "DELEGATION_TOKEN_NOT_FOUND" in output) == (1, 1, True)
    status, output = run("security", "token", "expire", "no base64")
    assert status != 0
    assert "the HMAC is base64" in output
