"""One directory, both brokers: SCRAM users, of `storage format --add-scram` too, and tokens log in to the other."""

import base64
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import ScramMechanism

from harness.listeners import node_keys
from harness.servers import CLUSTER_ID, Kafkapy, free_port
from kafkapy.metadata.scram_types import MECHANISMS
from kafkapy.protocol.messages.create_delegation_token_request import CreateDelegationTokenRequest
from kafkapy.security.scram import ScramClient
from tests.simulator.crash_enumeration import SOAK_FACTOR
from tests.support.eventually import eventually
from tests.support.logins import jaas_keys, log_in, sasl_client
from tests.support.quick_kafka import QuickKafka
from tests.support.scram_users import add_user
from tests.support.wire import WireClient

pytestmark = pytest.mark.long

MECHANISM = "SCRAM-SHA-512"


def properties(port: int) -> dict[str, str]:
    ports = {"PLAINTEXT": port, "SASL_PLAINTEXT": free_port(), "CONTROLLER": free_port()}
    return {
        **node_keys(ports),
        "controller.quorum.bootstrap.servers": "",
        "sasl.enabled.mechanisms": MECHANISM,
        "delegation.token.secret.key": "the secret of both",
        **jaas_keys("SASL_PLAINTEXT", mechanisms=(MECHANISM,), users={}),
    }


def _address(settings: dict[str, str]) -> str:
    listener = next(each for each in settings["listeners"].split(",") if each.startswith("SASL_"))
    return listener.partition("://")[2]


def may_log_in(settings: dict[str, str], user: str) -> bool:
    with WireClient(_address(settings)) as client:
        return log_in(client, sasl_client(MECHANISM, user, f"{user}-secret")).error_code == 0


def add_named(bootstrap: str, user: str) -> None:
    add_user(bootstrap, user, f"{user}-secret", (ScramMechanism.SCRAM_SHA_512,))


def new_token(settings: dict[str, str]) -> Any:
    """Make a delegation token as a user."""
    with WireClient(_address(settings)) as client:
        log_in(client, sasl_client(MECHANISM, "formatted", "formatted-secret"))
        token = client.call(CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
        assert token.error_code == 0
        return token


def logs_in(settings: dict[str, str], token: Any) -> bool:
    password = base64.b64encode(token.hmac).decode()
    sasl = ScramClient(MECHANISMS[MECHANISM], token.token_id, password, nonce="abc", is_token=True)
    with WireClient(_address(settings)) as client:
        return log_in(client, sasl).error_code == 0


def test_users_log_in_to_whoever_has_the_directory(tmp_path: Path) -> None:
    directory, port, users = tmp_path / "data", free_port(), ["formatted"]
    settings = {key: value for key, value in properties(port).items() if value}
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in {**settings, "log.dirs": str(directory)}.items()))
    credential = f"{MECHANISM}=[name=formatted,password=formatted-secret]"
    command = [sys.executable, "-m", "kafkapy", "storage", "format", "-t", CLUSTER_ID, "-c", str(file)]
    subprocess.run([*command, "--add-scram", credential], check=True, capture_output=True)
    tokens: list[Any] = []
    for kind in (QuickKafka, Kafkapy) if SOAK_FACTOR == 1 else (QuickKafka, Kafkapy, QuickKafka):
        server = kind(directory, {**settings, "controller.quorum.bootstrap.servers": ""})
        server.port = port
        with server:
            for user in users:
                eventually(lambda user=user: may_log_in(settings, user))
            assert not may_log_in(settings, "nobody")
            for token in tokens:
                eventually(lambda token=token: logs_in(settings, token))
            tokens.append(new_token(settings))
            eventually(lambda: logs_in(settings, tokens[-1]))
            users.append(f"user-{len(users)}")
            add_named(server.bootstrap, users[-1])
            eventually(lambda: may_log_in(settings, users[-1]))
