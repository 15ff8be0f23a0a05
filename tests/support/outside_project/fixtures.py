"""The conftest.py of a team's project outside this repository: tests against kafkapy, or against KAFKA_SERVERS.

tests/compat/test_outside_project.py makes the project of these files, and the wheel that it installs.
"""

import os
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kafkapy.testing import Broker

SERVERS = os.environ.get("KAFKA_SERVERS")
TIMEOUT_S = 60


@pytest.fixture(scope="session")
def servers(request: pytest.FixtureRequest) -> str:
    if SERVERS:
        return SERVERS
    found: str = request.getfixturevalue("kafka_broker").bootstrap_servers
    return found


@pytest.fixture
def new_topic(servers: str) -> Iterator[Callable[..., str]]:
    admin = AdminClient({"bootstrap.servers": servers})
    made: list[str] = []

    def create(partitions: int = 1, **config: str) -> str:
        name = f"topic-{uuid.uuid4().hex[:12]}"
        (future,) = admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values()
        future.result(TIMEOUT_S)
        made.append(name)
        return name

    yield create
    for future in admin.delete_topics(made).values() if made else ():
        future.result(TIMEOUT_S)


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic()


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Broker:
    """For tests that ask the broker for more than Kafka has."""
    if SERVERS:
        pytest.skip("faults, and what happened, are kafkapy's own")
    found: Broker = request.getfixturevalue("kafka_broker")
    return found
