"""`kafkapy security quota`: quotas are set, listed, take effect and are removed."""

import json

import pytest

from kafkapy import Broker
from kafkapy.__main__ import main
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from tests.support.wire import WireClient


@pytest.fixture(scope="module")
def broker():
    with Broker() as running:
        yield running


@pytest.fixture
def run(broker, capsys):
    def run_command(*arguments: str) -> tuple[int, str]:
        status = main(["security", "quota", *arguments, "-b", broker.bootstrap_servers])
        output = capsys.readouterr()
        return status, output.out + output.err

    return run_command


def listed(run, *options: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in json.loads(run("list", "--json", *options)[1])]


def test_quotas_from_their_setting_to_their_removal(run) -> None:
    both = ("--user", "alice", "--client-defaults")
    assert run("set", "producer_byte_rate=1024", "request_percentage=12.5", *both) == (
        0,
        "Set producer_byte_rate, request_percentage.\n",
    )
    assert run("set", "controller_mutation_rate=5", "--user-defaults")[0] == 0
    assert run("set", "consumer_byte_rate=7", "--client-id", "app")[0] == 0
    assert run("set", "connection_creation_rate=3", "--ip", "10.0.0.9")[0] == 0
    assert run("set", "connection_creation_rate=1000", "--ip-defaults")[0] == 0
    of_both = [
        ("alice", "(default)", None, "producer_byte_rate", 1024.0),
        ("alice", "(default)", None, "request_percentage", 12.5),
    ]
    assert listed(run) == [
        (None, None, "(default)", "connection_creation_rate", 1000.0),
        (None, None, "10.0.0.9", "connection_creation_rate", 3.0),
        (None, "app", None, "consumer_byte_rate", 7.0),
        ("(default)", None, None, "controller_mutation_rate", 5.0),
        *of_both,
    ]
    assert listed(run, "--user", "alice") == of_both
    table = run("list", "--client-defaults")[1].splitlines()
    assert [line.split() for line in table] == [
        ["USER", "CLIENT-ID", "IP", "QUOTA", "VALUE"],
        ["alice", "(default)", "producer_byte_rate", "1024"],
        ["alice", "(default)", "request_percentage", "12.5"],
    ]
    assert run("remove", "producer_byte_rate", *both) == (0, "Removed producer_byte_rate.\n")
    assert listed(run, *both) == of_both[1:]
    for entity in (both, ("--user-defaults",), ("--client-id", "app"), ("--ip", "10.0.0.9"), ("--ip-defaults",)):
        assert run("remove", *entity)[0] == 0
    assert listed(run) == []


def test_a_quota_that_is_set_throttles(run, broker) -> None:
    run("set", "request_percentage=0.0001", "--client-id", "busy")
    with WireClient(broker.bootstrap_servers) as client:
        assert client.call(ApiVersionsRequest(), 2, client_id="busy").throttle_time_ms == 1000
    run("remove", "--client-id", "busy")
    with WireClient(broker.bootstrap_servers) as client:
        assert client.call(ApiVersionsRequest(), 2, client_id="busy").throttle_time_ms == 0


def test_impossible_values_are_reported_in_one_line(run) -> None:
    status, output = run("set", "connection_creation_rate=1", "--user", "alice")
    assert (status, output.count("\n"), "INVALID_REQUEST" in output) == (1, 1, True)
    for arguments in (("producer_byte_rate=1",), ("producer_byte_rate=x", "--user", "alice"), ("rate", "--user", "a")):
        assert run("set", *arguments)[0] == 2
    assert run("set", "producer_byte_rate=1", "--user", "alice", "--user-defaults")[0] == 2
