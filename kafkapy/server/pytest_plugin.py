"""The pytest plugin that every install of kafkapy brings: the fixtures `kafka_broker` and `kafka_cluster`."""

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


@pytest.fixture
def kafka_cluster() -> "Iterator[Cluster]":
    """Three running nodes on free ports, data in a temporary directory, for one test, which may kill them."""
    from kafkapy.server.cluster.cluster import Cluster

    with Cluster(3) as cluster:
        yield cluster
