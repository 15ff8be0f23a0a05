"""A listener that a change at run time removes: who is asked for the address, and how its connections are closed."""

from pathlib import Path

import pytest

from harness.servers import free_port
from kafkapy import Broker
from kafkapy.metadata.image import RESOURCE_BROKER
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkapy.reactor.limits import CLOSED_PER_PASS
from tests.support.wire import ConnectionClosed, WireClient

SECOND = f"127.0.0.1:{free_port()}"
OTHERS = f"SECOND://{SECOND},CONTROLLER://127.0.0.1:0"
PROPERTIES = {
    "listeners": f"FIRST://127.0.0.1:0,{OTHERS}",
    "listener.security.protocol.map": "FIRST:PLAINTEXT,SECOND:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "advertised.listeners": f"SECOND://{SECOND}",
    "inter.broker.listener.name": "SECOND",
}


def remove_first() -> None:
    alter_listeners(OTHERS)


def alter_listeners(value: str) -> None:
    entry = AlterableConfig(name="listeners", value=value)
    resource = AlterConfigsResource(resource_type=RESOURCE_BROKER, resource_name="1", configs=[entry])
    with WireClient(SECOND) as client:
        (result,) = client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert result.error_code == 0, result


def test_the_address_is_that_of_a_listener_that_is_there(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", properties=PROPERTIES) as broker:
        first = broker.bootstrap_servers
        with WireClient(first) as client:
            remove_first()
            with pytest.raises((ConnectionClosed, ConnectionResetError)):
                client.receive_frame()
        assert broker.bootstrap_servers == SECOND


def test_all_connections_of_a_removed_listener_are_closed_in_more_than_one_pass(tmp_path: Path) -> None:
    count = CLOSED_PER_PASS + 20
    with Broker(tmp_path / "data", properties=PROPERTIES) as broker:
        clients = [WireClient(broker.bootstrap_servers) for _ in range(count)]
        for client in clients:
            assert client.call(ApiVersionsRequest(), 0).error_code == 0
        remove_first()
        for client in clients:
            with client, pytest.raises((ConnectionClosed, ConnectionResetError)):
                client.receive_frame()


def test_a_port_that_is_none_does_not_keep_a_broker_from_its_next_start(tmp_path: Path) -> None:
    """No port is negative, but a change at run time may say so of a listener that is bound and stays where it is."""
    with Broker(tmp_path / "data", properties=PROPERTIES):
        alter_listeners(f"FIRST://127.0.0.1:-1,{OTHERS}")
    with Broker(tmp_path / "data", properties=PROPERTIES) as broker, WireClient(broker.bootstrap_servers) as client:
        assert client.call(ApiVersionsRequest(), 0).error_code == 0
