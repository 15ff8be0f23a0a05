"""The pytest plugin of every install of kafkapy: fixtures `kafka_broker`, `secure_kafka_broker`, `kafka_cluster`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafkapy.server.cluster.cluster import Cluster
    from kafkapy.server.embedded import Broker


@pytest.fixture(scope="session")
def kafka_broker() -> "Iterator[Broker]":
    """A running broker on a free port, data in a temporary directory, for the whole test session.

    Clients connect to `kafka_broker.bootstrap_servers`; tests that must not see each other use topics of their own.
    """
    from kafkapy.server.embedded import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def secure_kafka_broker() -> "Iterator[Broker]":
    """As `kafka_broker`, over TLS and with a login: `secure_kafka_broker.client_config("alice")`."""
    from kafkapy.server.embedded import Broker

    with Broker(tls=True, users={"alice": "alice-secret"}) as broker:
        yield broker


@pytest.fixture
def kafka_cluster() -> "Iterator[Cluster]":
    """Three running nodes on free ports, data in a temporary directory, for one test, which may kill them."""
    from kafkapy.server.cluster.cluster import Cluster

    with Cluster(3) as cluster:
        yield cluster
