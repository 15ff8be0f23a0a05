"""A listener that is added at run time, and cannot be bound: it is logged, and costs the broker nothing else."""

from pathlib import Path

import pytest

from kafkapy import Broker
from kafkapy.metadata.image import RESOURCE_BROKER
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.wire import WireClient

pytestmark = pytest.mark.ours

OWN = "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"
PROTOCOLS = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"


@pytest.mark.parametrize("endpoint", ["EXTRA://:-1", "EXTRA://203.0.113.1:9092"])
def test_a_listener_that_cannot_be_bound_stops_no_broker_and_no_start(tmp_path: Path, endpoint: str) -> None:
    properties = {"listeners": OWN, "listener.security.protocol.map": PROTOCOLS}
    with Broker(tmp_path / "data", properties=properties) as broker, WireClient(broker.bootstrap_servers) as client:
        configs = {
            "listeners": f"{OWN},{endpoint}",
            "listener.security.protocol.map": f"{PROTOCOLS},EXTRA:PLAINTEXT",
        }
        entries = [AlterableConfig(name=key, value=value) for key, value in configs.items()]
        resource = AlterConfigsResource(resource_type=RESOURCE_BROKER, resource_name="1", configs=entries)
        (result,) = client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        assert result.error_code == 0, result
        assert client.call(ApiVersionsRequest(), 0).error_code == 0
    with Broker(tmp_path / "data", properties=properties) as broker, WireClient(broker.bootstrap_servers) as client:
        assert client.call(ApiVersionsRequest(), 0).error_code == 0
