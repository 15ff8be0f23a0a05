"""Which brokers send dead letters to themselves: those that can log in, and so have a principal for ACLs."""

from pathlib import Path

import pytest

from kafkapy.config.load import load
from kafkapy.server.dead_letters import can_log_in
from kafkapy.server.secure_setup import MECHANISM, SCRAM_MODULE, Setup, _server_properties
from tests.support.chance import SeededRandom

JAAS = f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config"


@pytest.mark.parametrize(
    ("changes", "can"),
    [
        ({}, False),
        ({JAAS: f'{SCRAM_MODULE} required username="broker" password="secret";'}, True),
        ({"listener.security.protocol.map": "SASL_SSL:SSL,CONTROLLER:PLAINTEXT"}, True),
    ],
)
def test_a_node_that_is_set_up_alone_has_no_login(tmp_path: Path, changes: dict[str, str], can: bool) -> None:
    setup = Setup(directory=tmp_path, bootstrap_servers="localhost:9092", user="alice", password="secret")
    config, _ = load({**_server_properties(setup, "localhost", 9092), **changes})
    assert can_log_in(config, SeededRandom()) is can
