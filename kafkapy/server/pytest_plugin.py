"""The pytest plugin that every install of kafkapy brings: the `kafka_broker` fixture."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafkapy.server.embedded import Broker


@pytest.fixture(scope="session")
def kafka_broker() -> "Iterator[Broker]":
    """A running broker on a free port, data in a temporary directory, for the whole test session.

    Clients connect to `kafka_broker.bootstrap_servers`; tests that must not see each other use topics of their own.
    """
    from kafkapy.server.embedded import Broker

    with Broker() as broker:
        yield broker
