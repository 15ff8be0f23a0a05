import pytest

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.load import load

MINIMAL = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
}


@pytest.fixture
def minimal() -> dict[str, str]:
    return dict(MINIMAL)


@pytest.fixture
def config() -> BrokerConfig:
    return load(MINIMAL)[0]
